//! The error type of chunk stores, local and remote.
//!
//! It is sent over the wire unchanged, so it is made of plain values. `fs/mount` maps it to an errno; here only
//! [`StoreError::from_io`], where errnos come in, knows them.

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
    /// The chunk exists, but its bytes are not those that were written.
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
        /// The error of the last attempt.
        detail: String,
    },
    /// The deadline of the request has passed.
    #[error("the deadline of the request has passed")]
    Deadline,
    /// The request is invalid: a bug of the caller, or a wrong argument.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The operating system refused something.
    #[error("{what}: {detail}")]
    Io {
        /// What was being done to which file.
        what: String,
        /// The system's message.
        detail: String,
        /// Its errno, if there is one.
        errno: Option<i32>,
    },
    /// The other side violates the protocol.
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
    /// The session of the request is over: it must not change data that other sessions may write by now.
    #[error("{0} is over, and the data server takes no changes of it any more")]
    Fenced(SessionId),
    /// The client has lost a connection since it sent this request, and has given that attempt up; a caller that
    /// still waits resends it.
    #[error("the client has given this request up")]
    Superseded,
}

fn holder_text(holder: &Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (pid {pid})"))
}

impl StoreError {
    /// The error for a chunk whose bytes are not those that were written.
    pub(crate) fn damaged(name: &ChunkName, detail: impl Into<String>) -> Self {
        Self::Damaged {
            name: name.clone(),
            detail: detail.into(),
        }
    }

    /// Whether the same request may succeed later without a repair.
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

    /// Whether the error is that this server does not answer.
    #[must_use]
    pub fn is_of(&self, server: ServerId) -> bool {
        matches!(self, Self::Unavailable { server: of, .. } if *of == server)
    }

    /// Maps a system error met while `what` was done to `path`: a full disk becomes [`Self::NoSpace`], a lack of
    /// descriptors [`Self::Unavailable`].
    #[must_use]
    pub fn from_io(what: &str, path: &Path, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace,
            // Descriptors are freed again: the caller retries, as for a server that is unreachable for a moment.
            Some(libc::EMFILE | libc::ENFILE) => Self::Unavailable {
                // The caller knows the server.
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
