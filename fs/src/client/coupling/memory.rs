//! The memory server of a mount: a data server for the chunks of coupled objects that this mount writes.
//!
//! Its store is a directory of a filesystem in memory (`/dev/shm`). It is started by the first write to an object that is
//! coupled in memory, listens for other mounts, and reports to the metadata service as every data server does; chunks of
//! other objects are never placed on it. Its data ends with the mount.
//!
//! A mount that is killed leaves its directory. The next mount of the same user on this machine that starts a memory
//! server removes it: the store's lock is free then.

use std::fs::{File, OpenOptions};
use std::net::{IpAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Uid;
use parking_lot::Mutex;
use slabfs_mdserver::api::op;
use slabfs_model::ServerId;
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions, Registrar};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::{Key, Listener};
use slabfs_objstore::{Addr, ChunkStore, StoreError};

use crate::client::Client;
use crate::client::error::FsError;

/// The filesystem in memory.
const IN_MEMORY: &str = "/dev/shm";
/// The beginning of the name of each directory, before the user.
const PREFIX: &str = "slabfs-memory";
/// How long the metadata service may take to register the server.
const REGISTERED: Duration = Duration::from_secs(10);

/// How a client makes its memory server.
#[derive(Clone)]
pub struct MemoryOptions {
    /// The metadata service, as data servers know it.
    pub registrar: Arc<dyn Registrar>,
    /// The address of the metadata service; `None` if no other process reaches it.
    pub metadata: Option<Addr>,
    /// The key of TCP connections.
    pub key: Option<Key>,
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
}

struct Running {
    id: ServerId,
    dir: PathBuf,
    heart: Heart,
    server: DataServer,
    /// Not before the others are stopped: it holds the directory's lock.
    _store: Arc<LocalStore>,
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
            Arc::clone(&started._store) as Arc<dyn ChunkStore>,
        );
        // The list of servers has it from now on.
        self.ask_servers()?;
        tracing::info!(server = %started.id, dir = %started.dir.display(), "memory server for coupled objects");
        let id = started.id;
        *running = Some(started);
        Ok(id)
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
            tracing::warn!(%error, dir = %running.dir.display(), "the memory of coupled objects was not freed");
        }
    }
}

fn start(options: &MemoryOptions, host: &str) -> Result<Running, FsError> {
    let user = nix::unistd::geteuid();
    let prefix = format!("{PREFIX}-{user}-");
    let parent = Path::new(IN_MEMORY);
    // Held until the store has locked its directory, which would count as abandoned until then.
    let cleaning = match locked(&parent.join(format!("{PREFIX}-{user}.lock"))) {
        Ok(lock) => {
            remove_abandoned(parent, &prefix, user);
            Some(lock)
        }
        Err(error) => {
            tracing::warn!(%error, "memory of mounts that were killed is not looked for");
            None
        }
    };
    let dir = new_dir(parent, &prefix)?;
    let store = LocalStore::open(
        &dir,
        LocalOptions {
            fsync: false,
            ..LocalOptions::default()
        },
    )?;
    drop(cleaning);
    let store = Arc::new(store);
    let addr = match &options.metadata {
        Some(Addr::Tcp(service)) => Addr::Tcp(format!("{}:0", own_address(service)?)),
        // Processes that reach the service are on this machine.
        Some(Addr::Unix(_)) | None => Addr::Unix(dir.join("socket")),
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
        _store: store,
    })
}

/// This machine's address on the way to the metadata service: other mounts, which reach that, reach this, too.
fn own_address(service: &str) -> Result<String, FsError> {
    let way = TcpStream::connect(service).and_then(|stream| stream.local_addr());
    let way =
        way.map_err(|error| unusable("finding this machine's address", &error.to_string()))?;
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
        let Ok(store) = LocalStore::open(&dir, LocalOptions::default()) else {
            continue;
        };
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::warn!(%error, dir = %dir.display(), "memory of a mount that was killed was not freed");
        }
        drop(store);
    }
}

fn unusable(what: &str, why: &str) -> FsError {
    FsError::Store(StoreError::Io {
        what: format!("{what} for coupled objects"),
        detail: why.to_owned(),
        errno: None,
    })
}
