//! What can go wrong with the index; none of it touches what is true.

use std::io;
use std::path::{Path, PathBuf};

/// Why the index could not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The system refused a call; the same call may work later.
    #[error("cannot {action} {}: {detail}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The system's words.
        detail: String,
    },
    /// A file is not what was written: the index is to be built anew from the tags.
    #[error("{} is damaged at byte {offset}: {detail}; the index of tags is to be rebuilt", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong, in words.
        detail: String,
    },
    /// The files are of another format or belong to something else: build the index anew.
    #[error("{} is of another kind: {detail}; the index of tags is to be rebuilt", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is different, in words.
        detail: String,
    },
    /// An entry is longer than the index takes.
    #[error("an entry of {len} bytes; the index of tags takes up to {limit}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The most bytes.
        limit: usize,
    },
}

impl IndexError {
    /// True when only building the index anew helps ([`super::Index::rebuild`], or
    /// [`super::Index::reset`] when it did not open).
    pub fn needs_rebuild(&self) -> bool {
        matches!(self, Self::Damaged { .. } | Self::Foreign { .. })
    }

    pub(super) fn io(action: &'static str, path: &Path, error: &io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            detail: error.to_string(),
        }
    }

    pub(super) fn damaged(path: &Path, offset: u64, detail: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            detail: detail.into(),
        }
    }
}
