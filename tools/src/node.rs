//! The components of a running slabfs: metadata service, data server, mount. Each owns the threads and files it
//! started and stops them cleanly; the subcommands choose the components.

use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use slabfs_fs::client::{ClientOptions, FsError, MemoryOptions};
use slabfs_fs::clients::{Clients, ShardAt};
use slabfs_fs::mount::{Mount, MountOptions, Running};
use slabfs_mdserver::api::{MdError, Metadata, op};
use slabfs_mdserver::client::LocalMd;
use slabfs_mdserver::kv::KvError;
use slabfs_mdserver::server::MdServer;
use slabfs_mdserver::service::{Service, ServiceError, ServiceOptions};
use slabfs_model::{ServerId, ShardId};
use slabfs_objstore::client::Options;
use slabfs_objstore::server::{DataServer, Fence, Heart, HeartOptions, Registrar};
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::{Key, Listener, WireError};
use slabfs_objstore::{Addr, Addrs, ChunkStore, StoreError};
use slabfs_s3::{Bucket, S3Addr, S3Options, S3Store, Uploads};

use crate::args::{MetaArgs, MountArgs, OnJournalError};
use crate::failure::{JOURNAL, ending, usage};
use crate::lifecycle::{OwnEnd, Shutdown};
use crate::mountpoint::source_name;

/// How long a metadata service may take to answer at the start before it counts as unreachable.
pub(crate) const GREETING: Duration = Duration::from_secs(1);

/// How long registering a data server with the metadata service of the same process may take.
const REGISTERED: Duration = Duration::from_secs(30);

/// The shared key, if one is given; TCP addresses need one.
pub(crate) fn key(file: Option<&Path>, addrs: &[Addr]) -> anyhow::Result<Option<Key>> {
    match file {
        Some(file) => Ok(Some(
            Key::load(file).map_err(|error| usage(error.to_string()))?,
        )),
        None => match addrs.iter().find(|addr| matches!(addr, Addr::Tcp(_))) {
            Some(addr) => Err(usage(format!(
                "{addr} needs a shared key: make one (head -c 32 /dev/urandom | base64 > key; chmod 600 key), give it to all processes with --key-file; or use unix:PATH on one machine"
            ))),
            None => Ok(None),
        },
    }
}

/// Listens at `addr`; an error says what occupies it.
pub(crate) fn listen(
    addr: &Addr,
    key: Option<Key>,
    shutdown: &Shutdown,
) -> anyhow::Result<Listener> {
    let listener = Listener::bind(addr, key).map_err(|error| {
        let advice = match &error {
            WireError::AddrInUse { .. } => "stop that one, or choose another address with --listen",
            _ => "choose another address with --listen",
        };
        anyhow::anyhow!("{error}; {advice}")
    })?;
    if let Addr::Unix(path) = listener.addr() {
        shutdown.covers_file(path.clone());
    }
    Ok(listener)
}

/// The options for connections from a mount to its data servers.
pub(crate) fn server_options(key: Option<Key>, deadline: Duration) -> Options {
    Options {
        deadline,
        key,
        ..Options::default()
    }
}

/// The chunk store in a directory, which is created if it is missing.
pub(crate) fn open_store(dir: &Path) -> anyhow::Result<Arc<LocalStore>> {
    make_private(dir)?;
    let store = LocalStore::open(dir, LocalOptions::default()).map_err(|error| {
        let locked = if matches!(error, StoreError::Locked { .. }) {
            ", which is locked"
        } else {
            ""
        };
        anyhow::anyhow!(
            "cannot use the data directory {}{locked}: {error}",
            dir.display()
        )
    })?;
    Ok(Arc::new(store))
}

/// Creates a directory that only its owner may enter: access to its files would bypass the mount's modes.
pub(crate) fn make_private(dir: &Path) -> anyhow::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| {
            format!(
                "cannot make the data directory {}; choose another with --data",
                dir.display()
            )
        })
}

/// The options of a metadata service.
pub(crate) fn service_options(args: &MetaArgs) -> ServiceOptions {
    let mut options = ServiceOptions::default().with_cache(args.meta_cache);
    options.kv.accept_loss = args.accept_loss;
    options
}

/// A metadata service in this process.
pub(crate) struct MetadataNode {
    service: Arc<Service>,
    server: Option<(MdServer, Addr)>,
    on_journal_error: OnJournalError,
}

impl MetadataNode {
    /// Opens the metadata service and logs what it recovered.
    pub(crate) fn open(
        dir: &Path,
        options: ServiceOptions,
        on_journal_error: OnJournalError,
    ) -> anyhow::Result<MetadataNode> {
        make_private(dir)?;
        let (service, recovery) = Service::open(dir, options).map_err(|error| {
            let advice = match &error {
                ServiceError::Kv(KvError::Locked { .. }) => {
                    "; stop the slabfs that runs on it, or choose another directory with --data"
                }
                ServiceError::Kv(KvError::Damaged { .. }) => {
                    "; restore a copy of the directory, or start with --accept-loss to continue without the entries named above"
                }
                _ => "",
            };
            let shown = dir.display();
            anyhow::anyhow!("cannot use the metadata directory {shown}: {error}{advice}")
        })?;
        tracing::info!("{}: {recovery}", dir.display());
        Ok(MetadataNode {
            service: Arc::new(service),
            server: None,
            on_journal_error,
        })
    }

    /// The service, for callers in this process.
    pub(crate) fn local(&self) -> Arc<dyn Metadata> {
        Arc::new(LocalMd(Arc::clone(&self.service)))
    }

    /// The service, for data servers in this process.
    pub(crate) fn registrar(&self) -> Arc<dyn Registrar> {
        Arc::clone(&self.service) as Arc<dyn Registrar>
    }

    /// Starts to serve other processes at `listener`.
    pub(crate) fn serve(&mut self, listener: Listener) -> anyhow::Result<()> {
        let addr = listener.addr().clone();
        self.server = Some((MdServer::start(Arc::clone(&self.service), listener)?, addr));
        Ok(())
    }

    /// The address at which other processes reach it.
    pub(crate) fn addr(&self) -> Option<&Addr> {
        self.server.as_ref().map(|(_, addr)| addr)
    }

    /// Blocks until the journal cannot be synced any more, if the process has to end then.
    pub(crate) fn own_end(&self) -> Option<OwnEnd> {
        if self.on_journal_error == OnJournalError::Stay {
            return None;
        }
        let service = Arc::clone(&self.service);
        Some(Box::new(move || match service.wait_for_sync_failure() {
            Some(error) => Err(ending(JOURNAL, error.to_string())),
            None => Ok("closed"),
        }))
    }

    /// Lets data servers of this process delete the chunks of removed objects, with their next reports.
    pub(crate) fn settle(&self) -> anyhow::Result<()> {
        self.service.sync()?;
        self.service.settle_down()?;
        Ok(self.service.sync()?)
    }

    /// Ends the connections, then closes the service with everything on disk.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        if let Some((server, _)) = self.server {
            server.shutdown();
        }
        self.service.close().context("closing the metadata service")
    }
}

/// The chunk store of a data server.
pub(crate) enum Chunks {
    Local(Arc<LocalStore>),
    /// In a bucket, with the thread that uploads.
    Bucket(Arc<S3Store>, Uploads),
}

impl Chunks {
    fn shared(&self) -> Arc<dyn ChunkStore> {
        match self {
            Chunks::Local(store) => Arc::clone(store) as Arc<dyn ChunkStore>,
            Chunks::Bucket(store, _) => Arc::clone(store) as Arc<dyn ChunkStore>,
        }
    }

    fn id(&self) -> [u8; 16] {
        match self {
            Chunks::Local(store) => store.id(),
            Chunks::Bucket(store, _) => store.id(),
        }
    }

    fn path(&self) -> &Path {
        match self {
            Chunks::Local(store) => store.path(),
            Chunks::Bucket(store, _) => store.path(),
        }
    }

    /// Makes everything durable.
    fn close(self) -> anyhow::Result<()> {
        match self {
            Chunks::Local(store) => store.sync(&[]).context("syncing chunks to the disk"),
            Chunks::Bucket(store, uploads) => {
                drop(uploads);
                store.close().context("uploading chunks")
            }
        }
    }
}

/// The chunk store of an identity in a bucket, with its cache in `dir`.
pub(crate) fn open_bucket(
    addr: &S3Addr,
    dir: &Path,
    identity: Option<&str>,
    cache_bytes: u64,
) -> anyhow::Result<Chunks> {
    make_private(dir)?;
    let unusable = || {
        format!(
            "cannot use the store {addr} with the cache {}",
            dir.display()
        )
    };
    let bucket = Bucket::open(addr).with_context(unusable)?;
    let options = S3Options {
        cache_bytes,
        durability: addr.durability(),
    };
    let store = Arc::new(S3Store::open(dir, bucket, identity, options).with_context(unusable)?);
    let uploads = store.start_uploads()?;
    Ok(Chunks::Bucket(store, uploads))
}

/// A data server in this process.
pub(crate) struct DataNode {
    store: Chunks,
    heart: Heart,
    /// Heartbeats to further shards of the metadata.
    others: Vec<Heart>,
    server: Option<DataServer>,
}

impl DataNode {
    /// Starts to serve `store` at `listener`, if there is one, and to report it to `registrars`, the metadata service or its
    /// shards in order, as a server on the machine `host`.
    pub(crate) fn start(
        store: Chunks,
        registrars: Vec<Arc<dyn Registrar>>,
        listener: Option<Listener>,
        host: Option<String>,
    ) -> anyhow::Result<DataNode> {
        let reachable = listener
            .as_ref()
            .map(|listener| address_for_others(listener.addr()));
        let shared = store.shared();
        let shards = u8::try_from(registrars.len()).context("too many shards")?;
        let fence = Arc::new(Fence::open_divided(store.path(), shards));
        let server = match listener {
            Some(listener) => Some(DataServer::start_fenced(
                Arc::clone(&shared),
                listener,
                Arc::clone(&fence),
            )?),
            None => None,
        };
        let mut options = HeartOptions::new(store.id(), reachable);
        if let Some(host) = host {
            options.host = host;
        }
        let mut registrars = registrars.into_iter();
        let first = registrars.next().context("no metadata service")?;
        let heart = Heart::start(shared, first, fence, options)?;
        let others = (1..)
            .zip(registrars)
            .map(|(shard, registrar)| heart.start_other(ShardId(shard), registrar));
        let others = others.collect::<Result<_, _>>()?;
        Ok(DataNode {
            store,
            heart,
            others,
            server,
        })
    }

    /// Waits for the id that the metadata service assigns.
    pub(crate) fn registered(&self) -> anyhow::Result<ServerId> {
        self.heart
            .registered(REGISTERED)
            .context("a data server could not be registered")
    }

    /// The same, but only a refusal is an error; a metadata service that does not answer may answer later.
    pub(crate) fn taken(&self) -> anyhow::Result<()> {
        for heart in std::iter::once(&self.heart).chain(&self.others) {
            if let Err(refused @ StoreError::Invalid(_)) = heart.registered(REGISTERED) {
                return Err(refused).context("the metadata service does not take this data server");
            }
        }
        Ok(())
    }

    /// The address at which other processes reach it.
    pub(crate) fn addr(&self) -> Option<&Addr> {
        self.server.as_ref().map(DataServer::addr)
    }

    /// Blocks until another process serves its chunks, where that can be.
    pub(crate) fn own_end(&self) -> Option<OwnEnd> {
        let Chunks::Bucket(store, _) = &self.store else {
            return None;
        };
        let store = Arc::clone(store);
        Some(Box::new(move || {
            store.wait_replaced();
            Ok("another process serves these chunks")
        }))
    }

    /// Deletes the chunks that the metadata service wants deleted, until `until`.
    pub(crate) fn finish(&self, until: Instant) {
        self.heart.finish(until);
    }

    /// Ends reports and connections, and syncs the store.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        self.others.into_iter().for_each(Heart::stop);
        self.heart.stop();
        if let Some(server) = self.server {
            server.shutdown();
        }
        self.store.close()
    }
}

/// The address as other machines should use it: a wildcard host is replaced by the name of this machine.
pub(crate) fn address_for_others(addr: &Addr) -> Addr {
    let Addr::Tcp(place) = addr else {
        return addr.clone();
    };
    let Some((host, port)) = place.rsplit_once(':') else {
        return addr.clone();
    };
    if !["0.0.0.0", "[::]"].contains(&host) {
        return addr.clone();
    }
    match nix::unistd::gethostname() {
        Ok(name) => Addr::Tcp(format!("{}:{port}", name.to_string_lossy())),
        Err(_) => addr.clone(),
    }
}

/// A mount of this process and the session behind it.
pub(crate) struct MountNode {
    client: Arc<Clients>,
    running: Arc<Running>,
}

/// How a mount makes memory for coupled objects of one of `shards` shards: a part of what it may take.
pub(crate) fn coupled_memory(
    args: &MountArgs,
    registrar: Arc<dyn Registrar>,
    (metadata, key): (Option<Addrs>, Option<Key>),
    shards: usize,
) -> MemoryOptions {
    let all = args.coupled_memory.unwrap_or_else(MemoryOptions::half);
    MemoryOptions {
        registrar,
        metadata,
        key,
        size: all / shards.max(1) as u64,
    }
}

impl MountNode {
    /// Attaches to the shards of the metadata, which other processes reach at `addr`, and mounts.
    pub(crate) fn start(
        shards: Vec<ShardAt>,
        addr: Option<String>,
        mountpoint: &Path,
        args: &MountArgs,
        io_timeout: Duration,
        shutdown: &Shutdown,
    ) -> anyhow::Result<MountNode> {
        let options = ClientOptions {
            io_timeout,
            dirty_limit: args.dirty_limit,
            cache_bytes: args.cache,
            tilings_bytes: args.tilings,
            read_only: args.read_only,
            host: args.host.clone(),
            consistency: args.consistency,
            metadata_addr: addr,
            ..ClientOptions::default()
        };
        let client = Clients::start(shards, &options).map_err(|error| {
            let advice = match &error {
                FsError::Md(MdError::Unavailable { .. }) => {
                    "; is `slabfs mdserver` running there? --io-timeout waits longer"
                }
                _ => "",
            };
            anyhow::anyhow!("cannot attach to the metadata service: {error}{advice}")
        })?;
        let mounted = shutdown.check().and_then(|()| {
            shutdown.covers_mount(mountpoint.to_owned());
            Mount::start(Arc::clone(&client), mountpoint, &mount_options(args))
                .map_err(anyhow::Error::new)
        });
        match mounted {
            Ok(running) => Ok(MountNode {
                client,
                running: Arc::new(running),
            }),
            Err(error) => {
                // Nothing was written yet; an abandoned session would only make others wait for its lease.
                if let Err(other) = client.stop() {
                    tracing::warn!("the session did not end well: {other}");
                }
                Err(error)
            }
        }
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        self.running.point()
    }

    /// Data servers that once ran in one process with this metadata service, are not among `started`, and are not drained.
    pub(crate) fn servers_without(&self, started: &[ServerId]) -> anyhow::Result<Vec<ServerId>> {
        let known = self.client.names().md().call(op::Servers {})?;
        let away = known.into_iter().filter(|server| {
            server.addr.is_none() && !started.contains(&server.id) && !server.draining
        });
        Ok(away.map(|server| server.id).collect())
    }

    /// Blocks until the mount is unmounted from outside.
    pub(crate) fn own_end(&self) -> OwnEnd {
        let running = Arc::clone(&self.running);
        Box::new(move || {
            // `stop` gets the same error and reports it.
            if let Err(error) = running.wait() {
                tracing::debug!("{error}");
            }
            Ok("unmounted")
        })
    }

    /// Unmounts, stores all dirty data, and ends the session.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        let unmounted = self.running.unmount().map_err(anyhow::Error::new);
        let stopped = self
            .client
            .stop()
            .context("not all written data could be stored");
        unmounted.and(stopped)
    }
}

fn mount_options(args: &MountArgs) -> MountOptions {
    let usual = MountOptions::default();
    MountOptions {
        read_only: args.read_only,
        await_names: args.await_names,
        pages: args.pages.into(),
        allow_other: args.allow_other || usual.allow_other,
        fsname: source_name(),
        threads: args.threads.map(usize::from),
        ..usual
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_needs_a_key() {
        let tcp: Addr = "tcp:localhost:7070".parse().expect("an address");
        let unix: Addr = "unix:/run/md.sock".parse().expect("an address");
        let error = key(None, &[unix.clone(), tcp])
            .expect_err("no key")
            .to_string();
        assert!(
            error.contains("--key-file") && error.contains("tcp:localhost:7070"),
            "{error}"
        );
        assert!(
            key(None, std::slice::from_ref(&unix))
                .expect("no key needed")
                .is_none()
        );
        assert!(key(Some(Path::new("/nonexistent")), &[]).is_err());
    }

    #[test]
    fn a_wildcard_host_is_replaced_by_the_host_name() {
        let shown = |text: &str| address_for_others(&text.parse().expect("an address")).to_string();
        assert_eq!(shown("tcp:node7:7070"), "tcp:node7:7070");
        assert!(!shown("tcp:0.0.0.0:7070").contains("0.0.0.0"));
        assert!(shown("tcp:[::]:7070").ends_with(":7070"));
    }
}
