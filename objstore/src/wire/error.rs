//! Errors of the wire, and whether a retry can help.

use std::io;

/// The result of anything on the wire.
pub type WireResult<T> = Result<T, WireError>;

/// An error of a connection, a listener or a call.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// No server answered at this address until the deadline; `detail` is the last attempt's error.
    #[error("{addr} is away: {detail}")]
    Unavailable {
        /// The address that was called.
        addr: String,
        /// Why the last attempt failed.
        detail: String,
    },
    /// The other side was too slow: a frame did not come, or did not leave, in time.
    #[error("{addr} was too slow: {what} did not end in time")]
    Deadline {
        /// The peer.
        addr: String,
        /// What was being waited for.
        what: &'static str,
    },
    /// The other side closed the connection between two frames.
    #[error("{addr} closed the connection")]
    Closed {
        /// The peer.
        addr: String,
    },
    /// One side refuses the other: versions, key, user.
    #[error("{addr}: {reason}")]
    Refused {
        /// The peer.
        addr: String,
        /// What does not fit, and what to do about it.
        reason: String,
    },
    /// The other side is at its limit of connections; it may have room later.
    #[error("{addr} has too many connections")]
    Busy {
        /// The peer.
        addr: String,
    },
    /// The received data was damaged on the way, is not a frame, or is not the expected frame: the connection is
    /// unusable. The request can be sent again.
    #[error("the connection with {addr} is broken: {detail}")]
    Broken {
        /// The peer.
        addr: String,
        /// What was wrong.
        detail: String,
    },
    /// The data arrived undamaged and violates the protocol.
    #[error("{addr} does not keep to the protocol: {detail}")]
    Protocol {
        /// The peer.
        addr: String,
        /// What was wrong.
        detail: String,
    },
    /// The message does not fit a frame.
    #[error(
        "a {what} of {bytes} bytes does not fit a message, which holds at most {limit}; divide the request"
    )]
    TooLarge {
        /// "control part" or "payload".
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The other side could not answer this request, by no fault of the connection.
    #[error("{addr} failed: {detail}")]
    Fault {
        /// The peer.
        addr: String,
        /// The text it sent.
        detail: String,
    },
    /// Another server listens at this address already.
    #[error("{addr} is in use: another server answers there")]
    AddrInUse {
        /// The address to listen on.
        addr: String,
    },
    /// The key file cannot be used, or a key is missing where one is needed.
    #[error("{0}")]
    Key(String),
    /// The operating system refused.
    #[error("{addr}: {doing}: {source}")]
    Io {
        /// The peer or the listening address.
        addr: String,
        /// What was being done.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
}

impl WireError {
    /// True when the same request on a new connection may succeed.
    pub fn is_transient(&self) -> bool {
        match self {
            WireError::Unavailable { .. }
            | WireError::Deadline { .. }
            | WireError::Closed { .. }
            | WireError::Broken { .. }
            | WireError::Busy { .. } => true,
            WireError::Io { source, .. } => !matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
            ),
            WireError::Refused { .. }
            | WireError::Protocol { .. }
            | WireError::TooLarge { .. }
            | WireError::Fault { .. }
            | WireError::AddrInUse { .. }
            | WireError::Key(_) => false,
        }
    }
}
