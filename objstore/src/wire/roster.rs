//! The connections of a server, the state of each, and the choice of those to close when there are too many.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use nix::sys::socket::Shutdown;
use parking_lot::Mutex;

use super::stream::Stream;

/// What a connection is doing, in the three low bits of [`Slot::state`]; the bits above have since when (nanoseconds
/// of the roster's clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Has not authenticated yet.
    Opening = 0,
    /// Waits for a request.
    Idle = 1,
    /// Receives a request.
    Receiving = 2,
    /// Handles or answers a request.
    Busy = 3,
    /// Has been shut down to make room.
    Leaving = 4,
}

/// Nanoseconds after which a connection that is still receiving a request may be closed.
const SLOW: u64 = 1_000_000_000;

/// One connection as the roster sees it.
#[derive(Debug)]
pub(super) struct Slot {
    state: AtomicU64,
    clock: Instant,
    /// For a shutdown from outside; the thread owns the descriptor.
    stream: Weak<Stream>,
}

impl Slot {
    /// Records what the connection does from now on.
    pub(super) fn set(&self, doing: Doing) {
        self.state.store(
            self.clock.elapsed().as_nanos() as u64 * 8 + doing as u64,
            Ordering::Relaxed,
        );
    }

    fn get(&self) -> (Doing, u64) {
        let state = self.state.load(Ordering::Relaxed);
        let doing = match state % 8 {
            0 => Doing::Opening,
            1 => Doing::Idle,
            2 => Doing::Receiving,
            3 => Doing::Busy,
            _ => Doing::Leaving,
        };
        (doing, state / 8)
    }

    fn shutdown(&self, how: Shutdown) {
        if let Some(stream) = self.stream.upgrade() {
            stream.shutdown(how);
        }
    }

    fn leave(&self) {
        self.set(Doing::Leaving);
        self.shutdown(Shutdown::Both);
    }
}

/// All connections of one server and their threads.
#[derive(Debug)]
pub(super) struct Roster {
    clock: Instant,
    limit: usize,
    strangers: usize,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    thread: JoinHandle<()>,
}

impl Roster {
    /// An empty roster for at most `limit` connections, of which at most `strangers` are opening.
    pub(super) fn new(limit: usize, strangers: usize) -> Roster {
        Roster {
            clock: Instant::now(),
            limit,
            strangers,
            entries: Mutex::new(Vec::new()),
        }
    }

    /// A slot for a new connection.
    pub(super) fn slot(&self, stream: &Arc<Stream>) -> Arc<Slot> {
        let slot = Slot {
            state: AtomicU64::new(0),
            clock: self.clock,
            stream: Arc::downgrade(stream),
        };
        slot.set(Doing::Opening);
        Arc::new(slot)
    }

    /// Whether one more fits. If not, shuts down the longest-waiting connection (one that is still opening before an
    /// idle one, so that strangers displace strangers). That one ends soon, and the caller has room at once.
    pub(super) fn make_room(&self) -> bool {
        let mut entries = self.entries.lock();
        reap(&mut entries);
        // A connection that is shut down needs a moment to end; a quarter of the limit may be ending.
        if entries.len() > self.limit + self.limit / 4 {
            return false;
        }
        let count = |doing| entries.iter().filter(|e| e.slot.get().0 == doing).count();
        if count(Doing::Opening) >= self.strangers {
            // The new connection is a stranger as well.
            return self.evict_oldest(&entries, &[Doing::Opening]);
        }
        if entries.len() - count(Doing::Leaving) < self.limit {
            return true;
        }
        self.evict_oldest(&entries, &[Doing::Opening, Doing::Idle, Doing::Receiving])
    }

    /// Shuts down the connection that has been in one of these states for longest, preferring earlier states; returns
    /// whether there was one.
    fn evict_oldest(&self, entries: &[Entry], which: &[Doing]) -> bool {
        let now = self.clock.elapsed().as_nanos() as u64;
        let oldest = entries
            .iter()
            .map(|e| (e.slot.get(), &e.slot))
            .filter(|((doing, since), _)| {
                let long = *doing != Doing::Receiving || now.saturating_sub(*since) >= SLOW;
                which.contains(doing) && long
            })
            .min_by_key(|((doing, since), _)| (*doing as u8, *since));
        if let Some((_, slot)) = oldest {
            slot.leave();
        }
        oldest.is_some()
    }

    /// Descriptors have run out: shuts down the least needed connection.
    pub(super) fn evict(&self) {
        let mut entries = self.entries.lock();
        reap(&mut entries);
        self.evict_oldest(&entries, &[Doing::Opening, Doing::Idle, Doing::Receiving]);
    }

    /// Whether more than half of the allowed strangers are connected.
    pub(super) fn is_crowded(&self) -> bool {
        let entries = self.entries.lock();
        let opening = |entry: &&Entry| entry.slot.get().0 == Doing::Opening;
        entries.iter().filter(opening).count() > self.strangers / 2
    }

    /// Adds a running connection.
    pub(super) fn add(&self, slot: Arc<Slot>, thread: JoinHandle<()>) {
        self.entries.lock().push(Entry { slot, thread });
    }

    /// How many connections there are.
    pub(super) fn len(&self) -> usize {
        let mut entries = self.entries.lock();
        reap(&mut entries);
        entries.len()
    }

    /// Shuts down every connection's socket in this direction.
    pub(super) fn shutdown(&self, how: Shutdown) {
        for entry in self.entries.lock().iter() {
            entry.slot.shutdown(how);
        }
    }

    /// Waits for the threads of all connections.
    pub(super) fn join(&self) {
        let entries = std::mem::take(&mut *self.entries.lock());
        for entry in entries {
            join(entry);
        }
    }
}

/// Joins the threads that have ended.
fn reap(entries: &mut Vec<Entry>) {
    let mut i = 0;
    while i < entries.len() {
        if entries[i].thread.is_finished() {
            join(entries.swap_remove(i));
        } else {
            i += 1;
        }
    }
}

fn join(entry: Entry) {
    if entry.thread.join().is_err() {
        tracing::error!("a connection's thread panicked");
    }
}
