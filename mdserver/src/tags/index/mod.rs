//! An ordered set of byte strings for tens of millions of entries: the index of tags on disk.
//!
//! **Derived**: what is lost here is made again from the tags; nothing here is ever the only copy.
//!
//! Changes go to a table in memory (`memtable`). [`Index::seal`] closes the table, and says which
//! commit this moment is; [`Index::persist`] writes closed tables to a file that never changes again,
//! a *run* (`run`, `write`): sorted leaves (`leaf`) of entries without what they share, and a
//! directory of what separates them, which is all that stays in memory. A small file (`manifest`)
//! names the runs and the commit, and is replaced by a rename. Runs that grew alike are merged into
//! one (`upkeep`), so that there are few, and an entry is rewritten a dozen times on its way from
//! thousands to tens of millions and not at every change of a neighbour.
//!
//! What holds:
//! - A reader ([`Iter`]) sees all batches that were applied before it began and none after, and waits
//!   for nobody: tables give their lock back within microseconds, everything else does not change.
//! - [`Index::apply`] is seen as a whole or not at all, and never waits for a file.
//! - After a crash the index is what the last finished `persist` wrote. Every byte on disk is under a
//!   checksum: damage is an error, never a wrong answer.
//! - In memory lie the directory (some 50 bytes for 8 KiB of leaves), leaves within the cache's
//!   budget, and changes since the last persist; [`Index::wants_persist`] says when these are many.
//!
//! Deliberately elsewhere: what entries mean, when to persist (the owner's upkeep thread), and the
//! rebuild's reading of the tags. `docs/formats/tag-index.md` draws the bytes,
//! `docs/decisions/tag-index.md` says why it is so.

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
    /// Bytes of leaves kept in memory.
    pub cache_bytes: usize,
    /// Bytes of changes in memory above which [`Index::wants_persist`] asks for a persist.
    pub dirty_bytes: usize,
    /// Bytes of entries that a rebuild sorts at a time.
    pub load_bytes: usize,
    /// Bytes at which a leaf is full.
    pub leaf_bytes: usize,
    /// Entries that one [`Index::merge`] merges at most.
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

/// An ordered set of byte strings, the empty one left out. See the module's page.
#[derive(Debug)]
pub struct Index {
    dir: PathBuf,
    options: IndexOptions,
    cache: Arc<Cache>,
    /// Held for a look or an exchange.
    view: RwLock<Arc<View>>,
    /// The last batch that readers see.
    visible: AtomicU64,
    /// One writer at a time; the commit that the sealed tables reach to.
    writer: Mutex<Lsn>,
    /// One persist, merge or rebuild at a time.
    upkeep: Mutex<Published>,
}

/// What the manifest says of the index beside its runs, and what is on its way there.
#[derive(Debug)]
struct Published {
    lsn: Lsn,
    next: u64,
    /// A merge under way.
    merging: Option<Merging>,
}

impl Index {
    /// Opens the index in `dir`, or begins an empty one there, and says up to which commit it is
    /// complete: [`Lsn`] zero for an empty one. An error that [`IndexError::needs_rebuild`] leaves
    /// [`Self::reset`].
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

    /// Begins an empty index in `dir`, in place of whatever index lies there.
    pub fn reset(dir: &Path, options: IndexOptions) -> Result<Self, IndexError> {
        fs::create_dir_all(dir).map_err(|error| IndexError::io("create", dir, &error))?;
        manifest::clean(dir, None)?;
        Self::open(dir, options).map(|(index, _)| index)
    }

    /// Takes `removes` out and puts `adds` in, both or none of it seen by any reader; an entry in both
    /// is there afterwards. Adding what is there and removing what is not is no error. Nothing is
    /// changed when an entry is too long.
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

    /// The entries `from <= entry`, and `entry < to` when there is a `to`, as of now.
    pub fn iter(&self, from: &[u8], to: Option<&[u8]>) -> Result<Iter, IndexError> {
        let (view, batch) = self.now();
        view.iter(batch, from, to)
    }

    /// About how many entries lie in a range, for choosing where to begin; as cheap as a new iterator.
    /// Never zero unless the range is empty or the index is; changes that are not yet persisted are
    /// counted up to a few hundred; a leaf that cannot be read counts for many.
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

    /// The parts of this moment, and the last batch to be seen in them. The parts come first: tables
    /// of a later moment could lack what an earlier batch number promises.
    fn now(&self) -> (Arc<View>, u64) {
        let view = Arc::clone(&self.view.read());
        let batch = self.visible.load(Ordering::Acquire);
        (view, batch)
    }

    /// Entries held, at most: what is in several runs, or is gone and not yet merged, counts too.
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

    /// Whether nothing is held.
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
