//! The index of tags in a running service: what keeps it complete.
//!
//! The index is derived: the rows of attributes are the truth. An entry may be left in it of a tag that
//! is gone (every hit is verified), but **no tag is without its entries**. Therefore a transaction puts
//! new entries in before its batch goes to the store, and takes old ones out after; so at any moment
//! the index is complete up to the last commit, and [`Live::persist`] needs no lock to say so.
//!
//! On disk it is complete up to the commit it names. That is brought up at least before each
//! checkpoint, as the journal behind the checkpoint is what tells at start which rows the index has
//! missed. Is it damaged, gone, or too old, it is built anew from the rows.

use slabfs_model::{ObjectId, Tag};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::entry::entries;
use super::index::{Index, IndexError, IndexOptions, Iter, Loader};
use super::rows::{self, Changed, ChangedOne, tag_name};
use crate::api::{Ino, MdError};
use crate::keys;
use crate::kv::{Lsn, MetaKv};

/// What is indexed and how entries are made: to be changed with [`super::entry`].
const IDENTITY: [u8; 16] = *b"slabfs tags v1\0\0";
/// How long one round of upkeep merges.
const UPKEEP: Duration = Duration::from_secs(1);
/// Rows read from the store at a time.
const PAGE: usize = 512;
/// Entries put into the index at a time when it is brought up.
const BATCH: usize = 16 << 10;

/// The index, and how far it can be trusted.
pub(crate) struct Live {
    index: Index,
    /// Where it lies; `None` if it is kept nowhere.
    dir: Option<PathBuf>,
    /// It is damaged and has to be built anew before anybody asks it.
    broken: AtomicBool,
}

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
    pub(crate) fn open(
        dir: &Path,
        kv: &dyn MetaKv,
        last: Lsn,
        lossy: bool,
    ) -> Result<Self, MdError> {
        let (index, why) = match Index::open(dir, options()) {
            Ok((index, lsn)) => {
                let missed = if lossy || lsn > last {
                    None
                } else {
                    kv.changed_since(b'x', lsn)
                };
                match missed {
                    Some(missed) => {
                        catch_up(&index, lsn, kv, &missed)?;
                        (index, None)
                    }
                    None if lsn == Lsn(0) => (index, Some("there was none".to_owned())),
                    None => (
                        index,
                        Some("the journal does not tell what it missed".to_owned()),
                    ),
                }
            }
            Err(error) if error.needs_rebuild() => {
                (Index::reset(dir, options())?, Some(error.to_string()))
            }
            Err(error) => return Err(error.into()),
        };
        kv.forget_changes();
        let live = Self {
            index,
            dir: Some(dir.to_owned()),
            broken: AtomicBool::new(false),
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
        let index = Index::reset(&dir, options())?;
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

    /// Before the batch goes to the store: what it adds.
    pub(crate) fn before(&self, entries: &Entries) -> Result<(), MdError> {
        if entries.adds.is_empty() {
            return Ok(());
        }
        Ok(self.index.apply::<_, Vec<u8>>(&entries.adds, &[])?)
    }

    /// After it: what it takes away. An error leaves entries that cost time only.
    pub(crate) fn after(&self, entries: &Entries) {
        self.remove(&entries.removes);
    }

    /// The batch did not get into the store.
    pub(crate) fn undo(&self, entries: &Entries) {
        self.remove(&entries.adds);
    }

    fn remove(&self, removes: &[Vec<u8>]) {
        if removes.is_empty() {
            return;
        }
        if let Err(error) = self.index.apply::<Vec<u8>, _>(&[], removes) {
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
        self.dir.is_some() && self.index.wants_persist()
    }

    /// Brings the index to disk, complete up to `lsn` at least, which is in the store.
    pub(crate) fn persist(&self, kv: &dyn MetaKv, lsn: Lsn) -> Result<(), MdError> {
        if self.dir.is_none() || self.broken.load(Ordering::Acquire) {
            return Ok(());
        }
        self.index.seal(lsn);
        // What is sealed may lack entries that commits behind `lsn` took out: should these not survive,
        // the tags would be back and not their entries.
        kv.sync()?;
        self.index.persist().map_err(|error| self.failed(error))?;
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
                self.persist(kv, lsn)?;
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
        self.persist(kv, lsn)
    }
}

fn options() -> IndexOptions {
    IndexOptions {
        identity: IDENTITY,
        ..IndexOptions::default()
    }
}

fn broken() -> MdError {
    MdError::Io("the index of tags is damaged and being built anew; try again later".to_owned())
}

/// Adds the entries of inodes whose rows changed. What they had before stays and is verified away.
fn catch_up(index: &Index, lsn: Lsn, kv: &dyn MetaKv, missed: &[Vec<u8>]) -> Result<(), MdError> {
    let mut batch = Vec::new();
    for key in missed {
        let Some(bytes) = kv.get(key)? else {
            continue;
        };
        batch.extend(entries_of(key, &bytes)?);
        if batch.len() >= BATCH {
            index.apply::<Vec<u8>, Vec<u8>>(&batch, &[])?;
            batch.clear();
            if index.wants_persist() {
                // It has more than it says, which is allowed.
                index.seal(lsn);
                index.persist()?;
            }
        }
    }
    index.apply::<Vec<u8>, Vec<u8>>(&batch, &[])?;
    if !missed.is_empty() {
        let rows = missed.len();
        tracing::info!("the index of tags was brought up: {rows} rows since it was written");
    }
    Ok(())
}

/// Calls `work` for each row of attributes with the entries it makes, and whether it is an inode's
/// first.
pub(crate) fn each_row(
    kv: &dyn MetaKv,
    mut work: impl FnMut(bool, Vec<Vec<u8>>) -> Result<(), MdError>,
) -> Result<(), MdError> {
    let (mut from, to) = keys::all_xattrs();
    let mut last = None;
    loop {
        let page = kv.scan(&from, &to, PAGE)?;
        for (key, bytes) in &page {
            let ino = keys::xattr_of(key).map(|(ino, _)| ino);
            work(ino != last, entries_of(key, bytes)?)?;
            last = ino;
        }
        match page.last() {
            Some((key, _)) if page.len() == PAGE => from = keys::after(key),
            _ => return Ok(()),
        }
    }
}

/// The entries that a row makes.
fn entries_of(key: &[u8], bytes: &[u8]) -> Result<Vec<Vec<u8>>, MdError> {
    let Some((ObjectId(ino), _)) = keys::xattr_of(key) else {
        let key = key.escape_ascii();
        return Err(MdError::Io(format!("unreadable key {key}")));
    };
    let mut tags = Vec::new();
    rows::in_row(key, bytes, |xattr| {
        if let Some(name) = tag_name(xattr.name) {
            tags.push((name.to_owned(), xattr.tag()));
        }
    })?;
    Ok(entries(ObjectId(ino), &tags))
}
