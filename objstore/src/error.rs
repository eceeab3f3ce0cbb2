//! The one error of chunk stores, near and far.
//!
//! It travels over the wire as it is, so it is made of plain values. `fs/mount` turns it into an
//! errno; nothing here knows errnos but [`StoreError::from_io`], where they come in.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use slabfs_model::{ServerId, SessionId};

use crate::name::ChunkName;

/// A result of this crate.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Why a chunk store could not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum StoreError {
    /// The disk is full; nothing of what was being written is visible.
    #[error("no space left on the data server")]
    NoSpace,
    /// There is no chunk of this name.
    #[error("{0} does not exist")]
    Missing(ChunkName),
    /// The chunk is there and its bytes are not those that were written.
    #[error("{name} is damaged: {detail}")]
    Damaged {
        /// The chunk.
        name: ChunkName,
        /// Which block of which file, and what is wrong with it.
        detail: String,
    },
    /// A data server did not answer until the deadline.
    #[error("data server {server} at {addr} is away: {detail}")]
    Unavailable {
        /// The server.
        server: ServerId,
        /// Its address, as configured or registered.
        addr: String,
        /// What the last attempt met.
        detail: String,
    },
    /// The time given for the request is over.
    #[error("the deadline of the request has passed")]
    Deadline,
    /// The request makes no sense: a bug of the caller, or a wrong argument.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The operating system refused something.
    #[error("{what}: {detail}")]
    Io {
        /// What was being done to which file.
        what: String,
        /// What the system said.
        detail: String,
        /// Its errno, where it gave one.
        errno: Option<i32>,
    },
    /// The other side does not speak as agreed.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// The directory is in use.
    #[error("{} is in use by another process{}: stop that one, or choose another directory", .dir.display(), holder_text(.holder))]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, where that is known.
        holder: Option<u32>,
    },
    /// The session that asks is over: nothing it says may change what others can write by now.
    #[error("{0} is over, and the data server takes no changes of it any more")]
    Fenced(SessionId),
    /// The client has made later requests since, and has given this one up: it asks again if it still waits.
    #[error("the client has given this request up")]
    Superseded,
}

fn holder_text(holder: &Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl StoreError {
    /// Whether the same request may succeed later without anybody repairing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::NoSpace | Self::Unavailable { .. } | Self::Deadline | Self::Superseded => true,
            Self::Io { errno, .. } => {
                matches!(
                    *errno,
                    Some(libc::EINTR | libc::EAGAIN | libc::EMFILE | libc::ENFILE | libc::ENOMEM)
                )
            }
            Self::Missing(_)
            | Self::Damaged { .. }
            | Self::Invalid(_)
            | Self::Protocol(_)
            | Self::Locked { .. }
            | Self::Fenced(_) => false,
        }
    }

    /// Whether it says that this server does not answer.
    #[must_use]
    pub fn is_of(&self, server: ServerId) -> bool {
        matches!(self, Self::Unavailable { server: of, .. } if *of == server)
    }

    /// An error of the system while `what` was done to `path`: a full disk is [`Self::NoSpace`], and that no
    /// descriptors are left [`Self::Unavailable`].
    #[must_use]
    pub fn from_io(what: &str, path: &Path, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace,
            // Others give some back: who asked comes again, as to a server that is away for a moment.
            Some(libc::EMFILE | libc::ENFILE) => Self::Unavailable {
                // The caller knows whom it asked.
                server: slabfs_model::ServerId(0),
                addr: String::new(),
                detail: format!(
                    "it cannot open {}: {error}; give it more (`ulimit -n`)",
                    path.display()
                ),
            },
            errno => Self::Io {
                what: format!("{what} {}", path.display()),
                detail: error.to_string(),
                errno,
            },
        }
    }
}
