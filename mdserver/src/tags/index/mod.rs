//! The index of tags on disk: an ordered set of byte strings for tens of millions of entries.
//!
//! **Derived**: what is lost here is recreated from the tags; nothing here is ever the only copy.
//!
//! Changes go to a table in memory (`memtable`). [`Index::seal`] closes the table and names the commit of that
//! moment. [`Index::persist`] writes closed tables to a file that never changes again, a *run* (`run`, `write`):
//! sorted leaves (`leaf`) of prefix-compressed entries, and a directory of separators, which is all that stays in
//! memory. A small file (`manifest`) names the runs and the commit, and is replaced by a rename. Runs of similar size
//! are merged into one (`upkeep`), so that there are few, and an entry is rewritten a dozen times on the way from
//! thousands to tens of millions of entries, not at every change next to it.
//!
//! Invariants:
//! - A reader ([`Iter`]) sees all batches that were applied before it began and none after, and is never blocked:
//!   tables release their lock within microseconds, everything else does not change.
//! - [`Index::apply`] is visible completely or not at all, and never waits for a file.
//! - After a crash the index is what the last finished `persist` wrote. Every byte on disk is covered by a checksum:
//!   damage is an error, never a wrong answer.
//! - In memory are the directory (some 50 bytes for 8 KiB of leaves), leaves within the cache's budget, and changes
//!   since the last persist; [`Index::wants_persist`] reports when these are many.
//!
//! Deliberately elsewhere: the meaning of entries, when to persist (the owner's upkeep thread), and the reading of
//! the tags for a rebuild. `docs/formats/tag-index.md` defines the bytes, `docs/decisions/14-tag-index.md` gives the
//! reasons.

mod bytes;
mod cache;
mod error;
mod iter;
mod leaf;
mod load;
mod manifest;
mod memtable;
mod merge;
mod run;
#[cfg(test)]
mod tests;
mod upkeep;
mod write;

pub use error::IndexError;
pub use iter::Iter;
pub use load::Loader;

use crate::kv::Lsn;
use cache::Cache;
use iter::View;
use manifest::Manifest;
use memtable::Memtable;
use parking_lot::{Mutex, RwLock};
use run::Run;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use upkeep::Merging;

/// The longest entry, in bytes.
pub const MAX_ENTRY: usize = 128 << 10;

/// Changes of a table that [`Index::estimate`] counts one by one.
const COUNTED: usize = 256;

/// Settings of an index.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// What is indexed, and how its entries are made: files with another identity are not used.
    pub identity: [u8; 16],
    /// Bytes of cached leaves.
    pub cache_bytes: usize,
    /// Bytes of changes in memory above which [`Index::wants_persist`] asks for a persist.
    pub dirty_bytes: usize,
    /// Bytes of entries that a rebuild sorts at a time.
    pub load_bytes: usize,
    /// Bytes at which a leaf is full.
    pub leaf_bytes: usize,
    /// Most entries that one [`Index::merge`] merges.
    pub merge_step: usize,
}

impl Default for IndexOptions {
    fn default() -> Self {
        Self {
            identity: [0; 16],
            cache_bytes: 128 << 20,
            dirty_bytes: 48 << 20,
            load_bytes: 64 << 20,
            leaf_bytes: 8 << 10,
            merge_step: 1 << 20,
        }
    }
}

/// An ordered set of byte strings, without the empty one. See the module documentation.
#[derive(Debug)]
pub struct Index {
    dir: PathBuf,
    options: IndexOptions,
    cache: Arc<Cache>,
    /// Held for a lookup or an exchange.
    view: RwLock<Arc<View>>,
    /// The last batch visible to readers.
    visible: AtomicU64,
    /// Serialises writers; the commit up to which tables are sealed.
    writer: Mutex<Lsn>,
    /// Serialises persist, merge and rebuild.
    upkeep: Mutex<Published>,
}

/// The content of the manifest except its runs, and a merge under way.
#[derive(Debug)]
struct Published {
    lsn: Lsn,
    next: u64,
    /// A merge under way.
    merging: Option<Merging>,
}

impl Index {
    /// Opens the index in `dir`, or begins an empty one there, and returns the commit up to which it is complete:
    /// [`Lsn`] zero for an empty one. After an error with [`IndexError::needs_rebuild`], use [`Self::reset`].
    pub fn open(dir: &Path, options: IndexOptions) -> Result<(Self, Lsn), IndexError> {
        fs::create_dir_all(dir).map_err(|error| IndexError::io("create", dir, &error))?;
        let cache = Arc::new(Cache::new(options.cache_bytes));
        let manifest = Manifest::read(dir, options.identity)?;
        manifest::clean(dir, manifest.as_ref())?;
        let mut runs = Vec::new();
        for &(number, len) in manifest.iter().flat_map(|manifest| &manifest.runs) {
            let run = Run::open(dir, number, len, Arc::clone(&cache))?;
            runs.push(Arc::new(run));
        }
        let (lsn, next) = manifest.map_or((Lsn(0), 1), |manifest| (manifest.lsn, manifest.next));
        let view = View {
            active: Arc::default(),
            sealed: Vec::new(),
            runs,
        };
        let index = Self {
            dir: dir.to_owned(),
            options,
            cache,
            view: RwLock::new(Arc::new(view)),
            visible: AtomicU64::new(0),
            writer: Mutex::new(lsn),
            upkeep: Mutex::new(Published {
                lsn,
                next,
                merging: None,
            }),
        };
        Ok((index, lsn))
    }

    /// Begins an empty index in `dir`, replacing any index there.
    pub fn reset(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        fs::create_dir_all(dir).map_err(|error| IndexError::io("create", dir, &error))?;
        manifest::clean(dir, None)?;
        Self::open(dir, options).map(|(index, _)| index)
    }

    /// Removes `removes` and adds `adds`; any reader sees both changes or neither. An entry in both exists
    /// afterwards. Adding an existing entry and removing a missing one is no error. Nothing is changed if an entry is
    /// too long.
    pub fn apply<A, R>(&self, adds: &[A], removes: &[R]) -> Result<(), IndexError>
    where
        A: AsRef<[u8]>,
        R: AsRef<[u8]>,
    {
        let adds = adds.iter().map(|add| (add.as_ref(), false));
        let removes = removes.iter().map(|remove| (remove.as_ref(), true));
        let longest = adds
            .clone()
            .chain(removes.clone())
            .map(|(key, _)| key.len())
            .max();
        let Some(len) = longest else {
            return Ok(());
        };
        checked(len)?;
        let writer = self.writer.lock();
        let active = Arc::clone(&self.view.read().active);
        let batch = self.visible.load(Ordering::Relaxed) + 1;
        let nonempty = |(key, _): &(&[u8], bool)| !key.is_empty();
        active.put(&mut removes.chain(adds).filter(nonempty), batch);
        self.visible.store(batch, Ordering::Release);
        drop(writer);
        Ok(())
    }

    /// The entries `from <= entry`, and `entry < to` if there is a `to`, as of now.
    pub fn iter(&self, from: &[u8], to: Option<&[u8]>) -> Result<Iter, IndexError> {
        let (view, batch) = self.now();
        view.iter(batch, from, to)
    }

    /// Estimates the number of entries in a range, for choosing where to begin; as cheap as a new iterator. Never
    /// zero unless the range or the index is empty. Changes that are not yet persisted are counted up to a few
    /// hundred; an unreadable leaf counts as many.
    pub fn estimate(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let (view, _) = self.now();
        let tables = std::iter::once(&view.active).chain(&view.sealed);
        let changes: usize = tables.map(|table| table.count(from, to, COUNTED)).sum();
        let runs = view
            .runs
            .iter()
            .map(|run| run.estimate(from, to).unwrap_or(run.entries()));
        runs.sum::<u64>() + changes as u64
    }

    /// The parts at this moment, and the last batch that is visible in them. The parts are read first: tables of a
    /// later moment could lack batches that an earlier batch number promises.
    fn now(&self) -> (Arc<View>, u64) {
        let view = Arc::clone(&self.view.read());
        let batch = self.visible.load(Ordering::Acquire);
        (view, batch)
    }

    /// Number of entries, at most: entries in several runs, and removed but not yet merged ones, count too.
    pub fn len(&self) -> u64 {
        let (view, _) = self.now();
        let tables = std::iter::once(&view.active).chain(&view.sealed);
        let changes: u64 = tables.map(|table| table.len() as u64).sum();
        changes
            + view
                .runs
                .iter()
                .map(|run| run.entries() - run.gone())
                .sum::<u64>()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        let (view, _) = self.now();
        view.runs.iter().map(|run| run.len()).sum()
    }

    /// Bytes of memory: directories, changes, and cached leaves.
    pub fn memory(&self) -> usize {
        let (view, _) = self.now();
        let directories: usize = view.runs.iter().map(|run| run.memory()).sum();
        directories + dirty(&view) + self.cache.memory()
    }
}

/// Bytes of changes that are in no file.
fn dirty(view: &View) -> usize {
    let tables = std::iter::once(&view.active).chain(&view.sealed);
    tables.map(|table: &Arc<Memtable>| table.memory()).sum()
}

fn checked(len: usize) -> Result<(), IndexError> {
    if len > MAX_ENTRY {
        return Err(IndexError::TooLong {
            len,
            limit: MAX_ENTRY,
        });
    }
    Ok(())
}
