//! The client side of the object store: every data server a mount knows, and the fan-out of requests over them.
//!
//! [`Servers`] takes *pieces*: cells of chunks on servers. The pieces of one server travel in one message, or in
//! several consecutive ones above 64 MiB; different servers work concurrently. A store inside the same process is
//! called directly, without a copy, and without another thread unless there is enough to do.
//!
//! An unreachable server is retried until the deadline; only then does the request fail with
//! [`Unavailable`](StoreError::Unavailable), which names server and address. All requests are idempotent, so a lost
//! reply costs only a resend. A server that refuses all changes of grid chunks for the moment (`server/fence.rs`)
//! counts as unreachable.
//!
//! # One way for every request
//!
//! 1. The pieces (`pieces`), and what batches select of them (`batch`), are checked, and sorted into messages by server
//!    and size (`fanout::Sorter`); a piece too large for a message is cut (`cut`).
//! 2. `fanout` moves the messages: it sends, retries, and takes the replies, on this thread or on `workers`. A
//!    message encodes its request only when it is sent, and scatters the reply as it arrives:
//!    `read` and `batch/read` into memory, `write` pieces and batches in one message, `manage` all other operations.
//! 3. Chunks that can be reached without a message are read and written directly instead: those of a store in this
//!    process, and those whose files a server on the same host has handed out (`same_host` for reads, `blank` for
//!    writes). A read takes both as a `ChunkSource`.
//! 4. [`Counters`] count how much was requested, sent and touched.
//!
//! Deliberately elsewhere: where each chunk is stored (`model`'s plan and the metadata service), caches
//! (`fs/client`), and retries after an error reply: the caller judges those errors.

mod batch;
mod blank;
mod counters;
mod encoded;
mod fanout;
mod manage;
mod pieces;
mod read;
mod same_host;
#[cfg(test)]
mod tests;
mod unanswered;
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
use smallvec::SmallVec;

pub use batch::{BatchAsk, BatchPart, BatchPiece, TOO_SCATTERED};
pub use counters::{Counters, CountersSnapshot, Side, SideSnapshot};
pub use pieces::{ClipPiece, PunchPiece, ReadPiece, SealPiece, WriteKind, WritePiece};

use crate::{
    addr::Addr,
    error::{Result, StoreError},
    interrupt,
    name::ChunkName,
    store::ChunkStore,
    wire::{Key, Pool},
};
use same_host::SameHost;
use unanswered::Unanswered;
use workers::Workers;

/// Initial and maximum delay before retrying a server that answers `Unavailable`. Each retry sends the entire
/// request.
const RETRY_DELAY: Duration = Duration::from_millis(50);
const RETRY_DELAY_MOST: Duration = Duration::from_secs(1);
/// How long requests ahead of reads may take.
const AHEAD: Duration = Duration::from_secs(1);

/// The write verifiers of servers; see [`ChunkStore::verifier`].
pub type Verifiers = SmallVec<[(ServerId, u64); 2]>;

/// How a mount talks to its data servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long a server may be away before a request fails.
    pub deadline: Duration,
    /// The shared key, for TCP.
    pub key: Option<Key>,
    /// Whether the buffers to be written stay unchanged until the call returns. Rust guarantees it; the memory of
    /// programs in other languages may change.
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
    unanswered: Unanswered,
    workers: OnceLock<Workers>,
    caller: Mutex<Caller>,
    /// Signalled when the session changes, or on close.
    changed: Condvar,
}

/// The session that requests are made for.
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
            unanswered: Unanswered::default(),
            workers: OnceLock::new(),
            caller: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Sets the session of new requests. Requests under way keep the earlier session, and are no longer retried where
    /// a server answers `Unavailable`. 0 means no session: remote servers refuse its changes of grid chunks.
    pub fn set_session(&self, session: SessionId) {
        self.caller.lock().session = session;
        self.changed.notify_all();
    }

    fn session(&self) -> SessionId {
        self.caller.lock().session
    }

    /// Waits before a server is retried. Returns false if the request of `session` is to be given up.
    fn pause(&self, session: SessionId, time: Duration, until: Instant) -> bool {
        let next = Instant::now() + time;
        let mut caller = self.caller.lock();
        while caller.session == session && !caller.closed {
            if interrupt::wait_until(&self.changed, &mut caller, next) {
                return next < until && !interrupt::is_raised();
            }
        }
        false
    }

    /// Makes `store`, which is in this process, serve as this server.
    pub fn add_local(&self, id: ServerId, store: Arc<dyn ChunkStore>) {
        self.change(|table| {
            table.insert(id, Target::Local(store));
        });
    }

    /// Sets the address of a server. A local one stays local.
    pub fn set_remote(&self, id: ServerId, addr: Addr) {
        self.set_remote_for(id, addr, self.options.deadline);
    }

    /// As [`Servers::set_remote`], for a server that is given up after this time if it is away.
    pub fn set_remote_for(&self, id: ServerId, addr: Addr, patience: Duration) {
        match self.table().get(&id) {
            Some(Target::Local(_)) => return,
            // Requests that wait for it at the old address continue at the new one.
            Some(Target::Remote(pool)) => {
                if pool.addr() != addr {
                    pool.move_to(addr);
                }
                return;
            }
            None => {}
        }
        let patience = patience.min(self.options.deadline);
        let pool = Pool::new(addr, self.options.key.clone(), patience);
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

    /// Whether file descriptors of chunks of other processes are open here, so that they are read without a request.
    pub fn has_same_host_files(&self) -> bool {
        self.same_host.are_any()
    }

    /// Whether a chunk is read in this process: its server is here, or its same-host file descriptor is open here.
    pub fn is_same_host(&self, id: ServerId, name: &ChunkName) -> bool {
        self.same_host.has(id, name) || self.is_local(id)
    }

    /// Requests where chunks of a server are in its memory, if this process has mapped that, ahead of their reads.
    pub fn look_ahead(&self, server: ServerId, names: &[ChunkName]) {
        let table = self.table();
        if let Ok(Target::Remote(pool)) = target(&table, server) {
            let until = crate::wire::Until::from(Instant::now() + AHEAD.min(self.options.deadline));
            self.same_host.look_ahead(server, pool, names, until);
        }
    }

    /// Closes the same-host file descriptors of these chunks, which are about to be replaced by others.
    pub fn give_back(&self, names: &[(ServerId, ChunkName)]) {
        self.same_host.forget_all(names);
    }

    /// Closes all same-host file descriptors.
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

    /// The counters of requests, messages and bytes since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Ends all waiting for unreachable servers; remote requests fail from now on.
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

    /// The deadline of a request that begins now.
    fn until(&self) -> Instant {
        Instant::now() + self.options.deadline
    }
}

/// The entry of a server, or an error if this mount does not know the server.
fn target(table: &Table, id: ServerId) -> Result<&Target> {
    table.get(&id).ok_or_else(|| StoreError::Unavailable {
        server: id,
        addr: "an unknown address".into(),
        detail: "this mount does not know it yet".into(),
    })
}
