//! An LRU cache of the file descriptors of segments, since a process may have few descriptors.
//!
//! A segment is opened when it is read or written, and stays open until the limit is exceeded. Then the least recently
//! used ones are closed, unless they are in use or have unsynced data: the kernel reports a lost write only to
//! descriptors that were open when it happened.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// The open segments of a store.
#[derive(Debug)]
pub(super) struct Descriptors {
    open: Mutex<Vec<Weak<Descriptor>>>,
    clock: AtomicU64,
    limit: usize,
}

/// The file of one segment.
#[derive(Debug)]
pub(super) struct Descriptor {
    of: Arc<Descriptors>,
    path: PathBuf,
    file: Mutex<Option<Arc<File>>>,
    used: AtomicU64,
    /// Some of its data may not be on disk.
    pub(super) dirty: AtomicBool,
}

impl Descriptors {
    /// At most `limit` are open, except those that are in use or not synced.
    pub(super) fn new(limit: usize) -> Arc<Descriptors> {
        Arc::new(Descriptors {
            open: Mutex::default(),
            clock: AtomicU64::new(0),
            limit: limit.max(1),
        })
    }

    /// A segment that is opened on first use.
    pub(super) fn closed(self: &Arc<Self>, path: &Path) -> Arc<Descriptor> {
        Arc::new(Descriptor {
            of: Arc::clone(self),
            path: path.to_owned(),
            file: Mutex::default(),
            used: AtomicU64::new(0),
            dirty: AtomicBool::new(false),
        })
    }

    /// A segment that is open already.
    pub(super) fn opened(self: &Arc<Self>, path: &Path, file: File) -> Arc<Descriptor> {
        let descriptor = self.closed(path);
        *descriptor.file.lock() = Some(Arc::new(file));
        self.note(&descriptor);
        descriptor
    }

    /// Registers an opened segment, and closes others if too many are open.
    fn note(&self, of: &Arc<Descriptor>) {
        let mut open = self.open.lock();
        open.push(Arc::downgrade(of));
        if open.len() > self.limit {
            let mut descriptors: Vec<_> = open.iter().filter_map(Weak::upgrade).collect();
            descriptors.sort_by_key(|one| one.used.load(Ordering::Relaxed));
            // Close several at once, so that not every open has to sort them all.
            let most = self.limit - self.limit / 8;
            let mut left = descriptors.len();
            descriptors.retain(|one| {
                let closed = left > most && !Arc::ptr_eq(one, of) && one.close();
                left -= usize::from(closed);
                !closed
            });
            *open = descriptors.iter().map(Arc::downgrade).collect();
        }
    }
}

impl Descriptor {
    /// The file, opened if necessary; the caller holds the reference while it uses the file.
    pub(super) fn file(self: &Arc<Self>) -> io::Result<Arc<File>> {
        let now = self.of.clock.fetch_add(1, Ordering::Relaxed);
        self.used.store(now, Ordering::Relaxed);
        let mut file = self.file.lock();
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let opened = OpenOptions::new().read(true).write(true).open(&self.path)?;
        let opened = Arc::new(opened);
        *file = Some(Arc::clone(&opened));
        drop(file);
        self.of.note(self);
        Ok(opened)
    }

    /// Closes the file unless it is in use or not synced.
    fn close(&self) -> bool {
        let mut file = self.file.lock();
        let idle = file
            .as_ref()
            .is_none_or(|file| Arc::strong_count(file) == 1);
        // Checked second: a writer sets `dirty` before it drops its reference to the file.
        let may = idle && !self.dirty.load(Ordering::SeqCst);
        if may {
            *file = None;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_open_and_those_in_use_stay_open() {
        let dir = tempfile::tempdir().expect("a directory");
        let descriptors = Descriptors::new(4);
        let path = |n: usize| dir.path().join(n.to_string());
        let all: Vec<_> = (0..20)
            .map(|n| descriptors.opened(&path(n), File::create(path(n)).expect("made")))
            .collect();
        let open = || all.iter().filter(|one| one.file.lock().is_some()).count();
        assert!(open() <= 4, "{}", open());
        let used = all[0].file().expect("opened again");
        all[1].dirty.store(true, Ordering::SeqCst);
        drop(all[1].file().expect("opened again"));
        for one in &all {
            drop(one.file().expect("opened again"));
        }
        assert!(open() <= 4, "{}", open());
        assert!(all[0].file.lock().is_some() && all[1].file.lock().is_some());
        drop(used);
        all[1].dirty.store(false, Ordering::SeqCst);
        for one in &all[2..] {
            drop(one.file().expect("opened again"));
        }
        assert!(all[0].file.lock().is_none() && all[1].file.lock().is_none());
        assert_eq!(descriptors.open.lock().len(), open());
    }
}
