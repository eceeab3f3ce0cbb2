//! Errors of the index; none of them affects the authoritative rows.

use std::io;
use std::path::{Path, PathBuf};

/// Why an operation of the index failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// A system call failed; the same call may succeed later.
    #[error("cannot {action} {}: {detail}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// The system's error text.
        detail: String,
    },
    /// A file does not contain what was written: the index has to be rebuilt from the tags.
    #[error("{} is damaged at byte {offset}: {detail}; the index of tags is to be rebuilt", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where, in bytes.
        offset: u64,
        /// What is wrong, in words.
        detail: String,
    },
    /// The files are of another format or belong to something else: the index has to be rebuilt.
    #[error("{} is of another kind: {detail}; the index of tags is to be rebuilt", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is different, in words.
        detail: String,
    },
    /// An entry is longer than the index permits.
    #[error("an entry of {len} bytes; the index of tags takes up to {limit}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The most bytes.
        limit: usize,
    },
}

impl IndexError {
    /// True if only rebuilding the index helps ([`super::Index::rebuild`], or [`super::Index::reset`] if it could not
    /// be opened).
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
