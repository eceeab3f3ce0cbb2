//! Coupled objects: what a writer's mount announces, and what a reader's mount waits for.
//!
//! Programs that are coupled exchange data as it is written. `keep=memory`: chunks of a coupled object are placed on the
//! mount's own *memory server* (`memory`), a data server whose store is in memory, and committed at once (`announce`).
//! A read through a handle that is not open for writing waits until its cells are written (`matching`), and then takes the
//! steps of every read: its chunks come from the writers' mounts. `keep=file`: data goes where it always goes, and an open
//! for reading waits until all writers have closed the object. See docs/decisions/29-coupling.md.
//!
//! Invariants: a read of a coupled object returns no fill for cells that a writer may still write. Coupled objects that
//! are in memory have no rights: the commits of their writers are their order, and a read fetches the newest tiling. A
//! write through a handle reads without waiting, since libraries read before they write.
//!
//! `watching` gets the announcements of objects that are read again and again, so that their reads ask nothing.
//! `header` answers reads of the headers of NetCDF files before their data is there.
//! `queue` makes writers wait for readers, and drops steps, where the number of steps in memory is limited.
//! `opens` reports to the service which coupled objects this mount has open: an object without a writer is complete.

mod announce;
mod header;
mod matching;
mod memory;
mod opens;
mod queue;
mod watching;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use slabfs_mdserver::api::ArrayInfo;
use slabfs_model::Keep;

pub(in crate::client) use header::Early;
pub(in crate::client) use matching::Awaited;
pub use matching::for_thread;
pub use memory::MemoryOptions;

use crate::client::object::Object;

/// The state of coupled objects of a client.
#[derive(Debug)]
pub(in crate::client) struct Coupling {
    announcer: announce::Announcer,
    memory: memory::Memory,
    opens: opens::Opens,
    watching: watching::Watching,
}

impl Coupling {
    /// Reads that asked a matcher.
    pub(in crate::client) fn matches(&self) -> u64 {
        self.watching.matches()
    }

    pub(in crate::client) fn new(options: Option<MemoryOptions>) -> Coupling {
        Coupling {
            announcer: announce::Announcer::default(),
            memory: memory::Memory::new(options),
            opens: opens::Opens::default(),
            watching: watching::Watching::default(),
        }
    }
}

/// Whether an object is coupled, and how: a copy of its form, for operations that do not lock that.
#[derive(Debug, Default)]
pub(in crate::client) struct Coupled {
    keep: AtomicU8,
    /// Steps in its queue; 0 for no limit.
    queue: AtomicU32,
    /// The queue has room for the rows in front of this one.
    room: AtomicU64,
}

impl Coupled {
    pub(in crate::client) fn of(info: &ArrayInfo) -> Coupled {
        let coupled = Coupled::default();
        coupled.set(info);
        coupled
    }

    pub(in crate::client) fn set(&self, info: &ArrayInfo) {
        let keep = info.couple.on().map(|couple| couple.keep);
        let value = match keep {
            None => 0,
            Some(Keep::Memory) => 1,
            Some(Keep::File) => 2,
        };
        self.keep.store(value, Ordering::Release);
        // Steps are rows. A file of bytes has none.
        let queue = info.couple.on().filter(|_| info.dims.len() > 1);
        let queue = queue.map_or(0, |couple| couple.queue);
        self.queue.store(queue, Ordering::Release);
    }

    /// Steps in its queue; 0 for no limit.
    fn queue(&self) -> u32 {
        self.queue.load(Ordering::Acquire)
    }

    /// Whether it has a limit of steps.
    pub(in crate::client) fn has_queue(&self) -> bool {
        self.queue() > 0
    }

    /// Whether the queue may have no room for the rows in front of this one.
    fn may_be_full(&self, rows: u64) -> bool {
        self.has_queue() && rows > self.room.load(Ordering::Acquire)
    }

    /// Forgets what the queue has room for: the object has been emptied.
    pub(in crate::client) fn restart(&self) {
        self.room.store(0, Ordering::Release);
    }

    /// Whether it is coupled, and its data on the data servers.
    pub(in crate::client) fn in_files(&self) -> bool {
        self.keep.load(Ordering::Acquire) == 2
    }

    /// Whether it is coupled.
    pub(in crate::client) fn any(&self) -> bool {
        self.keep.load(Ordering::Acquire) != 0
    }

    /// Whether it is coupled, and its data in memory.
    pub(in crate::client) fn in_memory(&self) -> bool {
        self.keep.load(Ordering::Acquire) == 1
    }
}

impl Object {
    /// Whether reads through a handle that cannot write wait for data.
    pub(in crate::client) fn awaits_data(&self) -> bool {
        self.coupled.in_memory()
    }

    /// Whether a read that began then still waits.
    pub(in crate::client) fn waits(&self, begun: Instant) -> bool {
        let geometry = self.geometry.read();
        let couple = geometry.info.couple.on();
        couple.is_some_and(|couple| begun.elapsed() < couple.timeout())
    }
}
