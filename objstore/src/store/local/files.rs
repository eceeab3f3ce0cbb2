//! The files of large chunks that are open: kept, because opening costs more than a small read, up
//! to a limit; what was used longest ago goes first.
//!
//! A file is open once at most: its sums live in memory. So only what nobody else holds is closed.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::Mutex;

use super::directory::Directory;
use super::file::FileChunk;
use super::file::head::Head;
use super::removals::{Removals, Watch};
use super::roll::Roll;
use super::shared::Shared;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

/// For how long descriptors are waited for, and how long at first.
const LONGEST_SHORTAGE: std::time::Duration = std::time::Duration::from_secs(1);
const FIRST_SHORTAGE: std::time::Duration = std::time::Duration::from_millis(5);

/// More files than this to sync at once, and the whole filesystem is synced instead.
const SYNC_EACH: usize = 128;

#[derive(Debug)]
struct Entry {
    chunk: Arc<FileChunk>,
    used: u64,
}

#[derive(Debug, Default)]
struct Open {
    entries: HashMap<ChunkName, Entry>,
    clock: u64,
}

/// All open files.
#[derive(Debug)]
pub(super) struct Files {
    shared: Arc<Shared>,
    directory: Arc<Directory>,
    open: Mutex<Open>,
    limit: usize,
    /// Chunks of which something may not be on disk, open or not.
    unsynced: Mutex<HashSet<ChunkName>>,
    /// Tells syncs what was removed while they went on.
    removals: Removals,
    /// The grid chunks that have files.
    pub(super) roll: Roll,
}

impl Files {
    pub(super) fn new(
        directory: Arc<Directory>,
        shared: Arc<Shared>,
        roll: Roll,
        limit: Option<usize>,
    ) -> Self {
        let limit = limit
            .unwrap_or_else(|| (raise_file_limit() / 4).clamp(16, 4096))
            .max(1);
        Self {
            shared,
            directory,
            open: Mutex::default(),
            limit,
            unsynced: Mutex::default(),
            removals: Removals::default(),
            roll,
        }
    }

    /// The open file of a chunk that has one.
    pub(super) fn get(&self, name: &ChunkName) -> Result<Arc<FileChunk>> {
        self.with_descriptors(|| self.open_one(name))
    }

    /// Does what opens a file. Where no descriptors are left those of chunks that nobody uses are given back, and others are
    /// waited for a while; not under the lock.
    fn with_descriptors<T>(&self, open: impl Fn() -> Result<T>) -> Result<T> {
        let until = std::time::Instant::now() + LONGEST_SHORTAGE;
        let mut pause = FIRST_SHORTAGE;
        loop {
            match open() {
                Err(StoreError::Unavailable { .. }) if std::time::Instant::now() < until => {
                    self.close_idle(&mut self.open.lock());
                    std::thread::sleep(pause);
                    pause *= 2;
                }
                done => return done,
            }
        }
    }

    fn open_one(&self, name: &ChunkName) -> Result<Arc<FileChunk>> {
        let mut open = self.open.lock();
        open.clock += 1;
        let used = open.clock;
        if let Some(entry) = open.entries.get_mut(name) {
            entry.used = used;
            return Ok(Arc::clone(&entry.chunk));
        }
        let chunk = Arc::new(FileChunk::open(
            &self.directory.chunk_path(name),
            name,
            &self.shared,
        )?);
        if self.unsynced.lock().contains(name) {
            chunk.note_unsynced();
        }
        open.entries.insert(
            name.clone(),
            Entry {
                chunk: Arc::clone(&chunk),
                used,
            },
        );
        self.evict(&mut open);
        Ok(chunk)
    }

    /// Makes the file of a new chunk. It is not open to others before [`Self::adopt`].
    pub(super) fn create(&self, path: &Path, head: Head) -> Result<FileChunk> {
        self.with_descriptors(|| self.create_one(path, head.clone()))
    }

    fn create_one(&self, path: &Path, head: Head) -> Result<FileChunk> {
        let made = match FileChunk::create(path, head.clone(), &self.shared) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                self.directory.make_parents(path)?;
                FileChunk::create(path, head, &self.shared)
            }
            other => other,
        };
        self.directory.note_change(path);
        made.map_err(|e| StoreError::from_io("create", path, &e))
    }

    /// Takes a new file among the open ones, in place of the one of that name.
    pub(super) fn adopt(&self, chunk: FileChunk) -> Arc<FileChunk> {
        let name = chunk.name.clone();
        self.note_unsynced(&name);
        let chunk = Arc::new(chunk);
        let mut open = self.open.lock();
        open.clock += 1;
        let entry = Entry {
            chunk: Arc::clone(&chunk),
            used: open.clock,
        };
        open.entries.insert(name, entry);
        self.evict(&mut open);
        chunk
    }

    /// Removes the file of a chunk.
    pub(super) fn remove(&self, name: &ChunkName) -> Result<()> {
        self.removals.note(name);
        self.open.lock().entries.remove(name);
        self.unsynced.lock().remove(name);
        self.roll.forget(name);
        self.unlink(&self.directory.chunk_path(name))
    }

    /// Removes a file by its path; one that is gone is fine.
    pub(super) fn unlink(&self, path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Ok(()) => self.directory.note_change(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(StoreError::from_io("remove", path, &e)),
        }
        Ok(())
    }

    /// Notes that something of the chunk may not be on disk.
    pub(super) fn note_unsynced(&self, name: &ChunkName) {
        let mut unsynced = self.unsynced.lock();
        if !unsynced.contains(name) {
            unsynced.insert(name.clone());
        }
    }

    /// Returns when these chunks, or all, are on disk, but for those that are removed meanwhile.
    pub(super) fn sync(&self, names: Option<&[&ChunkName]>) -> Result<()> {
        let watch = self.removals.watch();
        let due: Vec<ChunkName> = {
            let unsynced = self.unsynced.lock();
            match names {
                None => unsynced.iter().cloned().collect(),
                Some(names) => names
                    .iter()
                    .filter(|name| unsynced.contains(**name))
                    .map(|name| (*name).clone())
                    .collect(),
            }
        };
        if due.len() > SYNC_EACH && self.shared.durable {
            self.sync_together(&due, &watch)?;
        } else {
            self.sync_each(&due, &watch)?;
        }
        match names {
            None => {
                self.directory_sync(&[], true)?;
                self.roll.sync()?;
            }
            Some(names) => {
                let paths = names.iter().map(|name| self.directory.chunk_path(name));
                self.directory_sync(&paths.collect::<Vec<_>>(), false)?;
            }
        }
        self.roll.note(&due, |name| !watch.saw(name));
        Ok(())
    }

    fn sync_each(&self, due: &[ChunkName], watch: &Watch<'_>) -> Result<()> {
        for name in due {
            let synced = self.get(name).and_then(|chunk| {
                chunk.sync()?;
                self.note_synced(&chunk, watch);
                Ok(())
            });
            unless_removed(synced, name, watch)?;
        }
        Ok(())
    }

    fn directory_sync(&self, paths: &[std::path::PathBuf], all: bool) -> Result<()> {
        self.directory
            .sync(&self.shared, paths.iter().map(|path| path.as_path()), all)
    }

    /// Syncs the filesystem once, instead of many files one by one.
    fn sync_together(&self, due: &[ChunkName], watch: &Watch<'_>) -> Result<()> {
        for name in due {
            let begun = self.get(name).and_then(|chunk| chunk.start_sync());
            unless_removed(begun, name, watch)?;
        }
        let path = self.directory.path();
        let synced =
            fs::File::open(path).and_then(|dir| nix::unistd::syncfs(&dir).map_err(io::Error::from));
        synced.map_err(|e| StoreError::from_io("sync", path, &e))?;
        // Each still has its own sync, which finds nothing left to write and reports what went wrong.
        self.sync_each(due, watch)
    }

    fn note_synced(&self, chunk: &FileChunk, watch: &Watch<'_>) {
        let mut unsynced = self.unsynced.lock();
        // After a removal the name may be that of another file.
        if !chunk.is_unsynced() && !watch.saw(&chunk.name) {
            unsynced.remove(&chunk.name);
        }
    }

    /// Closes what was used longest ago and is in nobody's hands.
    fn evict(&self, open: &mut Open) {
        if open.entries.len() > self.limit {
            self.close_idle(open);
        }
    }

    /// Closes an eighth of what may be open.
    fn close_idle(&self, open: &mut Open) {
        if open.entries.is_empty() {
            return;
        }
        let mut ages: Vec<u64> = open.entries.values().map(|entry| entry.used).collect();
        let going = (self.limit / 8).clamp(1, ages.len());
        let (_, &mut newest, _) = ages.select_nth_unstable(going - 1);
        open.entries.retain(|_, entry| {
            if entry.used > newest || Arc::strong_count(&entry.chunk) > 1 {
                return true;
            }
            match entry.chunk.settle() {
                Ok(()) => entry.chunk.is_poisoned(),
                Err(error) => {
                    tracing::error!("{}: stays open: {error}", entry.chunk.path.display());
                    true
                }
            }
        });
    }

    /// Leaves all open files in order.
    pub(super) fn settle_all(&self) -> Result<()> {
        let open = self.open.lock();
        open.entries
            .values()
            .try_for_each(|entry| entry.chunk.settle())
    }
}

/// What cannot be synced because it was removed need not be.
fn unless_removed(synced: Result<()>, name: &ChunkName, watch: &Watch<'_>) -> Result<()> {
    match synced {
        Err(_) if watch.saw(name) => Ok(()),
        other => other,
    }
}

/// Raises this process's limit of open files as far as it may, and says what it is.
pub(super) fn raise_file_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 256;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return hard as usize;
    }
    soft as usize
}
