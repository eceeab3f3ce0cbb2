//! An LRU cache of the open files of large chunks, since opening a file costs more than a small read.
//!
//! A file is open at most once, because its checksums are cached in memory. So only files that no other caller holds
//! are closed.

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

/// The total wait for file descriptors, and the first wait.
const LONGEST_SHORTAGE: std::time::Duration = std::time::Duration::from_secs(1);
const FIRST_SHORTAGE: std::time::Duration = std::time::Duration::from_millis(5);

/// Above this number of files to sync at once, the entire filesystem is synced instead.
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
    /// Chunks with data that may not be on disk, open or not.
    unsynced: Mutex<HashSet<ChunkName>>,
    /// Chunks removed during running syncs.
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

    /// Runs `open`. If no file descriptors are left, closes files that are not in use and retries for a while, without
    /// holding the lock.
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

    /// Creates the file of a new chunk. Other callers cannot see it before [`Self::adopt`].
    pub(super) fn create(&self, path: &Path, head: Head) -> Result<FileChunk> {
        let chunk = self.with_descriptors(|| {
            let create = || FileChunk::create(path, head.clone(), &self.shared);
            self.directory.create(path, create)
        })?;
        self.directory.note_change(path);
        Ok(chunk)
    }

    /// Adds a new file to the open ones, replacing the one of the same name.
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

    /// Removes a file by its path; a missing one is no error.
    pub(super) fn unlink(&self, path: &Path) -> Result<()> {
        match fs::remove_file(path) {
            Ok(()) => self.directory.note_change(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(StoreError::from_io("remove", path, &e)),
        }
        Ok(())
    }

    /// Notes that the chunk has data that may not be on disk.
    pub(super) fn note_unsynced(&self, name: &ChunkName) {
        let mut unsynced = self.unsynced.lock();
        if !unsynced.contains(name) {
            unsynced.insert(name.clone());
        }
    }

    /// Syncs these chunks, or all, except those removed meanwhile.
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
            self.sync_each(&due, &watch, FileChunk::sync)?;
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

    fn sync_each(
        &self,
        due: &[ChunkName],
        watch: &Watch<'_>,
        sync: fn(&FileChunk) -> Result<()>,
    ) -> Result<()> {
        for name in due {
            let synced = self.get(name).and_then(|chunk| {
                sync(&chunk)?;
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

    /// Syncs the filesystem once (`syncfs`) instead of many files one by one.
    fn sync_together(&self, due: &[ChunkName], watch: &Watch<'_>) -> Result<()> {
        for name in due {
            let begun = self.get(name).and_then(|chunk| chunk.start_sync());
            unless_removed(begun, name, watch)?;
        }
        let path = self.directory.path();
        let synced =
            fs::File::open(path).and_then(|dir| nix::unistd::syncfs(&dir).map_err(io::Error::from));
        synced.map_err(|e| StoreError::from_io("sync", path, &e))?;
        // Each file is still looked at: that reports its errors, and syncs what was written since.
        self.sync_each(due, watch, FileChunk::sync_after_syncfs)
    }

    fn note_synced(&self, chunk: &FileChunk, watch: &Watch<'_>) {
        let mut unsynced = self.unsynced.lock();
        // After a removal, another file may have the same name.
        if !chunk.is_unsynced() && !watch.saw(&chunk.name) {
            unsynced.remove(&chunk.name);
        }
    }

    /// Closes least recently used files that are not in use, if too many are open.
    fn evict(&self, open: &mut Open) {
        if open.entries.len() > self.limit {
            self.close_idle(open);
        }
    }

    /// Closes idle files, up to an eighth of the limit.
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

    /// Writes the checksum pages of all open files and clears their marks.
    pub(super) fn settle_all(&self) -> Result<()> {
        let open = self.open.lock();
        open.entries
            .values()
            .try_for_each(|entry| entry.chunk.settle())
    }
}

/// Ignores the error of a failed sync if the chunk was removed meanwhile.
fn unless_removed(synced: Result<()>, name: &ChunkName, watch: &Watch<'_>) -> Result<()> {
    match synced {
        Err(_) if watch.saw(name) => Ok(()),
        other => other,
    }
}

/// Raises this process's limit of open files to the hard limit and returns it.
pub(super) fn raise_file_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 256;
    };
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() {
        return hard as usize;
    }
    soft as usize
}
