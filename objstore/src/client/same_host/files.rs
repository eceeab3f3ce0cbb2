//! The files that are kept, within bounds of their number, of the bytes of their chunks, and of time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::{Condvar, Mutex, RwLock};
use slabfs_model::{ChunkId, ServerId};

use crate::store::SameHostChunk;

/// A same-host files that was not used for so long ends.
const IDLE: Duration = Duration::from_secs(5);
/// How often that is looked at.
const ROUND: Duration = Duration::from_secs(1);
/// Files kept at most, and the share of those that this process may open.
const MOST: usize = 256;
const SHARE: u64 = 4;
/// Bytes of the chunks that are kept, at most, and of one: of all of its groups the sums are read first.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// A chunk of a server.
pub(super) type Key = (ServerId, ChunkId);

/// A chunk whose file is here.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) chunk: SameHostChunk,
    bytes: u64,
    /// When it was used last, in milliseconds of [`Files::begun`].
    used: AtomicU64,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Files {
    held: RwLock<Table>,
    /// How many, to be looked at without the lock.
    count: AtomicUsize,
    begun: Instant,
    limit: OnceLock<usize>,
    over: Mutex<bool>,
    ends: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Key, Arc<Held>>,
    /// Of all of them.
    bytes: u64,
}

impl Table {
    fn insert(&mut self, key: Key, held: Arc<Held>) {
        self.bytes += held.bytes;
        if let Some(old) = self.files.insert(key, held) {
            self.bytes -= old.bytes;
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.files.remove(key) {
            self.bytes -= old.bytes;
        }
    }

    /// Makes room for one more of so many bytes; what was used longest ago goes.
    fn make_room(&mut self, most: usize, bytes: u64) {
        while !self.files.is_empty()
            && (self.files.len() >= most || self.bytes.saturating_add(bytes) > MOST_BYTES)
        {
            let used = |(_, one): &(&Key, &Arc<Held>)| one.used.load(Relaxed);
            let oldest = self.files.iter().min_by_key(used).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }
}

impl Default for Files {
    fn default() -> Files {
        Files {
            held: RwLock::default(),
            count: AtomicUsize::new(0),
            begun: Instant::now(),
            limit: OnceLock::new(),
            over: Mutex::new(false),
            ends: Condvar::new(),
        }
    }
}

impl Files {
    pub(super) fn are_any(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    pub(super) fn has(&self, key: &Key) -> bool {
        self.are_any() && self.held.read().files.contains_key(key)
    }

    /// One that is used now.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Held>> {
        if !self.are_any() {
            return None;
        }
        let held = self.held.read().files.get(key)?.clone();
        held.used.store(self.now(), Relaxed);
        Some(held)
    }

    /// Keeps one more.
    pub(super) fn hold(&self, key: Key, chunk: SameHostChunk) {
        let entry = Arc::new(Held {
            bytes: chunk.bytes(),
            chunk,
            used: AtomicU64::new(self.now()),
        });
        let mut held = self.held.write();
        held.make_room(self.limit(), entry.bytes);
        held.insert(key, entry);
        self.count.store(held.files.len(), Relaxed);
    }

    pub(super) fn forget(&self, keys: impl Iterator<Item = Key>) {
        let mut held = self.held.write();
        for key in keys {
            held.remove(&key);
        }
        self.count.store(held.files.len(), Relaxed);
    }

    pub(super) fn clear(&self) {
        let mut held = self.held.write();
        *held = Table::default();
        self.count.store(0, Relaxed);
    }

    /// As if nobody had used any for long.
    #[cfg(test)]
    pub(super) fn age(&self) {
        for one in self.held.read().files.values() {
            one.used.store(0, Relaxed);
        }
    }

    /// Nothing is given back any more: [`Files::sweep`] returns.
    pub(super) fn end(&self) {
        *self.over.lock() = true;
        self.ends.notify_all();
    }

    /// Gives back what is not used, until it is over.
    pub(super) fn sweep(&self) {
        let mut over = self.over.lock();
        while !*over {
            if self.ends.wait_for(&mut over, ROUND).timed_out() {
                drop(over);
                self.tidy();
                over = self.over.lock();
            }
        }
    }

    /// Gives back what was not used for [`IDLE`].
    pub(super) fn tidy(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let now = self.now();
        let mut held = self.held.write();
        let Table { files, bytes } = &mut *held;
        files.retain(|_, one| {
            let stays = now.saturating_sub(one.used.load(Relaxed)) < IDLE.as_millis() as u64;
            *bytes -= if stays { 0 } else { one.bytes };
            stays
        });
        self.count.store(files.len(), Relaxed);
    }

    /// Milliseconds on a clock that began long ago.
    fn now(&self) -> u64 {
        (IDLE + self.begun.elapsed()).as_millis() as u64
    }

    /// How many there are at most.
    pub(super) fn limit(&self) -> usize {
        *self.limit.get_or_init(|| {
            let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(MOST as u64, |(soft, _)| soft);
            (files / SHARE).min(MOST as u64) as usize
        })
    }
}
