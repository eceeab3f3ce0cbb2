//! Chunks that are read from their files, or from the memory of other processes: the descriptors, cached within bounds on
//! their number, the bytes of their chunks, and idle time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::{Condvar, Mutex, RwLock};
use slabfs_model::{ChunkId, ServerId};

use super::chunk::Chunk;

/// A descriptor that is unused for this long is closed.
const IDLE: Duration = Duration::from_secs(5);
/// The interval of the check for unused descriptors.
const ROUND: Duration = Duration::from_secs(1);
/// The most descriptors that are cached, and the divisor of the process's open-file limit that bounds them as well.
const MOST: usize = 256;
const SHARE: u64 = 4;
/// Most chunks in memory of other processes: they cost no descriptors.
const MOST_IN_MEMORY: usize = 1 << 16;
/// The most bytes of all cached chunks, and of one chunk: the sums of all its groups are read first.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// A chunk, by server and id.
pub(super) type Key = (ServerId, ChunkId);

/// A chunk whose file is open here.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) chunk: Chunk,
    bytes: u64,
    /// Time of the last use, in milliseconds since [`Files::begun`].
    used: AtomicU64,
}

/// All cached descriptors.
#[derive(Debug)]
pub(super) struct Files {
    held: RwLock<Table>,
    /// Their number, readable without the lock.
    count: AtomicUsize,
    begun: Instant,
    limit: OnceLock<usize>,
    over: Mutex<bool>,
    ends: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Key, Arc<Held>>,
    /// Of all chunks with files in the table.
    bytes: u64,
    /// Their number.
    opened: usize,
}

impl Table {
    fn insert(&mut self, key: Key, held: Arc<Held>) {
        self.bytes += held.bytes;
        self.opened += usize::from(held.chunk.has_file());
        if let Some(old) = self.files.insert(key, held) {
            self.gone(&old);
        }
    }

    fn remove(&mut self, key: &Key) {
        if let Some(old) = self.files.remove(key) {
            self.gone(&old);
        }
    }

    fn gone(&mut self, old: &Held) {
        self.bytes -= old.bytes;
        self.opened -= usize::from(old.chunk.has_file());
    }

    /// Makes room for one more chunk with a file of this many bytes; evicts the least recently used.
    fn make_room(&mut self, most: usize, bytes: u64) {
        while self.opened > 0
            && (self.opened >= most || self.bytes.saturating_add(bytes) > MOST_BYTES)
        {
            let used = |(_, one): &(&Key, &Arc<Held>)| one.used.load(Relaxed);
            let opened = self.files.iter().filter(|(_, one)| one.chunk.has_file());
            let oldest = opened.min_by_key(used).map(|(key, _)| *key);
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

    /// A cached chunk; marks it as used now.
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Held>> {
        if !self.are_any() {
            return None;
        }
        let held = self.held.read().files.get(key)?.clone();
        held.used.store(self.now(), Relaxed);
        Some(held)
    }

    /// Caches one more.
    pub(super) fn hold(&self, key: Key, chunk: Chunk) {
        let entry = Arc::new(Held {
            bytes: chunk.bytes(),
            chunk,
            used: AtomicU64::new(self.now()),
        });
        let mut held = self.held.write();
        if entry.chunk.has_file() {
            held.make_room(self.limit(), entry.bytes);
        } else if held.files.len() - held.opened >= MOST_IN_MEMORY {
            held.files.retain(|_, one| one.chunk.has_file());
        }
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

    /// Marks all descriptors as long unused.
    #[cfg(test)]
    pub(super) fn age(&self) {
        for one in self.held.read().files.values() {
            one.used.store(0, Relaxed);
        }
    }

    /// Stops the sweeper: [`Files::sweep`] returns.
    pub(super) fn end(&self) {
        *self.over.lock() = true;
        self.ends.notify_all();
    }

    /// Closes unused descriptors until [`Files::end`]; calls `then` each time.
    pub(super) fn sweep(&self, then: &dyn Fn()) {
        let mut over = self.over.lock();
        while !*over {
            if self.ends.wait_for(&mut over, ROUND).timed_out() {
                drop(over);
                self.tidy();
                then();
                over = self.over.lock();
            }
        }
    }

    /// Closes descriptors that are unused for [`IDLE`].
    pub(super) fn tidy(&self) {
        if self.count.load(Relaxed) == 0 {
            return;
        }
        let now = self.now();
        let mut held = self.held.write();
        let unused =
            |one: &Held| now.saturating_sub(one.used.load(Relaxed)) >= IDLE.as_millis() as u64;
        let gone = held.files.extract_if(|_, one| unused(one));
        let gone: Vec<Arc<Held>> = gone.map(|(_, one)| one).collect();
        gone.iter().for_each(|one| held.gone(one));
        self.count.store(held.files.len(), Relaxed);
    }

    /// Milliseconds on a clock that starts at [`IDLE`], so that 0 is long ago.
    fn now(&self) -> u64 {
        (IDLE + self.begun.elapsed()).as_millis() as u64
    }

    /// The most descriptors.
    pub(super) fn limit(&self) -> usize {
        *self.limit.get_or_init(|| {
            let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(MOST as u64, |(soft, _)| soft);
            (files / SHARE).min(MOST as u64) as usize
        })
    }
}
