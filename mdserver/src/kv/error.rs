//! [`KvError`]: the errors of the store, and [`Damage`]: a damaged place of a checkpoint or of the journal.

use super::Lsn;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an operation of the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum KvError {
    /// The disk is full; nothing of the batch is visible, and a later retry may succeed.
    #[error("no space left for {}", path.display())]
    NoSpace {
        /// The file that could not grow.
        path: PathBuf,
    },
    /// The operating system refused a request.
    #[error("cannot {action} {}: {detail}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error text.
        detail: String,
    },
    /// Another process has the directory open.
    #[error("{} is locked: another process has it open", path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Acknowledged records are unreadable; the store opens only if the loss is accepted.
    #[error("the metadata in {} is damaged and does not open unless the loss is accepted (--accept-loss): {}", path.display(), listed(damage))]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// All damage that was found.
        damage: Vec<Damage>,
    },
    /// A sync of the journal failed before, so nothing written since can be trusted to be on disk.
    #[error("the journal {} could not be synced ({detail}); restart the metadata service", path.display())]
    Poisoned {
        /// The journal file.
        path: PathBuf,
        /// The system's error text at the first failure.
        detail: String,
    },
    /// The index has failed; it is being rebuilt from checkpoint and journal.
    #[error("the index fails and is being rebuilt: {detail}")]
    Index {
        /// sled's error text.
        detail: String,
    },
    /// The journal is elsewhere and cannot be reached, or another service writes it now: nothing may be answered.
    #[error("{detail}")]
    Unavailable {
        /// What happened.
        detail: String,
    },
    /// The request itself is wrong.
    #[error("invalid: {0}")]
    Invalid(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl KvError {
    /// Converts an I/O error to the fitting kind.
    pub(super) fn io(action: &'static str, path: &Path, error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace {
                path: path.to_owned(),
            },
            _ => Self::Io {
                action,
                path: path.to_owned(),
                detail: error.to_string(),
            },
        }
    }

    /// True if the same request may succeed later without a restart.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::Index { .. })
    }
}

/// One unreadable place of checkpoint or journal, and what is lost with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file, relative to the store's directory.
    pub file: PathBuf,
    /// Where in the file the damage begins, in bytes.
    pub offset: u64,
    /// The first and the last lost commit, as far as known.
    pub lost: Option<(Lsn, Lsn)>,
    /// Keys that those commits changed, as far as they can still be read.
    pub keys: Vec<Vec<u8>>,
    /// A description of the damage.
    pub detail: String,
}

/// The error text for a file of a format that this program does not read.
pub(super) fn other_version(found: u32, known: u32) -> String {
    format!(
        "format version {found}; this program reads {known}: start the slabfs that wrote it, and copy the data out and into a new data directory (nothing was changed)"
    )
}

/// How many keys a message names before it only counts them.
const KEYS_SHOWN: usize = 8;

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} at byte {}: {}",
            self.file.display(),
            self.offset,
            self.detail
        )?;
        match self.lost {
            Some((first, last)) if first == last => write!(f, "; gone: record {first}")?,
            Some((first, last)) => write!(f, "; gone: records {first} to {last}")?,
            None => {}
        }
        if !self.keys.is_empty() {
            write!(f, "; it changed:")?;
            for (at, key) in self.keys.iter().take(KEYS_SHOWN).enumerate() {
                let comma = if at == 0 { "" } else { "," };
                write!(f, "{comma} {}", crate::keys::describe(key))?;
            }
            if self.keys.len() > KEYS_SHOWN {
                write!(f, " and {} more", self.keys.len() - KEYS_SHOWN)?;
            }
        }
        Ok(())
    }
}

fn listed(damage: &[Damage]) -> String {
    damage
        .iter()
        .map(Damage::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
