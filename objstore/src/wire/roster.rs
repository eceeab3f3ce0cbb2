//! Which connections a server has, what each is doing, and who has to go when there are too many.

use std::{
    net::Shutdown,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use parking_lot::Mutex;

use super::stream::Stream;

/// What a connection is doing; kept in the two low bits of [`Slot::state`], above them is since when
/// (nanoseconds of the roster's clock).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Has not proved yet who it is.
    Opening = 0,
    /// Waits for a request.
    Idle = 1,
    /// Receives, handles or answers one.
    Busy = 2,
    /// Has been shut down to make room.
    Leaving = 3,
}

/// One connection as the roster sees it.
#[derive(Debug)]
pub(super) struct Slot {
    state: AtomicU64,
    clock: Instant,
    /// To end it from outside.
    stream: Stream,
}

impl Slot {
    /// Notes what the connection does from now on.
    pub(super) fn set(&self, doing: Doing) {
        self.state.store(
            self.clock.elapsed().as_nanos() as u64 * 4 + doing as u64,
            Ordering::Relaxed,
        );
    }

    fn get(&self) -> (Doing, u64) {
        let state = self.state.load(Ordering::Relaxed);
        let doing = match state % 4 {
            0 => Doing::Opening,
            1 => Doing::Idle,
            2 => Doing::Busy,
            _ => Doing::Leaving,
        };
        (doing, state / 4)
    }
}

/// All connections of one server and their threads.
#[derive(Debug)]
pub(super) struct Roster {
    clock: Instant,
    limit: usize,
    entries: Mutex<Vec<Entry>>,
}

#[derive(Debug)]
struct Entry {
    slot: Arc<Slot>,
    thread: JoinHandle<()>,
}

impl Roster {
    /// An empty roster for at most `limit` connections.
    pub(super) fn new(limit: usize) -> Roster {
        Roster {
            clock: Instant::now(),
            limit,
            entries: Mutex::new(Vec::new()),
        }
    }

    /// A slot for a new connection; `stream` is a second handle on its socket.
    pub(super) fn slot(&self, stream: Stream) -> Arc<Slot> {
        let slot = Slot {
            state: AtomicU64::new(0),
            clock: self.clock,
            stream,
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
        let leaving = entries
            .iter()
            .filter(|e| e.slot.get().0 == Doing::Leaving)
            .count();
        if entries.len() - leaving < self.limit {
            return true;
        }
        let oldest = entries
            .iter()
            .map(|e| (e.slot.get(), &e.slot))
            .filter(|((doing, _), _)| matches!(doing, Doing::Opening | Doing::Idle))
            .min_by_key(|((doing, since), _)| (*doing as u8, *since));
        let Some((_, slot)) = oldest else {
            return false;
        };
        slot.set(Doing::Leaving);
        slot.stream.shutdown(Shutdown::Both);
        true
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
            entry.slot.stream.shutdown(how);
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
