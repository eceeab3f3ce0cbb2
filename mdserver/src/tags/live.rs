//! The index of tags in a running service: what keeps it complete.
//!
//! The index is derived: the rows of attributes are the truth. An entry may be left in it of a tag that
//! is gone (every hit is verified), but **no tag is without its entries**. Therefore a transaction puts
//! new entries in before its batch goes to the store, and takes old ones out after; so at any moment
//! the index is complete up to the last commit. What it has beyond that is of inodes that it missed
//! changes of, and these are known; so of all others its word is good without verification.
//!
//! On disk it is complete up to the commit it names. That is brought up at least before each
//! checkpoint, as the journal behind the checkpoint is what tells at start which rows the index has
//! missed. Is it damaged, gone, or too old, it is built anew from the rows.

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

/// What is indexed and how entries are made: to be changed with [`super::entry`]. v2: all trigrams of
/// texts that repeat themselves. v3: infinities are numbers. v4: windows of eight bytes, not of three.
const ENTRIES: [u8; 16] = *b"slabfs tags v4\0\0";
/// How long one round of upkeep merges.
const UPKEEP: Duration = Duration::from_secs(1);

/// The index, and how far it can be trusted.
pub(crate) struct Live {
    index: Index,
    /// Where it lies; `None` if it is kept nowhere.
    dir: Option<PathBuf>,
    /// It is damaged and has to be built anew before anybody asks it.
    broken: AtomicBool,
    /// Inodes of which it may have entries that are gone: it had missed changes of them.
    suspects: HashSet<Ino>,
    /// Entries that should be gone may be left of any inode.
    loose: AtomicBool,
    /// What a checkpoint needs is not on disk yet.
    behind: AtomicBool,
    /// It was brought to disk for the last time.
    closed: AtomicBool,
    /// Held shared by who changes tags, alone while the index is sealed: so what is sealed is what
    /// commits have done that have returned.
    gate: RwLock<()>,
}

/// How long sealing waits for those who change tags. One of them may be waiting for the very
/// checkpoint that the index is sealed for.
const GATE: Duration = Duration::from_millis(50);

impl From<IndexError> for MdError {
    fn from(error: IndexError) -> Self {
        Self::Io(error.to_string())
    }
}

/// Entries that a transaction adds and takes out.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    adds: Vec<Vec<u8>>,
    removes: Vec<Vec<u8>>,
}

impl Entries {
    /// Notes what changing attributes of an inode means.
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

    /// Notes that a tag goes with its inode.
    pub(crate) fn gone(&mut self, ino: Ino, name: &str, tag: Tag) {
        self.removes.extend(entries(ino, &[(name, tag)]));
    }

    /// Whether there is nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.adds.is_empty() && self.removes.is_empty()
    }
}

/// What of `these` is not in `those`, both ascending.
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
    /// Opens the index in `dir` and brings it up to what the store holds, which ends with commit
    /// `last`; `lossy` when the store lost commits, so that the index may know others than the store.
    /// It keeps up to `cache` bytes of what it read.
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
        let live = Self {
            index,
            dir: Some(dir.to_owned()),
            broken: AtomicBool::new(false),
            suspects,
            loose: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            gate: RwLock::new(()),
        };
        if let Some(why) = why {
            live.build(kv, last, &why)?;
        }
        Ok(live)
    }

    /// An index that is kept nowhere, brought up from the store.
    pub(crate) fn in_memory(kv: &dyn MetaKv) -> Result<Self, MdError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("slabfs-tags-{process}-{number}");
        let dir = std::env::temp_dir().join(name);
        let index = Index::reset(&dir, options(kv, 128 << 20))?;
        // Nothing will be written to it.
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
        Ok(Self {
            index,
            dir: None,
            broken: AtomicBool::new(false),
            suspects: HashSet::new(),
            loose: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            gate: RwLock::new(()),
        })
    }

    /// Builds it anew from the rows; complete up to `lsn`, and what is applied meanwhile stays.
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
                "the index of tags was built anew ({why}): {inodes} objects and containers in \
                 {seconds:.1} s"
            );
        }
        Ok(())
    }

    /// Does `commit` and what it means for the index around it: before it what is added, after it what
    /// is gone.
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
        // A commit that waited with the gate would keep from it who makes room.
        kv.wait_for_room()?;
        let _gate = self.gate.read();
        self.before(entries)?;
        let done = commit();
        let gone = match done {
            Ok(_) => &entries.removes,
            Err(_) => &entries.adds,
        };
        self.remove(gone);
        Ok(done?)
    }

    /// Writes what is in memory when the background thread has fallen behind, so that memory is bounded
    /// however busy the machine is. What cannot be written now can later.
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

    /// Whether the index has no entry of an inode that should be gone, so that what it says is true.
    pub(crate) fn is_exact(&self, ino: Ino) -> bool {
        !self.loose.load(Ordering::Acquire) && !self.suspects.contains(&ino)
    }

    fn before(&self, entries: &Entries) -> Result<(), MdError> {
        if entries.adds.is_empty() {
            return Ok(());
        }
        Ok(self.index.apply::<_, Vec<u8>>(&entries.adds, &[])?)
    }

    fn remove(&self, removes: &[Vec<u8>]) {
        if removes.is_empty() {
            return;
        }
        if let Err(error) = self.index.apply::<Vec<u8>, _>(&[], removes) {
            self.loose.store(true, Ordering::Release);
            tracing::debug!(%error, "entries of tags that are gone stay");
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

    /// Takes note of an error of the index.
    pub(crate) fn failed(&self, error: IndexError) -> MdError {
        if !error.needs_rebuild() {
            return error.into();
        }
        if !self.broken.swap(true, Ordering::AcqRel) {
            tracing::error!("{error}; searches fail until it is built anew");
        }
        broken()
    }

    /// About how many entries lie in a range.
    pub(crate) fn estimate(&self, from: &[u8], to: &[u8]) -> u64 {
        self.index.estimate(from, Some(to))
    }

    /// Whether so much is in memory that it should be written soon.
    pub(crate) fn wants_persist(&self) -> bool {
        self.dir.is_some() && (self.index.wants_persist() || self.behind.load(Ordering::Acquire))
    }

    /// Brings the index to disk, complete up to `lsn` at least, which is in the store.
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
        // Of commits behind `lsn` something may be sealed too. They have to survive as it does.
        kv.sync()?;
        self.index.persist().map_err(|error| self.failed(error))?;
        self.behind.store(false, Ordering::Release);
        Ok(())
    }

    /// What the background thread does: builds a broken index anew, writes, merges.
    pub(crate) fn upkeep(&self, kv: &dyn MetaKv) -> Result<(), MdError> {
        if self.dir.is_none() {
            return Ok(());
        }
        if self.broken.load(Ordering::Acquire) {
            let lsn = kv.sync()?;
            self.build(kv, lsn, "it was damaged")?;
        }
        // The same thread has other things to do: what is left of a long merge waits for the next round.
        let began = Instant::now();
        loop {
            if self.wants_persist() {
                let lsn = kv.sync()?;
                match self.persist(kv, lsn) {
                    // Those who change tags wait for something: soon again.
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

    /// At the end: everything to disk.
    pub(crate) fn close(&self, kv: &dyn MetaKv) -> Result<(), MdError> {
        if self.dir.is_none() {
            return Ok(());
        }
        let lsn = kv.sync()?;
        self.persist(kv, lsn)?;
        // The store may write one more checkpoint while it closes: all of that is here.
        self.closed.store(true, Ordering::Release);
        Ok(())
    }
}

/// An index belongs to one store: beside another's rows it would tell what is not there.
fn options(kv: &dyn MetaKv, cache: u64) -> IndexOptions {
    let named = [ENTRIES, kv.identity()].concat();
    IndexOptions {
        identity: xxh3_128(&named).to_le_bytes(),
        cache_bytes: usize::try_from(cache).unwrap_or(usize::MAX),
        ..IndexOptions::default()
    }
}

fn broken() -> MdError {
    MdError::Io("the index of tags is damaged and being built anew; try again later".to_owned())
}
