//! The client side of the object store: all data servers a mount knows, and the fan-out over them.
//!
//! [`Servers`] takes *pieces*: cells of chunks on servers. Pieces of one server travel in one message
//! (above 64 MiB in several, one after the other); different servers work at the same time. A store
//! inside the same process is called directly, without a copy and without a thread of its own unless
//! there is enough to do.
//!
//! A server that is away is tried again until the deadline; only then is the error
//! [`Unavailable`](StoreError::Unavailable), which names server and address. All requests are
//! idempotent, so a lost reply costs a resend and nothing else. A server that is there and lets nobody
//! change grid chunks for the moment (`server/fence.rs`) counts as away.
//!
//! - `pieces`: what is asked; `read`, `write`, `batch`, `manage`: the operations;
//! - `fanout`: messages to many servers; `cut`: pieces too large for a message; `workers`: the threads;
//! - `blank`, `same_host`: files of servers on the same machine, to be written and read in place of sending bytes;
//! - [`Counters`]: how much was asked, sent and touched.
//!
//! Deliberately absent: which chunk lies where (`model`'s plan and the metadata service know), caches
//! (`fs/client`), and retrying what a server answered: an error of a server is the caller's to judge.

mod allocated;
mod batch;
mod blank;
mod counters;
mod fanout;
mod manage;
mod pieces;
mod read;
mod same_host;
#[cfg(test)]
mod tests;
mod workers;
mod write;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, RwLock};
use slabfs_model::{ServerId, SessionId};

pub use batch::{BatchAsk, BatchPart, BatchPiece};
pub use counters::{Counters, CountersSnapshot, Side, SideSnapshot};
pub use pieces::{ClipPiece, PunchPiece, ReadPiece, SealPiece, WriteKind, WritePiece};

use crate::{
    addr::Addr,
    error::{Result, StoreError},
    name::ChunkName,
    store::ChunkStore,
    wire::{Key, Pool},
};
use same_host::SameHost;
use workers::Workers;

/// The pause before a server that lets nobody in at present is asked again, at first and at most: the whole
/// request is sent each time.
const AGAIN: Duration = Duration::from_millis(50);
const AGAIN_AT_MOST: Duration = Duration::from_secs(1);

/// How a mount talks to its data servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a server may be away before a request fails.
    pub deadline: Duration,
    /// The shared key, for TCP.
    pub key: Option<Key>,
    /// What is given to be written stays as it is until the call is over. Rust sees to that; memory of programs in other
    /// languages may change.
    pub steady: bool,
    /// Threads that move large requests to and from several servers at the same time.
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            deadline: Duration::from_secs(30),
            key: None,
            steady: true,
            workers: 8,
        }
    }
}

/// All data servers one mount knows. Shared by all its threads.
pub struct Servers {
    options: Options,
    table: RwLock<Arc<Table>>,
    counters: Counters,
    same_host: SameHost,
    workers: OnceLock<Workers>,
    caller: Mutex<Caller>,
    /// The session is another one, or nothing is waited for any more.
    changed: Condvar,
}

/// For whom requests are made.
#[derive(Debug, Default)]
struct Caller {
    session: SessionId,
    closed: bool,
}

type Table = BTreeMap<ServerId, Target>;

/// Where a server is.
#[derive(Clone)]
enum Target {
    Local(Arc<dyn ChunkStore>),
    Remote(Arc<Pool>),
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("options", &self.options)
            .field("known", &self.known())
            .finish()
    }
}

impl Servers {
    /// Knows no server yet.
    pub fn new(options: Options) -> Servers {
        Servers {
            options,
            table: RwLock::default(),
            counters: Counters::default(),
            same_host: SameHost::new(),
            workers: OnceLock::new(),
            caller: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Requests are made for this session from now on; those under way stay the earlier one's, and are
    /// not waited for where a server does not let it in at present. 0 is nobody: remote servers
    /// refuse it what changes grid chunks.
    pub fn set_session(&self, session: SessionId) {
        self.caller.lock().session = session;
        self.changed.notify_all();
    }

    fn session(&self) -> SessionId {
        self.caller.lock().session
    }

    /// Waits a little before a server is asked again; false when the request of `session` is to be given
    /// up.
    fn pause(&self, session: SessionId, time: Duration, until: Instant) -> bool {
        let next = Instant::now() + time;
        let mut caller = self.caller.lock();
        while caller.session == session && !caller.closed {
            if self.changed.wait_until(&mut caller, next).timed_out() {
                return next < until;
            }
        }
        false
    }

    /// A store inside this process is this server from now on.
    pub fn add_local(&self, id: ServerId, store: Arc<dyn ChunkStore>) {
        self.change(|table| {
            table.insert(id, Target::Local(store));
        });
    }

    /// A server is reached at this address from now on. A local one stays local.
    pub fn set_remote(&self, id: ServerId, addr: Addr) {
        match self.table().get(&id) {
            Some(Target::Local(_)) => return,
            // Requests that wait for it at the old address go on at the new one.
            Some(Target::Remote(pool)) => {
                if pool.addr() != addr {
                    pool.move_to(addr);
                }
                return;
            }
            None => {}
        }
        let pool = Pool::new(addr, self.options.key.clone(), self.options.deadline);
        self.change(|table| {
            table.insert(id, Target::Remote(Arc::new(pool)));
        });
    }

    /// The servers known, in the order of their ids.
    pub fn known(&self) -> Vec<ServerId> {
        self.table().keys().copied().collect()
    }

    /// Whether a server is a store inside this process.
    pub fn is_local(&self, id: ServerId) -> bool {
        matches!(self.table().get(&id), Some(Target::Local(_)))
    }

    /// Whether chunks of other processes may be read here without asking them.
    pub fn has_same_host_files(&self) -> bool {
        self.same_host.are_any()
    }

    /// Whether a chunk is read in this process: its server is here, or has lent its file.
    pub fn is_same_host(&self, id: ServerId, name: &ChunkName) -> bool {
        self.same_host.has(id, name) || self.is_local(id)
    }

    /// Gives back the files of chunks that others are about to replace, if they are lent.
    pub fn give_back(&self, names: &[(ServerId, ChunkName)]) {
        self.same_host.forget_all(names);
    }

    /// Gives back all files.
    pub fn give_back_all(&self) {
        self.same_host.clear();
    }

    #[cfg(test)]
    fn tidy(&self) {
        self.same_host.tidy();
    }

    #[cfg(test)]
    fn age_same_host(&self) {
        self.same_host.age();
    }

    /// What has been asked, sent and touched so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Ends all waiting for servers that are away; remote requests fail from now on.
    pub fn close(&self) {
        self.caller.lock().closed = true;
        self.changed.notify_all();
        for target in self.table().values() {
            if let Target::Remote(pool) = target {
                pool.close();
            }
        }
    }

    fn table(&self) -> Arc<Table> {
        self.table.read().clone()
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        change(Arc::make_mut(&mut self.table.write()));
    }

    fn workers(&self) -> &Workers {
        self.workers
            .get_or_init(|| Workers::start(self.options.workers))
    }

    /// When a request that begins now has taken too long.
    fn until(&self) -> Instant {
        Instant::now() + self.options.deadline
    }
}

/// The entry of a server, or the error that nobody told this mount of it.
fn target(table: &Table, id: ServerId) -> Result<&Target> {
    table.get(&id).ok_or_else(|| StoreError::Unavailable {
        server: id,
        addr: "an unknown address".into(),
        detail: "this mount has not been told of it".into(),
    })
}
