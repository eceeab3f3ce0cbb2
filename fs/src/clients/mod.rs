//! [`Clients`]: a mount's sessions with all shards of a filesystem, one [`Client`] each.
//!
//! Most filesystems have one shard, and then this adds nothing. Of a filesystem that is divided (docs/decisions/33-shards.md) the first
//! client has names, directories, links and devices; an object is in the client of its shard, with its rights, locks, caches and dirty
//! data. What concerns one inode is done by the client that has it ([`Clients::of`]); what concerns names and objects is here, and in
//! [`Shards`].
//!
//! Invariant: an entry that is returned has the attributes that the inode's own shard has.
//!
//! Deliberately elsewhere: everything about data (`client`).

mod find;
mod mount;
mod names;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slabfs_mdserver::api::{Ino, Metadata, Shard};
use slabfs_mdserver::client::{Md, Shards};
use slabfs_model::ShardId;
use slabfs_objstore::client::Servers;

use crate::client::{Client, ClientOptions, FsError, MemoryOptions};

/// How often what this mount has done is reported to the shard of names.
const REPORT: Duration = Duration::from_millis(500);
/// How often this mount looks for what others have left undone, and how long ago that has to be.
const LOOK: Duration = Duration::from_secs(5);
const LEFT: Duration = Duration::from_secs(3);

/// How to reach one shard.
pub struct ShardAt {
    /// Its metadata service.
    pub metadata: Arc<dyn Metadata>,
    /// Connections to the data servers, for its session.
    pub servers: Arc<Servers>,
    /// How its client makes memory for coupled objects; none if it does not write any.
    pub memory: Option<MemoryOptions>,
}

/// The clients of all shards; see the module documentation.
pub struct Clients {
    all: Vec<Arc<Client>>,
    shards: Shards,
    stopping: Mutex<bool>,
    wake: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.all).finish()
    }
}

impl From<Arc<Client>> for Clients {
    /// Of a filesystem that is not divided.
    fn from(client: Arc<Client>) -> Clients {
        Clients::over(vec![client])
    }
}

impl Clients {
    /// Opens a session with each shard, in the order of their numbers. Limits of memory are for all together.
    ///
    /// # Errors
    /// When a metadata service refuses or is unreachable, or is not the shard that it is taken for.
    pub fn start(at: Vec<ShardAt>, options: &ClientOptions) -> Result<Arc<Clients>, FsError> {
        let count = at.len().max(1) as u64;
        let of = u8::try_from(at.len())
            .map_err(|_| FsError::Invalid("a filesystem has at most 64 shards".into()))?;
        let family = Arc::new(());
        let mut all: Vec<Arc<Client>> = Vec::with_capacity(at.len());
        for (index, one) in (0..).zip(at) {
            let shard = Shard {
                index: ShardId(index),
                of,
            };
            let options = ClientOptions {
                dirty_limit: (options.dirty_limit / count).max(ClientOptions::LEAST_DIRTY),
                cache_bytes: options.cache_bytes / count,
                tilings_bytes: options.tilings_bytes / count,
                transfer_limit: options.transfer_limit / count,
                memory: one.memory,
                ..options.clone()
            };
            let started =
                Client::start_shard(one.metadata, one.servers, options, shard, family.clone());
            match started {
                Ok(client) => all.push(client),
                Err(error) => {
                    for client in &all {
                        if let Err(other) = client.stop() {
                            tracing::debug!("the session ends by its lease: {other}");
                        }
                    }
                    return Err(error);
                }
            }
        }
        let clients = Arc::new(Clients::over(all));
        if clients.divided() && !clients.read_only() {
            let worker = Arc::downgrade(&clients);
            let thread = std::thread::Builder::new()
                .name("slabfs-shards".into())
                .spawn(move || {
                    let mut looked = Instant::now();
                    while let Some(clients) = worker.upgrade() {
                        if clients.pause(REPORT) {
                            return;
                        }
                        let look = looked.elapsed() >= LOOK;
                        let done = match look {
                            true => clients.shards.finish(LEFT),
                            false => clients.shards.report(),
                        };
                        if look {
                            looked = Instant::now();
                        }
                        if let Err(error) = done {
                            tracing::debug!("shards do not agree yet: {error}");
                        }
                    }
                })
                .map_err(|error| {
                    FsError::Invalid(format!("no thread could be started: {error}"))
                })?;
            *clients.thread.lock() = Some(thread);
        }
        Ok(clients)
    }

    fn over(all: Vec<Arc<Client>>) -> Clients {
        for client in all.iter().skip(1) {
            client.take_names(all[0].md());
        }
        let shards = Shards::new(all.iter().map(|client| client.md().clone()).collect());
        Clients {
            all,
            shards,
            stopping: Mutex::new(false),
            wake: Condvar::new(),
            thread: Mutex::new(None),
        }
    }

    /// Waits for `time`, or until the clients stop; true when they stop.
    fn pause(&self, time: Duration) -> bool {
        let mut stopping = self.stopping.lock();
        if !*stopping {
            self.wake.wait_for(&mut stopping, time);
        }
        *stopping
    }

    /// Whether objects are in other shards than names.
    pub fn divided(&self) -> bool {
        self.all.len() > 1
    }

    /// The client that has names and directories.
    pub fn names(&self) -> &Arc<Client> {
        &self.all[0]
    }

    /// The client that has an inode. For a number of no shard it is the first, which answers that there is no such inode.
    pub fn of(&self, ino: Ino) -> &Arc<Client> {
        match self.all.as_slice() {
            [only] => only,
            all => all.get(usize::from(ino.shard().0)).unwrap_or(&all[0]),
        }
    }

    /// The metadata service that has an inode, for operations on it.
    pub fn md(&self, ino: Ino) -> &Md {
        self.of(ino).md()
    }

    /// All clients, that of names first.
    pub fn all(&self) -> &[Arc<Client>] {
        &self.all
    }
}
