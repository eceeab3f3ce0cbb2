//! Which connections a server has, what each is doing, and who has to go when there are too many.

use std::{
    net::Shutdown,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use parking_lot::Mutex;

use super::stream::Stream;

/// What a connection is doing; kept in the three low bits of [`Slot::state`], above them is since when
/// (nanoseconds of the roster's clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Has not proved yet who it is.
    Opening = 0,
    /// Waits for a request.
    Idle = 1,
    /// Receives one.
    Receiving = 2,
    /// Handles or answers one.
    Busy = 3,
    /// Has been shut down to make room.
    Leaving = 4,
}

/// Nanoseconds after which a request that is still being received may have to go.
const SLOW: u64 = 1_000_000_000;

/// One connection as the roster sees it.
#[derive(Debug)]
pub(super) struct Slot {
    state: AtomicU64,
    clock: Instant,
    /// To end it from outside; its descriptor goes with its thread.
    stream: Weak<Stream>,
}

impl Slot {
    /// Notes what the connection does from now on.
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

    /// Whether one more fits. When not, the longest-waiting connection is told to go (one that is
    /// still opening before an idle one, so that strangers push out strangers); it does so soon, and
    /// the caller has room at once.
    pub(super) fn make_room(&self) -> bool {
        let mut entries = self.entries.lock();
        reap(&mut entries);
        // Who was told to go needs a moment; a quarter of the limit may be on its way out.
        if entries.len() > self.limit + self.limit / 4 {
            return false;
        }
        let count = |doing| entries.iter().filter(|e| e.slot.get().0 == doing).count();
        if count(Doing::Opening) >= self.strangers {
            // The newcomer is one, too.
            return self.tell_to_go(&entries, &[Doing::Opening]);
        }
        if entries.len() - count(Doing::Leaving) < self.limit {
            return true;
        }
        self.tell_to_go(&entries, &[Doing::Opening, Doing::Idle, Doing::Receiving])
    }

    /// Tells the connection to go that has been doing one of these for longest, the first of them before the others; whether
    /// there is one.
    fn tell_to_go(&self, entries: &[Entry], which: &[Doing]) -> bool {
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

    /// There are no descriptors left: the connection that is needed least gives back its own.
    pub(super) fn evict(&self) {
        let mut entries = self.entries.lock();
        reap(&mut entries);
        self.tell_to_go(&entries, &[Doing::Opening, Doing::Idle, Doing::Receiving]);
    }

    /// Whether half as many strangers are there as may be.
    pub(super) fn is_crowded(&self) -> bool {
        let entries = self.entries.lock();
        let opening = |entry: &&Entry| entry.slot.get().0 == Doing::Opening;
        entries.iter().filter(opening).count() > self.strangers / 2
    }

    /// Takes over a running connection.
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

/// Joins those that have ended.
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
