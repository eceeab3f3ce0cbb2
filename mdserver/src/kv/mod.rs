//! The durable key-value core of the metadata service.
//!
//! All metadata is in one ordered map from bytes to bytes, which atomic [`Batch`]es change. [`MetaKv`] is the trait;
//! [`LocalKv`] stores the map in a directory, `MemoryKv` in memory for tests. Both run the suite in `conformance`.
//!
//! Invariant of [`LocalKv`]: **the checkpoint and the journal are authoritative; the sled index is derived from them.**
//! The code calls these two together *the truth*. A commit writes one frame to the journal (`journal`) and is then
//! visible in the memtable (`memtable`). A background thread (`upkeep`) moves the memtable into sled (`index`) and
//! writes checkpoints (`checkpoint`), full dumps after which old journal files are removed. A second thread syncs the
//! journal. At start (`start`) checkpoint and journal are read and *every* entry of the index is compared with them. No
//! key is lost, therefore, if sled is behind, ahead, damaged or missing.
//!
//! Data derived from a table (the index of tags) uses two hooks: [`MetaKv::changed_since`] returns at start the keys
//! that the journal changed, and [`MetaKv::before_checkpoint`] calls back before that journal is removed.
//!
//! `docs/formats/journal.md` specifies the files to the byte.
//!
//! Deliberately elsewhere: the meaning of keys and values (the service's tables), and transactions that read before
//! they write (the service holds its own locks).

mod base;
mod batch;
mod before;
mod blocks;
mod cache;
mod checkpoint;
#[cfg(any(test, feature = "fuzzing", feature = "conformance"))]
pub mod conformance;
mod direct;
mod disk;
mod engine;
mod entries;
mod error;
mod filter;
mod frame;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod housekeeping;
mod index;
mod journal;
mod key;
mod load;
mod local;
mod memtable;
mod pages;
mod pairs;
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
#[cfg(any(test, feature = "fuzzing", feature = "conformance"))]
pub use conformance::MemoryKv;
pub use error::{Damage, KvError};
pub use key::Key;
pub use load::Source;
pub use local::{KvOptions, LocalKv};
pub(crate) use pairs::pairs;
pub use recovery::Recovery;

use std::fmt;
use std::fs::File;
use std::time::Duration;

/// A key with its value.
pub type Pair = (Vec<u8>, Vec<u8>);

/// All pairs of a store at one commit, in a file.
#[derive(Debug)]
pub struct Snapshot {
    /// The checkpoint.
    pub file: File,
    /// Its length.
    pub bytes: u64,
    /// The last commit in it.
    pub last: Lsn,
}

/// A callback that runs before a checkpoint; see [`MetaKv::before_checkpoint`].
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
    /// Returns the value of `key`, with all returned commits applied.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// Returns at most `limit` pairs with `from <= key < to`, ascending: a consistent snapshot at one moment during the
    /// call.
    fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<Pair>, KvError>;

    /// Applies `batch` atomically. On return the record is written to the journal, so that it survives a crash of this
    /// process but not yet a power loss, and every reader sees it.
    fn commit(&self, batch: Batch) -> Result<Lsn, KvError>;

    /// Blocks as [`MetaKv::commit`] does while the index or the checkpoints are far behind, and fails if they cannot
    /// catch up. A caller that commits under a lock that the [`MetaKv::before_checkpoint`] callback also takes calls
    /// this before it takes the lock.
    fn wait_for_room(&self) -> Result<(), KvError> {
        Ok(())
    }

    /// Syncs all commits that have returned, and returns the last synced number. Concurrent callers share one
    /// `fdatasync`.
    fn sync(&self) -> Result<Lsn, KvError>;

    /// The last commit known to be on disk.
    fn synced(&self) -> Lsn;

    /// Called before a reply leaves that may tell of a commit. A store whose journal another service may continue blocks
    /// here until all commits that have returned are in it, and fails if this service may not answer any more.
    fn before_reply(&self) -> Result<(), KvError> {
        Ok(())
    }

    /// Blocks until a sync has failed, after which the store refuses every commit until it is opened again, and returns
    /// the error; `None` once the store is closed.
    fn wait_for_sync_failure(&self) -> Option<KvError> {
        None
    }

    /// Writes a full dump now and removes the journal that it supersedes.
    fn checkpoint(&self) -> Result<(), KvError>;

    /// The unique id of this store, which never changes. Files derived from a store record it.
    fn identity(&self) -> [u8; 16] {
        [0; 16]
    }

    /// Returns the keys that begin with `table` and that commits after `after` changed before this store was opened,
    /// ascending. Returns `None` if that is unknown: `after` is before the checkpoint, or [`MetaKv::forget_changes`]
    /// was called. Commits since the store was opened are not included.
    ///
    /// For data derived from a table and stored in files of its own: at start it catches up on the commits it missed.
    fn changed_since(&self, table: u8, after: Lsn) -> Option<Vec<Vec<u8>>> {
        let _ = (table, after);
        None
    }

    /// Frees the memory [`MetaKv::changed_since`] needs.
    fn forget_changes(&self) {}

    /// Registers `work`, which is called before each checkpoint is written, with the last commit the checkpoint will
    /// contain. After the checkpoint [`MetaKv::changed_since`] does not report commits up to that one, so data derived
    /// from them must be on disk when `work` returns.
    ///
    /// `work` runs on the thread that commits may be waiting for, so it must not wait for a lock that is held during
    /// a commit.
    fn before_checkpoint(&self, work: BeforeCheckpoint) {
        drop(work);
    }

    /// Requests a file with all pairs at one commit, no earlier than now; the returned number is for
    /// [`MetaKv::snapshot`]. Commits continue meanwhile.
    fn ask_snapshot(&self) -> Result<u64, KvError> {
        Err(KvError::Invalid("this store keeps no files".to_owned()))
    }

    /// Returns the requested file, a checkpoint, open for reading; `None` if it takes longer than `patience`. It stays
    /// readable as long as it is open.
    fn snapshot(&self, number: u64, patience: Duration) -> Result<Option<Snapshot>, KvError> {
        let _ = (number, patience);
        Err(KvError::Invalid("this store keeps no files".to_owned()))
    }

    /// The state of the engine under the store, as names and values for people; empty for a directory of this service. May take
    /// a second.
    fn engine(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Syncs everything, marks the store as cleanly closed and releases it. Later calls fail with
    /// [`KvError::Closed`]; closing twice is no error.
    fn close(&self) -> Result<(), KvError>;
}
