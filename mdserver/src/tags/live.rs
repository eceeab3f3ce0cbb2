//! The index of tags in a running service, and what keeps it complete.
//!
//! The index is derived: the rows of attributes are authoritative. It may have an obsolete entry of a removed tag
//! (every hit is verified), but **no tag lacks its entries**. Therefore a transaction inserts new entries before its
//! batch is written to the store, and removes old ones after that, so that the index is complete up to the last
//! commit at any moment. Further entries belong to inodes of which the index missed changes, and these inodes are
//! known; for all others its entries are valid without verification.
//!
//! On disk it is complete up to the commit that it names. It is written at least before each checkpoint, since the
//! journal after the checkpoint shows at start which rows the index has missed. If it is damaged, missing, or too
//! old, it is rebuilt from the rows.

use parking_lot::RwLock;
use slabfs_model::Tag;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_128;

use super::catchup::{BATCH, Trouble, each_row, existing};
use super::entry::entries;
use super::index::{Index, IndexError, IndexOptions, Iter, Loader};
use super::rows::{Changed, ChangedOne, tag_name};
use crate::api::{Ino, MdError};
use crate::keys;
use crate::kv::{KvError, Lsn, MetaKv};

/// Identifies what is indexed and how entries are made: to be changed with [`super::entry`]. v2: all trigrams of
/// repetitive texts. v3: infinities are numbers. v4: windows of eight bytes, not of three.
const ENTRIES: [u8; 16] = *b"slabfs tags v4\0\0";
/// How long one round of upkeep merges.
const UPKEEP: Duration = Duration::from_secs(1);

/// The index, and how far it can be trusted.
pub(crate) struct Live {
    index: Index,
    /// Its directory; `None` if it is not stored.
    dir: Option<PathBuf>,
    /// It is damaged and has to be rebuilt before any search.
    broken: AtomicBool,
    /// Inodes of which it may have obsolete entries, because it missed changes of them.
    suspects: HashSet<Ino>,
    /// Any inode may have obsolete entries.
    loose: AtomicBool,
    /// The part that a checkpoint needs is not on disk yet.
    behind: AtomicBool,
    /// It was written to disk for the last time.
    closed: AtomicBool,
    /// Held shared by changes of tags, and exclusively while the index is sealed: so exactly the changes of completed
    /// commits are sealed.
    gate: RwLock<()>,
}

/// How long sealing waits for changes of tags. One of them may be waiting for the very checkpoint that the index is
/// sealed for.
const GATE: Duration = Duration::from_millis(50);

impl From<IndexError> for MdError {
    fn from(error: IndexError) -> Self {
        Self::Io(error.to_string())
    }
}

/// Entries that a transaction adds and removes.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    adds: Vec<Vec<u8>>,
    removes: Vec<Vec<u8>>,
}

impl Entries {
    /// Adds the entries for changed attributes of an inode.
    pub(crate) fn note(&mut self, ino: Ino, changed: &Changed) {
        let side = |of: fn(&ChangedOne) -> Option<&Tag>| {
            let tags = changed.iter().filter_map(|change| {
                let name = tag_name(&change.0)?;
                Some((name.to_owned(), of(change)?.clone()))
            });
            entries(ino, &tags.collect::<Vec<_>>())
        };
        let before = side(|(_, before, _)| before.as_ref());
        let after = side(|(_, _, after)| after.as_ref());
        difference(&before, &after, &mut self.removes);
        difference(&after, &before, &mut self.adds);
    }

    /// Removes the entries of a tag whose inode is deleted.
    pub(crate) fn gone(&mut self, ino: Ino, name: &str, tag: Tag) {
        self.removes.extend(entries(ino, &[(name, tag)]));
    }

    /// Whether there are no changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.adds.is_empty() && self.removes.is_empty()
    }
}

/// The members of `these` that are not in `those`, both ascending.
fn difference(these: &[Vec<u8>], those: &[Vec<u8>], into: &mut Vec<Vec<u8>>) {
    let mut those = those.iter().peekable();
    for entry in these {
        while those.next_if(|other| *other < entry).is_some() {}
        if those.peek() != Some(&entry) {
            into.push(entry.clone());
        }
    }
}

impl Live {
    /// Opens the index in `dir` and brings it up to date with the store, whose last commit is `last`; `lossy` if the
    /// store lost commits, so that the index may contain commits that the store does not. Caches up to `cache` bytes.
    pub(crate) fn open(
        dir: &Path,
        kv: &dyn MetaKv,
        (last, lossy): (Lsn, bool),
        cache: u64,
    ) -> Result<Self, MdError> {
        let options = options(kv, cache);
        let (index, suspects, why) = match existing(dir, options.clone(), kv, (last, lossy)) {
            Ok((index, Ok(suspects))) => (index, suspects, None),
            Ok((index, Err(why))) => (index, HashSet::new(), Some(why.to_owned())),
            Err(Trouble::Index(error)) if error.needs_rebuild() => {
                let why = error.to_string();
                (Index::reset(dir, options)?, HashSet::new(), Some(why))
            }
            Err(Trouble::Index(error)) => return Err(error.into()),
            Err(Trouble::Store(error)) => return Err(error),
        };
        kv.forget_changes();
        let live = Self::of(index, Some(dir), suspects);
        if let Some(why) = why {
            live.build(kv, last, &why)?;
        }
        Ok(live)
    }

    /// An index that is not stored, built from the store.
    pub(crate) fn in_memory(kv: &dyn MetaKv) -> Result<Self, MdError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("slabfs-tags-{process}-{number}");
        let dir = std::env::temp_dir().join(name);
        let index = Index::reset(&dir, options(kv, 128 << 20))?;
        // The index writes nothing to it.
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::debug!(dir = %dir.display(), %error, "an empty directory is left");
        }
        let mut batch = Vec::new();
        each_row(kv, |_, entries| {
            batch.extend(entries);
            if batch.len() >= BATCH {
                index.apply::<Vec<u8>, Vec<u8>>(&batch, &[])?;
                batch.clear();
            }
            Ok(())
        })?;
        index.apply::<Vec<u8>, Vec<u8>>(&batch, &[])?;
        Ok(Self::of(index, None, HashSet::new()))
    }

    fn of(index: Index, dir: Option<&Path>, suspects: HashSet<Ino>) -> Self {
        Self {
            index,
            dir: dir.map(Path::to_owned),
            broken: AtomicBool::new(false),
            suspects,
            loose: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            gate: RwLock::new(()),
        }
    }

    /// Rebuilds it from the rows; complete up to `lsn`. Changes that are applied meanwhile stay.
    fn build(&self, kv: &dyn MetaKv, lsn: Lsn, why: &str) -> Result<(), MdError> {
        let began = Instant::now();
        let mut inodes = 0u64;
        self.index.rebuild(lsn, |loader: &mut Loader<'_>| {
            each_row(kv, |first, entries| {
                inodes += u64::from(first);
                for entry in &entries {
                    loader.push(entry)?;
                }
                Ok(())
            })
        })?;
        self.broken.store(false, Ordering::Release);
        if inodes > 0 {
            let seconds = began.elapsed().as_secs_f32();
            tracing::warn!(
                "the index of tags was rebuilt ({why}): {inodes} objects and containers in \
                 {seconds:.1} s"
            );
        }
        Ok(())
    }

    /// Calls `commit`, and changes the index around it: additions before it, removals after it.
    pub(crate) fn around(
        &self,
        kv: &dyn MetaKv,
        entries: &Entries,
        commit: impl FnOnce() -> Result<Lsn, KvError>,
    ) -> Result<Lsn, MdError> {
        if entries.is_empty() {
            return Ok(commit()?);
        }
        self.keep_up(kv);
        // A commit that waits while it holds the gate would block the thread that makes room.
        kv.wait_for_room()?;
        let _gate = self.gate.read();
        if !entries.adds.is_empty() {
            self.index.apply::<_, Vec<u8>>(&entries.adds, &[])?;
        }
        let done = commit();
        let gone = match done {
            Ok(_) => &entries.removes,
            Err(_) => &entries.adds,
        };
        self.remove(gone);
        Ok(done?)
    }

    /// Writes the changes in memory if the background thread has fallen behind, so that memory is bounded however
    /// busy the machine is. A failed write can be repeated later.
    fn keep_up(&self, kv: &dyn MetaKv) {
        if self.dir.is_none() || !self.index.needs_persist() {
            return;
        }
        let written = kv
            .sync()
            .map_err(MdError::from)
            .and_then(|lsn| self.persist(kv, lsn));
        if let Err(error) = written {
            tracing::debug!(%error, "changes of the index of tags stay in memory");
        }
    }

    /// Whether the index has no obsolete entry of an inode.
    pub(crate) fn is_exact(&self, ino: Ino) -> bool {
        !self.loose.load(Ordering::Acquire) && !self.suspects.contains(&ino)
    }

    fn remove(&self, removes: &[Vec<u8>]) {
        if removes.is_empty() {
            return;
        }
        if let Err(error) = self.index.apply::<Vec<u8>, _>(&[], removes) {
            self.loose.store(true, Ordering::Release);
            tracing::debug!(%error, "entries of removed tags stay in the index");
        }
    }

    /// The entries of a range.
    pub(crate) fn iter(&self, from: &[u8], to: &[u8]) -> Result<Iter, MdError> {
        if self.broken.load(Ordering::Acquire) {
            return Err(broken());
        }
        self.index
            .iter(from, Some(to))
            .map_err(|error| self.failed(error))
    }

    /// Whether the index has this entry.
    pub(crate) fn has(&self, entry: &[u8]) -> Result<bool, MdError> {
        let mut found = self.iter(entry, &keys::after(entry))?;
        let first = found.next().map_err(|error| self.failed(error))?;
        Ok(first.is_some())
    }

    /// Processes an error of the index.
    pub(crate) fn failed(&self, error: IndexError) -> MdError {
        if !error.needs_rebuild() {
            return error.into();
        }
        if !self.broken.swap(true, Ordering::AcqRel) {
            tracing::error!("{error}; searches fail until it is rebuilt");
        }
        broken()
    }

    /// About how many entries lie in a range.
    pub(crate) fn estimate(&self, from: &[u8], to: &[u8]) -> u64 {
        self.index.estimate(from, Some(to))
    }

    /// Whether there are so many changes in memory that they should be written soon.
    pub(crate) fn wants_persist(&self) -> bool {
        self.dir.is_some() && (self.index.wants_persist() || self.behind.load(Ordering::Acquire))
    }

    /// Writes the index to disk, complete up to at least `lsn`, which is in the store.
    pub(crate) fn persist(&self, kv: &dyn MetaKv, lsn: Lsn) -> Result<(), MdError> {
        if self.dir.is_none()
            || self.broken.load(Ordering::Acquire)
            || self.closed.load(Ordering::Acquire)
        {
            return Ok(());
        }
        self.behind.store(true, Ordering::Release);
        let Some(gate) = self.gate.try_write_for(GATE) else {
            return Err(MdError::Busy);
        };
        self.index.seal(lsn);
        drop(gate);
        // Changes of commits after `lsn` may be sealed too. These commits have to be as durable as the index.
        kv.sync()?;
        self.index.persist().map_err(|error| self.failed(error))?;
        self.behind.store(false, Ordering::Release);
        Ok(())
    }

    /// Work of the background thread: rebuilds a damaged index, writes, merges.
    pub(crate) fn upkeep(&self, kv: &dyn MetaKv) -> Result<(), MdError> {
        if self.dir.is_none() {
            return Ok(());
        }
        if self.broken.load(Ordering::Acquire) {
            let lsn = kv.sync()?;
            self.build(kv, lsn, "it was damaged")?;
        }
        // The thread has other work: the rest of a long merge waits for the next round.
        let began = Instant::now();
        loop {
            if self.wants_persist() {
                let lsn = kv.sync()?;
                match self.persist(kv, lsn) {
                    // Changes of tags are blocked on something: retry soon.
                    Err(MdError::Busy) => return Ok(()),
                    other => other?,
                }
            }
            let more = self.index.merge().map_err(|error| self.failed(error))?;
            if !more || began.elapsed() >= UPKEEP {
                return Ok(());
            }
        }
    }

    /// At the end: writes everything to disk.
    pub(crate) fn close(&self, kv: &dyn MetaKv) -> Result<(), MdError> {
        if self.dir.is_none() {
            return Ok(());
        }
        let lsn = kv.sync()?;
        self.persist(kv, lsn)?;
        // The store may write one more checkpoint while it closes: the index already has all of that.
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

/// An index belongs to one store: with another store's rows it would return wrong results.
fn options(kv: &dyn MetaKv, cache: u64) -> IndexOptions {
    let named = [ENTRIES, kv.identity()].concat();
    IndexOptions {
        identity: xxh3_128(&named).to_le_bytes(),
        cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
        ..IndexOptions::default()
    }
}

fn broken() -> MdError {
    MdError::Io("the index of tags is damaged and being rebuilt; try again later".to_owned())
}
