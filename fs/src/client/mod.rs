//! The client library: the only place that joins the metadata service and the data servers.
//!
//! A [`Client`] is one session. It opens objects as [`Handle`]s, whose reads and writes count bytes of the
//! object's canonical order, or of a selection of it. What happens inside, by file:
//!
//! - `object` what all handles of an object share, and the order of its locks; `geometry` its form
//! - `write`, `runs`, `stream`, `grid_io` the three ways of a write, `overlaps` where two of them meet; `flush` data first, then commit;
//!   `behind` flushes before writers have to wait; `stream_end` seals streams, `slabs` what becomes a chunk
//! - `place` which data server gets a new chunk; `drain` moves chunks off one, `permit` keeps writers apart
//!   from that
//! - `read`, `block_cache` committed bytes with what is newer painted over; `ahead` reads at equal steps; `wanted` chunks whose files
//!   are lent;
//!   `batch`, `batch_write` read and write nested strided patterns
//! - `transfer` regions between the caller's memory and objects, many under way at the same time
//! - `part` selections through a handle of the whole object
//! - `resize` whatever changes an object's form
//! - `find` searches
//! - `locks` advisory locks: what is held, who waits
//! - `rights` what other mounts must not do meanwhile, and what they may ask back
//! - `session` attaching, heartbeats, what runs in the background; `epoch` what happens when the session
//!   is not heard, or is over
//!
//! Invariants: a read that starts after a write has returned sees it; a flush never shows old bytes over
//! newer ones; memory for unflushed data is bounded, and writers wait; what `fsync` acknowledged is on the
//! servers' disks and in the metadata journal.
//!
//! Deliberately elsewhere: names and paths (`view`), FUSE and errno (`mount`).

mod adopt;
mod ahead;
mod batch;
mod batch_write;
mod block_cache;
mod committed;
mod drain;
mod error;
mod find;
mod flush;
mod fresh;
mod geometry;
mod grid_io;
mod handle;
mod holes;
mod layout;
mod lease;
mod locks;
mod namespace;
mod object;
mod open;
mod overlap;
mod overlay;
mod part;
mod payload;
mod permit;
mod place;
mod range_lock;
mod read;
mod resize;
mod rights;
mod runs;
mod same_host;
mod session;
mod slabs;
mod stream;
mod stream_end;
mod tilings;
pub mod transfer;
mod write;
mod write_back;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::{Condvar, Mutex, RwLock};
use slabfs_mdserver::api::{CHUNK_LIMIT, Ino, Md};
use slabfs_model::ServerId;
use slabfs_objstore::ChunkName;
use slabfs_objstore::client::{Counters, Servers};

pub(crate) use batch::invalid_batch;
pub use drain::Drained;
pub use error::FsError;
pub use find::{MAX_SORTED, Search, Sort};
pub use handle::{Handle, OpenMode, ReadSink, Written};
pub use layout::{ChunkView, LayoutView};
pub use lease::Caches;
pub use locks::{Locked, Then};
pub use part::{Part, Wanted};
pub use rights::Consistency;

use ahead::Windows;
use block_cache::BlockCache;
use lease::Lease;
use locks::Locks;
use object::Object;
use place::{Known, LeasedIds, Places};
use rights::Rights;
use tilings::Tilings;
use transfer::Transfers;
use write_back::Behind;

/// How often a request looks at an object's form anew before it gives up.
const FORM_TRIES: usize = 16;

/// Settings of a client.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Bytes of unflushed data, all objects together, before writers wait; from half of it on it is written back.
    pub dirty_limit: u64,
    /// Bytes of the cache for small reads of far or coded chunks; half as much more may be read ahead.
    pub cache_bytes: u64,
    /// Bytes of what is known of the chunks of arrays.
    pub tilings_bytes: u64,
    /// Unflushed data older than this is flushed.
    pub flush_age: Duration,
    /// Nothing may be changed through this client.
    pub read_only: bool,
    /// Plain writes of at least this many bytes do not wait in memory.
    pub direct_min: usize,
    /// A stream keeps up to this many bytes of small writes together before it sends them.
    pub tail_limit: usize,
    /// Largest chunk of an `aligned` object, in bytes.
    pub chunk_limit: u64,
    /// How long a request waits for data servers that nobody has heard of yet.
    pub io_timeout: Duration,
    /// The name of this machine, by which placement `local` finds its servers; the host's name if none.
    pub host: Option<String>,
    /// What this mount and others see of each other.
    pub consistency: Consistency,
    /// Bytes of transfers that are under way before others wait for them to start; each counts for 4 KiB more.
    pub transfer_limit: u64,
    /// Threads that run transfers, at most; made when they are needed.
    pub transfer_threads: usize,
    /// Where other processes reach the metadata service, as an address; none if they cannot.
    pub metadata_addr: Option<String>,
}

impl ClientOptions {
    /// The least `dirty_limit`: one request of the kernel's. With less, each of its writes would wait for the servers.
    pub const LEAST_DIRTY: u64 = 1 << 20;
    /// The least `io_timeout`: servers that are well may take longer to answer than less.
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
        }
    }
}

/// One more than processors, since one of them waits for servers, from two to four: with more, buffers that servers and sockets use anew leave the caches
/// before that.
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
    cache: BlockCache,
    tilings: Tilings,
    windows: Windows,
    /// Bytes of unflushed data.
    dirty: AtomicI64,
    behind: Behind,
    /// Flushes that had something to writes back.
    flushes: AtomicU64,
    next_handle: AtomicU64,
    /// This machine, by name.
    host: String,
    /// The data servers this mount has been told of.
    known: Mutex<Arc<Known>>,
    /// Held by whoever asks for the list until he has taken it over: an older one must not take the place
    /// of a newer, by which the metadata service believes this mount to go.
    listing: Mutex<()>,
    /// Lists before that one, for as long as a write goes by them; and the version of the oldest list
    /// that is gone by.
    elder: Mutex<Vec<std::sync::Weak<Known>>>,
    known_version: AtomicU64,
    next_permit: AtomicU64,
    leased_ids: Mutex<LeasedIds>,
    places: Mutex<Places>,
    /// Chunks of closed objects that are not known to be on disk yet.
    settling: Mutex<Vec<Settling>>,
    /// Held by whoever works on that list, so that its head stays where it is.
    settling_closed: Mutex<()>,
    /// Held for each round of what is done without being asked for.
    upkeep: Mutex<()>,
    /// Releases that the metadata service has not been told yet.
    releases: Mutex<Vec<Ino>>,
    stopping: Mutex<bool>,
    wake: Condvar,
    threads: Mutex<Vec<std::thread::JoinHandle<()>>>,
    locks: Locks,
    rights: Rights,
    transfers: Transfers,
    lease: Lease,
    /// The lease of the session; zero where it lives as long as this process.
    lease_time: Mutex<Duration>,
    /// Held shared by what must begin and end in one session, alone while another one is attached. Comes
    /// before all locks of objects.
    attached: RwLock<()>,
}

/// What a closed object left to be synced in the background.
#[derive(Debug)]
struct Settling {
    ino: Ino,
    version: slabfs_model::Version,
    chunks: Vec<(ServerId, ChunkName)>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.md.session())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// The metadata service, for what needs no data: namespace and attributes.
    pub fn md(&self) -> &Md {
        &self.md
    }

    /// Whether no other session is attached, so that what the kernel caches stays true. A mount that takes
    /// part in rights hears of the end of that before anybody else can change anything.
    pub fn alone(&self) -> bool {
        self.md.session_count() <= 1 && !self.rights.shared()
    }

    /// Where other processes reach the metadata service, if they can.
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
        let rights = self.rights.counts();
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
            "sessions": self.md.session_count(),
            "session": self.md.session().0,
            "sessions_lost": self.epoch(),
            "lapsed": self.lapsed(),
        })
    }
}
