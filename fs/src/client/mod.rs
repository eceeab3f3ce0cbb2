//! The client library: the only place that joins the metadata service and the data servers.
//!
//! A [`Client`] is one session. It opens objects as [`Handle`]s, whose reads and writes count bytes of the object's
//! canonical order, or of a selection of it. The parts, a folder each:
//!
//! - `handle` an open file or selection: plain reads and writes
//! - `request` lists of selections and nested strided patterns of any objects: planned, entered, moved and committed
//!   together; `transfer` requests that are started, and waited for
//! - `buffer` write-behind: dirty runs, streams, what reads see of them, and flushes
//! - `stored` committed bytes: tilings, parts of chunks, caches, read-ahead, chunks of data servers on this host
//! - `commit` sending bytes, commits and syncs
//! - `object` the state shared by all handles of an object, and the order of its locks; its form, opening, resizing
//! - `coherence` rights of this mount and their recall, advisory locks, range locks of its own requests
//! - `coupling` coupled objects: what is announced, and what reads wait for
//! - `placement` which data server gets a new chunk, write permits, drains
//! - `session` attaching, heartbeats, background threads, and the lease
//!
//! `find` searches; `error` is what all of them return.
//!
//! Invariants: a read that starts after a write has returned sees it; a flush never shows old bytes over newer ones;
//! memory for unflushed data is bounded, and writers wait; data that `fsync` acknowledged is on the servers' disks
//! and in the metadata journal.
//!
//! Deliberately elsewhere: names and paths (`view`), FUSE and errno (`mount`).

mod buffer;
mod coherence;
mod commit;
mod coupling;
mod error;
mod find;
mod handle;
mod object;
mod placement;
mod request;
mod session;
mod stored;
pub mod transfer;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};
use slabfs_mdserver::api::{CHUNK_LIMIT, Ino, Shard, Time};
use slabfs_mdserver::client::Md;
use slabfs_model::ShardId;
use slabfs_objstore::client::{Counters, Servers};

pub use coherence::locks::{Locked, Then};
pub use coherence::rights::Consistency;
pub use coupling::{MemoryOptions, for_thread};
pub use error::FsError;
pub use find::{MAX_SORTED, Search, Sort};
pub use handle::part::{Part, Wanted};
pub use handle::{Handle, OpenMode, ReadSink, Written};
pub use placement::drain::Drained;
pub use request::EncodedChunk;
pub use session::lease::Caches;
pub use stored::layout::{ChunkView, LayoutView};

use buffer::write_back::Behind;
use coherence::locks::Locks;
use coherence::rights::Rights;
use commit::Unsynced;
use coupling::Coupling;
use object::Object;
use object::open::Closes;
use placement::place::{Known, LeasedIds, Places};
use session::lease::Lease;
use stored::ahead::Windows;
use stored::block_cache::BlockCache;
use stored::tilings::Tilings;
use transfer::Transfers;

/// How often a request refreshes an object's form before it gives up.
const FORM_TRIES: usize = 16;

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Bytes of unflushed data, all objects together, before writers wait; write-back begins at half of it.
    pub dirty_limit: u64,
    /// Bytes of the cache for small reads of remote or coded chunks; half as much more may be read ahead.
    pub cache_bytes: u64,
    /// Bytes of cached tilings.
    pub tilings_bytes: u64,
    /// Unflushed data older than this is flushed.
    pub flush_age: Duration,
    /// Nothing may be changed through this client.
    pub read_only: bool,
    /// Plain writes of at least this many bytes bypass the dirty runs.
    pub direct_min: usize,
    /// A stream buffers up to this many bytes of small writes before it sends them.
    pub tail_limit: usize,
    /// Largest chunk of an `aligned` object, in bytes.
    pub chunk_limit: u64,
    /// How long a request waits for data servers that are not known yet.
    pub io_timeout: Duration,
    /// The name of this machine, by which placement `local` finds its servers; the host's name if none.
    pub host: Option<String>,
    /// The consistency between this mount and others.
    pub consistency: Consistency,
    /// Bytes of transfers under way before others wait for them to start; each counts for 4 KiB more.
    pub transfer_limit: u64,
    /// Threads that run transfers, at most; made when they are needed.
    pub transfer_threads: usize,
    /// The address at which other processes reach the metadata service; none if they cannot.
    pub metadata_addr: Option<String>,
    /// How it makes memory for coupled objects; none if it does not write any.
    pub memory: Option<MemoryOptions>,
}

impl ClientOptions {
    /// The least `dirty_limit`: one request of the kernel. With less, each of its writes would wait for the servers.
    pub const LEAST_DIRTY: u64 = 1 << 20;
    /// The least `io_timeout`: healthy servers may take longer to reply than less.
    pub const LEAST_TIMEOUT: Duration = Duration::from_millis(100);
}

impl Default for ClientOptions {
    fn default() -> Self {
        ClientOptions {
            dirty_limit: 256 << 20,
            cache_bytes: 64 << 20,
            tilings_bytes: 64 << 20,
            flush_age: Duration::from_secs(30),
            read_only: false,
            direct_min: 128 << 10,
            tail_limit: 1 << 20,
            chunk_limit: CHUNK_LIMIT,
            io_timeout: Duration::from_secs(30),
            host: None,
            consistency: Consistency::default(),
            transfer_limit: 1 << 30,
            transfer_threads: transfer_threads(),
            metadata_addr: None,
            memory: None,
        }
    }
}

/// One more than processors, since one of them waits for servers, from two to four: with more, buffers that servers
/// and sockets reuse are evicted from the CPU caches before that.
fn transfer_threads() -> usize {
    std::thread::available_parallelism().map_or(2, |processors| (processors.get() + 1).clamp(2, 4))
}

/// A session with a metadata service and its data servers; shared by everything of one mount.
pub struct Client {
    md: Md,
    servers: Arc<Servers>,
    options: ClientOptions,
    /// Everything is in this process: calls block on nothing but the disk.
    local: bool,
    objects: Mutex<HashMap<Ino, Arc<Object>>>,
    /// Taken last.
    closes: Mutex<Closes>,
    cache: BlockCache,
    tilings: Tilings,
    windows: Windows,
    /// Bytes of unflushed data.
    dirty: AtomicI64,
    behind: Behind,
    /// Number of flushes that had data to write back.
    flushes: AtomicU64,
    next_handle: AtomicU64,
    /// This machine, by name.
    host: String,
    /// The data servers that this mount knows.
    known: Mutex<Arc<Known>>,
    /// Serialises refreshes of the server list. A late, older reply must not replace a newer list that this mount has
    /// acknowledged to the metadata service.
    listing: Mutex<()>,
    /// Older lists, for as long as a write uses one; and the version of the oldest list in use.
    older_lists: Mutex<Vec<std::sync::Weak<Known>>>,
    known_version: AtomicU64,
    next_permit: AtomicU64,
    leased_ids: Mutex<LeasedIds>,
    places: Mutex<Places>,
    /// Chunks of closed objects that are not known to be on disk yet.
    settling: Mutex<Vec<Settling>>,
    /// Serialises work on that list, so that its head stays in place.
    settling_closed: Mutex<()>,
    /// Held during each round of background work.
    upkeep: Mutex<()>,
    /// Closed objects that have to be reported to the metadata service.
    releases: Mutex<Vec<Ino>>,
    stopping: Mutex<bool>,
    wake: Condvar,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    locks: Locks,
    rights: Rights,
    transfers: Transfers,
    coupling: Coupling,
    lease: Lease,
    /// The session with the shard that has the names, if that is another one.
    names: OnceLock<Md>,
    /// Which shard it is the client of.
    shard: Shard,
    /// Shared by the clients of all shards of one filesystem on this mount.
    family: Arc<()>,
    /// When the root directory was created, by which the filesystem is known again.
    root_created: Time,
    /// Another filesystem is at the address of the metadata service: every operation fails.
    replaced: AtomicBool,
    /// The lease of the session; zero where it lasts as long as this process.
    lease_time: Mutex<Duration>,
    /// Held shared by operations that must begin and end in one session, exclusively while another one is attached.
    /// Taken before all locks of objects.
    attached: RwLock<()>,
}

/// The unsynced chunks of a closed object, to be synced in the background.
#[derive(Debug)]
struct Settling {
    ino: Ino,
    version: slabfs_model::Version,
    chunks: Unsynced,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.md.session())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The metadata service, for operations without data: namespace and attributes.
    pub fn md(&self) -> &Md {
        &self.md
    }

    /// Whether no other session is attached, so that the kernel's caches stay valid. A strict mount is notified of
    /// the end of that before any other mount can make a change.
    pub fn alone(&self) -> bool {
        self.md.session_count() <= 1 && !self.rights.shared()
    }

    /// The address at which other processes reach the metadata service, if they can.
    pub fn metadata_addr(&self) -> Option<&str> {
        self.options.metadata_addr.as_deref()
    }

    /// Whether metadata service and data servers are all in this process.
    pub fn local(&self) -> bool {
        self.local
    }

    /// Whether nothing may be changed through this client.
    pub fn read_only(&self) -> bool {
        self.options.read_only
    }

    /// The metadata service that has the names of objects.
    fn names(&self) -> &Md {
        self.names.get().unwrap_or(&self.md)
    }

    /// Takes the session with the shard that has the names.
    pub(crate) fn take_names(&self, names: &Md) {
        if self.names.set(names.clone()).is_err() {
            tracing::error!("a client has its names already");
        }
    }

    /// The shard, if the filesystem has several.
    fn only_shard(&self) -> Option<ShardId> {
        self.shard.divided().then_some(self.shard.index)
    }

    fn servers(&self) -> &Servers {
        &self.servers
    }

    fn counters(&self) -> &Counters {
        self.servers.counters()
    }

    fn cache(&self) -> &BlockCache {
        &self.cache
    }

    fn windows(&self) -> &Windows {
        &self.windows
    }

    fn chunk_limit(&self) -> u64 {
        self.options.chunk_limit
    }

    /// Whether everything that operations may wait for is in this process: they may run on any thread.
    pub fn is_same_host(&self) -> bool {
        self.local && !self.rights.shared()
    }

    /// Counters and state of this client, as `.slabfs/stats` shows them.
    pub fn stats(&self) -> serde_json::Value {
        let rights = &self.rights.counts;
        let requests = self.md.requests();
        let (tilings, tiling_bytes) = self.tilings.gauges();
        let (transfers, under_way, transfer_bytes, waiting) = self.transfers.gauges();
        serde_json::json!({
            "counters": self.counters().snapshot(),
            "dirty_bytes": self.dirty.load(Ordering::Relaxed).max(0),
            "flushes": self.flushes.load(Ordering::Relaxed),
            "commits": requests.commits,
            "metadata_requests": requests.all,
            "names_from_memory": self.md.name_cache_hits(),
            "transfers": transfers,
            "transfers_running": under_way,
            "transfers_waiting": waiting,
            "transfer_bytes": transfer_bytes,
            "open_objects": self.objects.lock().len(),
            "tilings": tilings,
            "tiling_bytes": tiling_bytes,
            "locks_held": self.locks.held(),
            "locks_waiting": self.locks.waiting(),
            "strict": self.rights.strict(),
            "alone": self.alone(),
            "rights_asked": rights.asked,
            "rights_granted": rights.granted,
            "rights_recalled": rights.recalled,
            "rights_given": rights.given,
            "rights_held": self.rights.held(),
            "coupled_matches": self.coupling.matches(),
            "sessions": self.md.session_count(),
            "session": self.md.session().0,
            "sessions_lost": self.epoch(),
            "lapsed": self.lapsed(),
        })
    }
}
