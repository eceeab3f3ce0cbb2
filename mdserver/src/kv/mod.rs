//! The durable key-value core of the metadata service.
//!
//! Everything the service knows lies in one ordered map from bytes to bytes, changed by atomic
//! [`Batch`]es. [`MetaKv`] is the seam; [`LocalKv`] keeps the map in a directory, [`MemoryKv`] in
//! memory for tests. Both run the suite in `conformance`.
//!
//! What [`LocalKv`] keeps true: **the checkpoint and the journal are the truth, the sled index is
//! not.** A commit is one frame written to the journal (`journal`), then visible in the memtable
//! (`memtable`). A background thread (`upkeep`) moves the memtable into sled (`index`), syncs the
//! journal, and writes checkpoints (`checkpoint`), full dumps that let old journal files go. At
//! start (`start`) the truth is read from checkpoint and journal and *every* entry of the index is
//! compared with it, so a sled that is behind, ahead, damaged or gone never costs a key.
//!
//! Whoever derives something from a table (the index of tags) hangs on by two hooks:
//! [`MetaKv::changed_since`] tells at start which keys the journal changed, and
//! [`MetaKv::before_checkpoint`] calls before the journal that tells it goes.
//!
//! The files are drawn to the byte in `docs/formats/journal.md`.
//!
//! Deliberately elsewhere: what keys and values mean (the service's tables), and transactions
//! that read before they write (the service holds its own locks).

mod base;
mod batch;
mod before;
mod blocks;
mod cache;
mod checkpoint;
#[cfg(test)]
mod conformance;
mod direct;
mod disk;
mod engine;
mod entries;
mod error;
mod filter;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod housekeeping;
mod index;
mod journal;
mod key;
mod load;
mod local;
mod memory;
mod memtable;
mod pages;
mod reconcile;
mod recovery;
mod replay;
mod salvage;
mod scan;
mod signals;
mod sled_files;
mod start;
mod sync;
#[cfg(test)]
mod tests;
mod truth;
mod upkeep;
mod verify;
mod walk;

pub use batch::Batch;
pub use error::{Damage, KvError};
pub use key::Key;
pub use load::Source;
pub use local::{KvOptions, LocalKv};
pub use memory::MemoryKv;
pub use recovery::Recovery;

use std::fmt;
use std::fs::File;
use std::time::Duration;

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// All pairs of a store at one moment, in a file.
#[derive(Debug)]
pub struct Snapshot {
    /// The checkpoint.
    pub file: File,
    /// Its length.
    pub bytes: u64,
    /// The last commit in it.
    pub last: Lsn,
}

/// What is done before a checkpoint; see [`MetaKv::before_checkpoint`].
pub type BeforeCheckpoint = Box<dyn Fn(Lsn) + Send + Sync>;

/// The longest key a batch may hold, in bytes.
pub const MAX_KEY: usize = 4096;

/// The most bytes (keys, values and their lengths) one batch may hold.
pub const MAX_BATCH: usize = 32 << 20;

/// The number of a commit: the first is 1, and each commit has its predecessor's number plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An ordered, durable map from bytes to bytes with atomic batches.
pub trait MetaKv: Send + Sync {
    /// The value of `key`, with all commits seen.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// At most `limit` pairs with `from <= key < to`, ascending, as they were at one moment
    /// during the call.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError>;

    /// Applies `batch` atomically. When this returns the record was written to the journal (it
    /// survives the end of this process, but not yet a power loss) and every reader sees it.
    fn commit(&self, batch: Batch) -> Result<Lsn, KvError>;

    /// Holds the caller back as [`MetaKv::commit`] would while index or checkpoints are far behind, and refuses what they cannot
    /// catch up with. For whoever commits under a lock that [`MetaKv::before_checkpoint`] asks for: it waits before it
    /// takes the lock.
    fn wait_for_room(&self) -> Result<(), KvError> {
        Ok(())
    }

    /// Brings all commits that have returned to disk, and answers the last number there. Callers
    /// at the same time share one `fdatasync`.
    fn sync(&self) -> Result<Lsn, KvError>;

    /// The last number known to be on disk.
    fn synced(&self) -> Lsn;

    /// Writes a full dump now and lets the journal before it go.
    fn checkpoint(&self) -> Result<(), KvError>;

    /// Tells this store from every other; the same as long as it lives. What is derived from a store
    /// and kept apart carries it.
    fn identity(&self) -> [u8; 16] {
        [0; 16]
    }

    /// The keys that begin with `table` and that commits behind `after` changed before this store was
    /// opened, ascending; `None` when that is not known, for `after` lies before the checkpoint or
    /// [`MetaKv::forget_changes`] was called. What was committed since it was opened is not in it.
    ///
    /// For whoever derives something from a table and keeps it in files of its own: it asks once, at
    /// start, what it missed.
    fn changed_since(&self, table: u8, after: Lsn) -> Option<Vec<Vec<u8>>> {
        let _ = (table, after);
        None
    }

    /// Gives back the memory [`MetaKv::changed_since`] needs.
    fn forget_changes(&self) {}

    /// From now on calls `work` before each checkpoint is written, with the last commit that will be
    /// in it: behind the checkpoint [`MetaKv::changed_since`] tells nothing of commits up to that one,
    /// so what is derived from them has to be on disk when `work` returns.
    ///
    /// `work` runs on the thread that commits may be waiting for, so it must not wait for a lock that
    /// anybody holds while committing.
    fn before_checkpoint(&self, work: BeforeCheckpoint) {
        drop(work);
    }

    /// Asks for a file with all pairs as they stand at one moment from now on; the number is for
    /// [`MetaKv::snapshot`]. Writing goes on meanwhile.
    fn ask_snapshot(&self) -> Result<u64, KvError> {
        Err(KvError::Invalid("this store keeps no files".to_owned()))
    }

    /// The file that was asked for, a checkpoint, open for reading; `None` when it takes longer than
    /// `patience`. It stays readable as long as it is open.
    fn snapshot(&self, number: u64, patience: Duration) -> Result<Option<Snapshot>, KvError> {
        let _ = (number, patience);
        Err(KvError::Invalid("this store keeps no files".to_owned()))
    }

    /// Syncs everything, marks the store as cleanly closed and releases it. Later calls fail with
    /// [`KvError::Closed`]; closing twice is no error.
    fn close(&self) -> Result<(), KvError>;
}
