//! Errors of metadata operations. The mount maps each kind to one errno.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a metadata operation was refused or failed; it then had no effect.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum MdError {
    /// The name or inode does not exist (`ENOENT`).
    #[error("no such object or container")]
    NotFound,
    /// The name exists already (`EEXIST`).
    #[error("the name exists already")]
    Exists,
    /// A directory was required (`ENOTDIR`).
    #[error("not a directory")]
    NotDirectory,
    /// A directory was not allowed (`EISDIR`).
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries (`ENOTEMPTY`).
    #[error("directory not empty")]
    NotEmpty,
    /// The request is invalid; the text says what is allowed (`EINVAL`).
    #[error("{0}")]
    Invalid(String),
    /// A size or place beyond what the object may have (`EFBIG`).
    #[error("{0}")]
    TooBig(String),
    /// The disk of the metadata service is full (`ENOSPC`).
    #[error("no space left for metadata")]
    NoSpace,
    /// The inode has as many extended attributes as it may have (`ENOSPC`).
    #[error(
        "an object has at most 65,536 tags and other extended attributes, and 4 MiB of their names; \
         remove some, or put what belongs together into a list"
    )]
    TooManyTags,
    /// One of several requested changes failed; none of them was done.
    #[error("{error}")]
    At {
        /// Its index, from 0.
        index: u32,
        /// Its error.
        error: Box<MdError>,
    },
    /// The caller's view is out of date: the object was emptied or replaced since; look it up again (`ESTALE`).
    #[error("the object changed meanwhile; look it up again")]
    Stale,
    /// Another session is working on it; try again (`EBUSY`).
    #[error("busy; try again")]
    Busy,
    /// Another session caches names of the directory and has not acknowledged yet that it dropped them; retry (`EIO` if
    /// that does not end).
    #[error("other mounts do not acknowledge that they dropped cached names of the directory")]
    NamesCached,
    /// No such extended attribute (`ENODATA`).
    #[error("no such attribute")]
    NoData,
    /// A name is longer than allowed (`ENAMETOOLONG`).
    #[error("name too long")]
    NameTooLong,
    /// The inode cannot have more hard links (`EMLINK`).
    #[error("too many links")]
    TooManyLinks,
    /// The session is unknown: it sent no heartbeat in time, or detached. Unflushed data is lost
    /// (`EIO`).
    #[error("the session is lost: the metadata service received no heartbeat in time")]
    SessionLost,
    /// The object's bytes must be rewritten for this change: the caller reads them, stores them in the new layout
    /// and sends the change again with [`super::Rewrite`].
    #[error("the object has data; it has to be rewritten for this change")]
    NeedsRewrite,
    /// The object would grow over bytes that a dead session may have written and never committed: the caller sends
    /// [`super::op::Reserve`] first, which returns what to clear.
    #[error("a dead session left bytes beyond the end; they have to be cleared first")]
    NeedsClear,
    /// The service could not be reached before the deadline (`EIO`).
    #[error("metadata service {addr} is not available: {detail}")]
    Unavailable {
        /// Its address.
        addr: String,
        /// What happened at the last attempt.
        detail: String,
    },
    /// The service's storage failed (`EIO`).
    #[error("metadata storage failed: {0}")]
    Io(String),
    /// Not permitted for any user (`EPERM`).
    #[error("{0}")]
    NotPermitted(String),
    /// Not possible with this kind of object (`EOPNOTSUPP`).
    #[error("{0}")]
    NotSupported(String),
    /// The reply was unexpected; a bug, or a service of another version (`EIO`).
    #[error("protocol: {0}")]
    Protocol(String),
}

impl MdError {
    /// Whether the same request may succeed if it is repeated later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy | Self::NamesCached | Self::Unavailable { .. } | Self::NoSpace
        )
    }
}
