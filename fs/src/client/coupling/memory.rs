//! The memory server of a mount: a data server for the chunks of coupled objects that this mount writes.
//!
//! Its store is in memory of this process, which other mounts on this machine map. It is started by the first write to an
//! object that is coupled in memory, listens for other mounts, and reports to the metadata service as every data server
//! does; chunks of other objects are never placed on it. Its data ends with the mount.
//!
//! Its socket is in a directory of `/dev/shm`. A mount that is killed leaves that: the next mount of the same user on this
//! machine that starts a memory server removes it, since its lock is free then.

use std::fs::{File, OpenOptions};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use parking_lot::Mutex;
use slabfs_mdserver::api::op;
use slabfs_model::{Keep, ServerId};
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions, Registrar};
use slabfs_objstore::store::{MemoryBytes, MemoryStore};
use slabfs_objstore::wire::{Key, Listener};
use slabfs_objstore::{Addr, Addrs, ChunkStore, StoreError};

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::geometry::Geometry;

/// Where the sockets are.
const SOCKETS: &str = "/dev/shm";
/// The beginning of the name of each directory, before the user.
const PREFIX: &str = "slabfs-memory";
/// The lock in a directory.
const LOCK: &str = "lock";
/// The pause while removed data is deleted.
const RECLAIM: Duration = Duration::from_millis(200);
/// How long that is not tried again if it was in vain.
const IN_VAIN: Duration = Duration::from_secs(5);
/// The size of the memory if that of the machine is not known.
const OTHERWISE: u64 = 1 << 30;
/// Shorter writes are copied into chunks together.
const SHORT: usize = 64 << 10;
/// How long the metadata service may take to register the server.
const REGISTERED: Duration = Duration::from_secs(10);

/// How a client makes its memory server.
#[derive(Clone)]
pub struct MemoryOptions {
    /// The metadata service, as data servers know it.
    pub registrar: Arc<dyn Registrar>,
    /// The address of the metadata service; `None` if no other process reaches it.
    pub metadata: Option<Addrs>,
    /// The key of TCP connections.
    pub key: Option<Key>,
    /// Most bytes of chunks; the memory is taken as it is used.
    pub size: u64,
}

impl MemoryOptions {
    /// Half of the memory of this machine.
    #[must_use]
    pub fn half() -> u64 {
        let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let total = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        total.map_or(OTHERWISE, |kib| kib * 512)
    }
}

impl std::fmt::Debug for MemoryOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryOptions")
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Memory {
    options: Option<MemoryOptions>,
    running: Mutex<Option<Running>>,
    /// When nothing was there to delete, though it was full.
    in_vain: Mutex<Option<Instant>>,
    /// The store of the running one.
    store: OnceLock<(ServerId, Arc<MemoryStore>)>,
}

struct Running {
    id: ServerId,
    dir: PathBuf,
    heart: Heart,
    server: DataServer,
    store: Arc<MemoryStore>,
    /// Not before the others are stopped.
    _lock: File,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running")
            .field("id", &self.id)
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Memory {
    pub(super) fn new(options: Option<MemoryOptions>) -> Memory {
        Memory {
            options,
            running: Mutex::default(),
            in_vain: Mutex::default(),
            store: OnceLock::new(),
        }
    }
}

impl Client {
    /// The memory server of this client, which is started if it does not run yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(in crate::client) fn memory_server(&self) -> Result<ServerId, FsError> {
        let mut running = self.coupling.memory.running.lock();
        if let Some(running) = &*running {
            return Ok(running.id);
        }
        let Some(options) = &self.coupling.memory.options else {
            return Err(FsError::NotSupported(
                "this program has no memory for coupled objects; write them through a mount".into(),
            ));
        };
        let started = start(options, &self.host)?;
        self.servers().add_local(
            started.id,
            Arc::clone(&started.store) as Arc<dyn ChunkStore>,
        );
        // The list of servers has it from now on.
        self.ask_servers()?;
        tracing::info!(server = %started.id, dir = %started.dir.display(), "memory server for coupled objects");
        let id = started.id;
        let _first = self
            .coupling
            .memory
            .store
            .set((id, Arc::clone(&started.store)));
        *running = Some(started);
        Ok(id)
    }

    /// Has the memory server of this client ask what it has to delete, and waits a moment; false for objects that have no
    /// chunks there, or may spill.
    pub(in crate::client) fn reclaim_memory(&self, geometry: &Geometry) -> bool {
        let couple = geometry.info.couple.on();
        let only_there = couple.is_some_and(|couple| couple.keep == Keep::Memory && !couple.spill);
        let in_vain = self.coupling.memory.in_vain.lock();
        if !only_there || in_vain.is_some_and(|at| at.elapsed() < IN_VAIN) {
            return false;
        }
        drop(in_vain);
        // The thread that reports closed objects may wait for this flush, and until then they are not removed.
        self.send_releases();
        // What was removed is deleted once the journal is on disk, which happens every two seconds otherwise.
        if let Err(error) = self.md.call(op::Sync {}) {
            tracing::debug!(%error, "removed data is deleted later");
        }
        if let Some(running) = &*self.coupling.memory.running.lock() {
            running.heart.hurry();
        }
        !self.pause(RECLAIM)
    }

    /// Notes whether that has helped: if not, it is not tried again for a while.
    pub(in crate::client) fn reclaimed(&self, helped: bool) {
        *self.coupling.memory.in_vain.lock() = (!helped).then(Instant::now);
    }

    /// Whether a server is the memory server of this client.
    pub(in crate::client) fn is_own_memory(&self, server: ServerId) -> bool {
        let own = self.coupling.memory.store.get();
        own.is_some_and(|(id, _)| *id == server)
    }

    /// A copy of these bytes in the memory of the running memory server, unless they are few or there is no room.
    pub(in crate::client) fn copy_to_memory(&self, bytes: &[u8]) -> Option<MemoryBytes> {
        match bytes.len() >= SHORT {
            true => self.coupling.memory.store.get()?.1.copy(bytes),
            false => None,
        }
    }

    /// Ends the memory server, and with it the data of coupled objects that this client has written. The session is
    /// alive, so that readers know at once.
    pub(in crate::client) fn stop_memory_server(&self) {
        let Some(running) = self.coupling.memory.running.lock().take() else {
            return;
        };
        running.heart.stop();
        if let Err(error) = self.md.call(op::EndMemory { server: running.id }) {
            tracing::debug!(%error, "readers find out themselves that the memory of coupled objects is gone");
        }
        running.server.shutdown();
        if let Err(error) = std::fs::remove_dir_all(&running.dir) {
            tracing::warn!(%error, dir = %running.dir.display(), "the directory of a memory server was not removed");
        }
    }
}

fn start(options: &MemoryOptions, host: &str) -> Result<Running, FsError> {
    let user = nix::unistd::geteuid();
    let prefix = format!("{PREFIX}-{user}-");
    let parent = Path::new(SOCKETS);
    // Held until the store has locked its directory, which would count as abandoned until then.
    let cleaning = match locked(&parent.join(format!("{PREFIX}-{user}.lock"))) {
        Ok(lock) => {
            remove_abandoned(parent, &prefix, user);
            Some(lock)
        }
        Err(error) => {
            tracing::warn!(%error, "directories of mounts that were killed are not looked for");
            None
        }
    };
    let dir = new_dir(parent, &prefix)?;
    let own = locked(&dir.join(LOCK))
        .map_err(|error| unusable("locking a directory", &error.to_string()))?;
    drop(cleaning);
    let store = Arc::new(MemoryStore::new(options.size)?);
    let services = options.metadata.iter().flat_map(Addrs::all);
    let services = services.filter_map(|addr| match addr {
        Addr::Tcp(service) => Some(&**service),
        Addr::Unix(_) => None,
    });
    let services: Vec<&str> = services.collect();
    let addr = match services.is_empty() {
        false => Addr::Tcp(format!("{}:0", own_address(&services)?)),
        // Processes that reach the service are on this machine.
        true => Addr::Unix(dir.join("socket")),
    };
    let listener = Listener::bind(&addr, options.key.clone())
        .map_err(|error| unusable("listening for other mounts", &error.to_string()))?;
    let reachable = listener.addr().clone();
    let shared: Arc<dyn ChunkStore> = Arc::clone(&store) as Arc<dyn ChunkStore>;
    let fence = Arc::new(Fence::in_memory());
    let server = DataServer::start_fenced(Arc::clone(&shared), listener, Arc::clone(&fence))
        .map_err(|error| unusable("listening for other mounts", &error.to_string()))?;
    let mut heart = HeartOptions::new(store.id(), Some(reachable));
    heart.host = host.to_owned();
    heart.memory = true;
    let heart = Heart::start(shared, Arc::clone(&options.registrar), fence, heart)?;
    let id = heart.registered(REGISTERED)?;
    Ok(Running {
        id,
        dir,
        heart,
        server,
        store,
        _lock: own,
    })
}

/// This machine's address on the way to the metadata service: other mounts, which reach that, reach this, too.
fn own_address(services: &[&str]) -> Result<String, FsError> {
    let ways = services
        .iter()
        .map(|service| TcpStream::connect(service).and_then(|stream| stream.local_addr()));
    let mut last = String::new();
    let way = ways.into_iter().find_map(|way| match way {
        Ok(way) => Some(way),
        Err(error) => {
            last = error.to_string();
            None
        }
    });
    let way = way.ok_or_else(|| unusable("finding this machine's address", &last))?;
    Ok(match way.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    })
}

fn new_dir(parent: &Path, prefix: &str) -> Result<PathBuf, FsError> {
    let pid = std::process::id();
    for number in 0u32..1000 {
        let dir = parent.join(format!("{prefix}{pid}-{number}"));
        match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(unusable("making a directory in memory", &error.to_string())),
        }
    }
    Err(unusable(
        "making a directory in memory",
        "all names are taken",
    ))
}

/// Takes the lock of a file, which is created if it is missing.
fn locked(path: &Path) -> std::io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(path)?;
    file.lock()?;
    Ok(file)
}

/// Removes the directories of mounts of this user that were killed. Others may make names like these there.
fn remove_abandoned(parent: &Path, prefix: &str, user: Uid) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let is_own = |meta: std::fs::Metadata| meta.is_dir() && meta.uid() == user.as_raw();
        if !entry.metadata().is_ok_and(is_own) {
            continue;
        }
        let dir = entry.path();
        // One that is in use is locked.
        let lock = OpenOptions::new()
            .write(true)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
            .open(dir.join(LOCK));
        if lock.is_ok_and(|lock| lock.try_lock().is_err()) {
            continue;
        }
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::warn!(%error, dir = %dir.display(), "the directory of a mount that was killed was not removed");
        }
    }
}

fn unusable(what: &str, why: &str) -> FsError {
    FsError::Store(StoreError::Io {
        what: format!("{what} for coupled objects"),
        detail: why.to_owned(),
        errno: None,
    })
}
