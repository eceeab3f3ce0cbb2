//! The errors of a session's calls: a kind for programs, and a text with advice.

use slabfs_mdserver::api::MdError;
use slabfs_objstore::StoreError;
use thiserror::Error;

use crate::call::CallError;
use crate::client::FsError;

/// The kind of an error, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// No entry has that name.
    NotFound,
    /// The name exists already.
    Exists,
    /// A container was needed.
    NotContainer,
    /// A container was not allowed.
    IsContainer,
    /// The container is not empty.
    NotEmpty,
    /// The user lacks the permission.
    Denied,
    /// The session, or the object as it was opened, does not allow changes.
    ReadOnly,
    /// The request makes no sense; the text gives an alternative.
    Invalid,
    /// A name, a size or a number beyond its limit.
    TooLarge,
    /// A disk is full, or an object has the maximum number of tags.
    NoSpace,
    /// This filesystem does not support the operation.
    NotSupported,
    /// A conflict with another user of the object; a retry may succeed.
    Busy,
    /// The object was removed or replaced since it was opened.
    Stale,
    /// A server could not be reached in time; a retry may succeed.
    Unavailable,
    /// The session, or one of its locks, is lost: data it had not flushed may be lost.
    Lost,
    /// Stored data is corrupt.
    Damaged,
    /// A disk or a protocol failed.
    Io,
    /// It was cancelled before it had any effect.
    Cancelled,
    /// The session was closed, or the object of a transfer before the transfer was started.
    Closed,
}

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    index: Option<usize>,
    elements: Vec<Vec<u32>>,
}

impl Error {
    /// An error of a kind, with a text.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            index: None,
            elements: Vec::new(),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The index, from 0, of the failed item of a request for several.
    pub fn index(&self) -> Option<usize> {
        self.index
    }

    /// The elements of a batch that it concerns, one or two, each by its path: its index in the top vector, then in the
    /// vector below, and so on.
    pub fn elements(&self) -> &[Vec<u32>] {
        &self.elements
    }

    /// Whether a retry may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Busy | ErrorKind::Unavailable | ErrorKind::NoSpace
        )
    }

    pub(super) fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Prepends its subject.
    pub(super) fn about(mut self, what: impl std::fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// For a request for one item, which has no index.
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
            FsError::NoData(_) | FsError::Deadlock(_) => ErrorKind::Unavailable,
            FsError::DataLost(_) | FsError::Unsynced(_) => ErrorKind::Io,
            FsError::Dropped(..) => ErrorKind::NotFound,
            FsError::Closed | FsError::Released => ErrorKind::Closed,
            FsError::Gone | FsError::Replaced => ErrorKind::Stale,
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
        let kind = match error {
            CallError::Client(error) => return error.into(),
            CallError::At { index, path, error } => {
                let inner = Error::from(*error);
                return Error::new(inner.kind, format!("{path}{}", inner.message)).at(index);
            }
            CallError::Missing(_) => ErrorKind::NotFound,
            CallError::NotDirectory(_) => ErrorKind::NotContainer,
            CallError::Denied(_) => ErrorKind::Denied,
            CallError::TooLarge => ErrorKind::TooLarge,
            CallError::Name(_) | CallError::Invalid(_) | CallError::Unknown(_) => {
                ErrorKind::Invalid
            }
        };
        Error::new(kind, error.to_string())
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
        MdError::Unavailable { .. } | MdError::NamesCached => ErrorKind::Unavailable,
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
    fn an_error_of_one_of_several_items_keeps_its_index() {
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
