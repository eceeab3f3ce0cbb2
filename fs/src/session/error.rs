//! What a session's calls fail with: a kind that programs go by, and a text that says what to do.

use slabfs_mdserver::api::MdError;
use slabfs_objstore::StoreError;
use thiserror::Error;

use crate::call::CallError;
use crate::client::FsError;

/// What went wrong, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is nothing of that name.
    NotFound,
    /// The name exists already.
    Exists,
    /// A container was needed.
    NotContainer,
    /// A container was not allowed.
    IsContainer,
    /// The container has something in it.
    NotEmpty,
    /// The user may not.
    Denied,
    /// The session, or the object as it was opened, does not allow changes.
    ReadOnly,
    /// The request makes no sense; the text says what would.
    Invalid,
    /// A name, a size or a number beyond its limit.
    TooLarge,
    /// A disk is full, or an object has as many tags as it may have.
    NoSpace,
    /// This filesystem does not do that.
    NotSupported,
    /// Somebody else is at it; later it may work.
    Busy,
    /// The object is gone or another one than when it was opened.
    Stale,
    /// A server could not be reached in time; later it may work.
    Unavailable,
    /// The session is lost, or a lock of it: what it had not flushed may be lost.
    Lost,
    /// Stored data is not what was written.
    Damaged,
    /// A disk or a protocol failed.
    Io,
    /// It was cancelled before anything of it was done.
    Cancelled,
    /// The session was closed, or the object of a transfer before it was started.
    Closed,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    index: Option<usize>,
    elements: Vec<Vec<u32>>,
}

impl Error {
    /// Of a kind, with a text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            index: None,
            elements: Vec::new(),
        }
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Which of several things that were asked for at once it is about, from 0.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// The elements of a batch that it is about, one or two, each by its path: its index in the top vector, then in the
    /// vector below, and so on.
    pub fn elements(&self) -> &[Vec<u32>] {
        &self.elements
    }

    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::NoSpace
        )
    }

    pub(super) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// With what it is about in front.
    pub(super) fn about(mut self, what: impl std::fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Of a request for one thing, which has no number.
    pub(super) fn alone(mut self) -> Error {
        self.index = None;
        self
    }

    pub(super) fn at(mut self, index: usize) -> Error {
        self.index = Some(index);
        self
    }
}

impl From<FsError> for Error {
    fn from(error: FsError) -> Error {
        let kind = match &error {
            FsError::Md(error) => of_metadata(error),
            FsError::Store(error) => of_store(error),
            FsError::Invalid(_)
            | FsError::Batch { .. }
            | FsError::NoSuchExtent
            | FsError::NotRepresentable { .. } => ErrorKind::Invalid,
            FsError::Cancelled => ErrorKind::Cancelled,
            FsError::TooBig(_) => ErrorKind::TooLarge,
            FsError::NoServers | FsError::Lapsed(_) => ErrorKind::Unavailable,
            FsError::ReadOnly(_) => ErrorKind::ReadOnly,
            FsError::NotSupported(_) => ErrorKind::NotSupported,
            FsError::Lost | FsError::Unlocked => ErrorKind::Lost,
            FsError::Closed | FsError::Released => ErrorKind::Closed,
            FsError::Gone => ErrorKind::Stale,
            FsError::Unsettled(_) | FsError::Withheld(_) => ErrorKind::Busy,
        };
        let index = match &error {
            FsError::Md(MdError::At { index, .. }) => Some(*index as usize),
            _ => None,
        };
        let message = error.to_string();
        let elements = match error {
            FsError::Batch { elements, .. } => elements,
            _ => Vec::new(),
        };
        Error {
            kind,
            message,
            index,
            elements,
        }
    }
}

impl From<MdError> for Error {
    fn from(error: MdError) -> Error {
        FsError::Md(error).into()
    }
}

impl From<CallError> for Error {
    fn from(error: CallError) -> Error {
        match error {
            CallError::Client(error) => error.into(),
            CallError::At { index, path, error } => {
                let inner = Error::from(*error);
                Error::new(inner.kind, format!("{path}{}", inner.message)).at(index)
            }
            other => Error::new(of_call(&other), other.to_string()),
        }
    }
}

fn of_call(error: &CallError) -> ErrorKind {
    match error {
        CallError::Client(FsError::Md(error)) => of_metadata(error),
        CallError::At { error, .. } => of_call(error),
        CallError::Missing(_) => ErrorKind::NotFound,
        CallError::NotDirectory(_) => ErrorKind::NotContainer,
        CallError::Denied(_) => ErrorKind::Denied,
        CallError::TooLarge => ErrorKind::TooLarge,
        CallError::Client(_)
        | CallError::Name(_)
        | CallError::Invalid(_)
        | CallError::Unknown(_) => ErrorKind::Invalid,
    }
}

fn of_metadata(error: &MdError) -> ErrorKind {
    match error {
        MdError::At { error, .. } => of_metadata(error),
        MdError::NotFound | MdError::NoData => ErrorKind::NotFound,
        MdError::Exists => ErrorKind::Exists,
        MdError::NotDirectory => ErrorKind::NotContainer,
        MdError::IsDirectory => ErrorKind::IsContainer,
        MdError::NotEmpty => ErrorKind::NotEmpty,
        MdError::Invalid(_) => ErrorKind::Invalid,
        MdError::TooBig(_) | MdError::NameTooLong | MdError::TooManyLinks => ErrorKind::TooLarge,
        MdError::NoSpace | MdError::TooManyTags => ErrorKind::NoSpace,
        MdError::Stale => ErrorKind::Stale,
        MdError::Busy | MdError::NeedsRewrite | MdError::NeedsClear => ErrorKind::Busy,
        MdError::SessionLost => ErrorKind::Lost,
        MdError::Unavailable { .. } | MdError::Kept => ErrorKind::Unavailable,
        MdError::Io(_) | MdError::Protocol(_) => ErrorKind::Io,
        MdError::NotPermitted(_) => ErrorKind::Denied,
        MdError::NotSupported(_) => ErrorKind::NotSupported,
    }
}

fn of_store(error: &StoreError) -> ErrorKind {
    match error {
        StoreError::NoSpace => ErrorKind::NoSpace,
        StoreError::Missing(_) | StoreError::Damaged { .. } => ErrorKind::Damaged,
        StoreError::Unavailable { .. } | StoreError::Deadline | StoreError::Superseded => {
            ErrorKind::Unavailable
        }
        StoreError::Invalid(_) => ErrorKind::Invalid,
        StoreError::Io { .. } | StoreError::Protocol(_) | StoreError::Locked { .. } => {
            ErrorKind::Io
        }
        StoreError::Fenced(_) => ErrorKind::Lost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_several_keeps_its_number() {
        let inner = CallError::from(MdError::Exists);
        let error = Error::from(CallError::At {
            index: 7,
            path: "x: ".into(),
            error: Box::new(inner),
        });
        assert_eq!((error.kind(), error.index()), (ErrorKind::Exists, Some(7)));
        assert!(error.to_string().starts_with("x: "), "{error}");
        let denied = MdError::At {
            index: 2,
            error: Box::new(MdError::NotPermitted("no".into())),
        };
        let denied = Error::from(denied);
        assert_eq!(
            (denied.kind(), denied.index()),
            (ErrorKind::Denied, Some(2))
        );
    }
}
