//! `slabfs objserver`: a data server as a process of its own.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use slabfs_mdserver::api::{Metadata, op};
use slabfs_mdserver::client::{Md, RemoteMd};
use slabfs_objstore::server::{Registrar, ServerReport};
use slabfs_objstore::store::Space;
use slabfs_objstore::wire::Key;
use slabfs_objstore::{Addr, Addrs};
use slabfs_s3::{Bucket, S3Addr, find_uuid, has_chunks};

use crate::args::{NetArgs, ServiceArgs, parse_addr, parse_addrs, parse_size};
use crate::lifecycle::{self, Live, OwnEnd, Place, Shutdown};
use crate::logging::Level;
use crate::node::{self, Chunks, DataNode};
use crate::owner::Owner;

mod standby;

use standby::Standby;

/// Run a data server: it stores chunks, with checksums.
///
/// It registers with the metadata service, and may be started before or after it; if before, "ready" is
/// reported together with "waiting". If the metadata service refuses it (another key, another version), or the
/// address is not that of a metadata service, the start fails. The directory identifies the data server: it may
/// move to another address, or return after any time, and still has its chunks.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  slabfs objserver --listen unix:os1.sock --md unix:md.sock --data os1 --daemon
  slabfs objserver --listen tcp:0.0.0.0:7071 --md tcp:node7:7070 \\
      --key-file key --data os2 --daemon
  slabfs stop --data os1

Next: `slabfs mount --md unix:md.sock mnt --daemon`, and `slabfs servers mnt` lists the data servers. To take one away \
for good, move its chunks off it first: `slabfs help drain`.")]
pub(crate) struct Args {
    /// Where to listen: unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDR", value_parser = parse_addr)]
    listen: Addr,
    /// The metadata service: unix:PATH or tcp:HOST:PORT; several with commas where standbys may take over. If the metadata is in
    /// shards, once for each shard, in order
    #[arg(long, value_name = "ADDR", required = true, value_parser = parse_addrs)]
    md: Vec<Addrs>,
    /// Directory for chunks; created if it is missing
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Keep chunks in a bucket: s3://BUCKET/PREFIX, and ?endpoint=URL behind it if it is not AWS; --data has a cache then.
    /// Credentials as for the AWS tools. With durability=local behind it fsync waits for the local disk only
    #[arg(long, value_name = "URL")]
    store: Option<S3Addr>,
    /// With --store: the name under which the chunks are in the bucket; a server that is started with the name of another one
    /// takes over its chunks (default: that of the last start, or a new one)
    #[arg(long, value_name = "NAME", requires = "store")]
    identity: Option<String>,
    /// With --store: wait until no other server serves the chunks of --identity, and serve them then
    #[arg(long, requires = "identity")]
    standby: bool,
    /// With --store: the size of the cache
    #[arg(long, value_name = "SIZE", default_value = "8G", value_parser = parse_size)]
    cache_size: u64,
    /// The name of this machine, for placement `local`: mounts with the same name use this server (default: the
    /// host name)
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(crate) fn run(args: Args, level: Level) -> anyhow::Result<()> {
    let mut addrs = vec![args.listen.clone()];
    addrs.extend(args.md.iter().flat_map(Addrs::all).cloned());
    let key = node::key(args.net.key_file.as_deref(), &addrs)?;
    Owner::Objserver.claim(&args.data, args.service.log_file.as_deref())?;
    let place = Place::of_data(&args.data);
    let service = args.service.clone();
    lifecycle::run(&service, level, place, move |shutdown| {
        start(&args, key, shutdown)
    })
}

fn start(args: &Args, key: Option<Key>, shutdown: &Shutdown) -> anyhow::Result<Box<dyn Live>> {
    let deadline = args.net.io_timeout;
    let mut metadata = Vec::with_capacity(args.md.len());
    let mut waits = None;
    for addr in &args.md {
        let shard = Arc::new(RemoteMd::connect(addr.clone(), key.clone(), deadline));
        let waiting = greeted(&shard, addr)?;
        waits = waits.or(waiting);
        metadata.push(shard);
    }
    if let (Some(addr), Some(identity), true) = (&args.store, &args.identity, args.standby) {
        // For the file with the process id.
        node::make_private(&args.data)?;
        let standby = Standby::start(args, addr, identity, (metadata, key))?;
        return Ok(Box::new(standby));
    }
    let known = known_servers(&metadata)?;
    let listener = node::listen(&args.listen, key, shutdown)?;
    if let (Some(addr), Some(known)) = (&args.store, &known) {
        check_identity(args, addr, &*metadata[0], known)?;
    }
    let store = match &args.store {
        None => Chunks::Local(node::open_store(&args.data)?),
        Some(addr) => {
            let identity = args.identity.as_deref();
            node::open_bucket(addr, &args.data, identity, args.cache_size)?
        }
    };
    shutdown.check()?;
    let data = DataNode::start(
        store,
        registrars(&metadata),
        Some(listener),
        args.host.clone(),
    )?;
    if waits.is_none()
        && let Err(refused) = data.taken()
    {
        metadata.iter().for_each(|shard| shard.close());
        data.stop()?;
        return Err(refused);
    }
    Ok(Box::new(Running {
        data,
        metadata,
        waits,
    }))
}

/// The metadata services as receivers of reports.
fn registrars(metadata: &[Arc<RemoteMd>]) -> Vec<Arc<dyn Registrar>> {
    let each = metadata.iter().cloned();
    each.map(|shard| shard as Arc<dyn Registrar>).collect()
}

/// The ids of the data servers that the metadata service knows; `None` if it, or one of its shards, does not answer now.
fn known_servers(metadata: &[Arc<RemoteMd>]) -> anyhow::Result<Option<Vec<[u8; 16]>>> {
    let mut known = Vec::new();
    for (index, service) in metadata.iter().enumerate() {
        let service = Arc::clone(service) as Arc<dyn Metadata>;
        let (md, attached) = match Md::attach(service, "objserver", std::process::id(), true) {
            Ok(attached) => attached,
            Err(error) => {
                tracing::debug!("the data servers are not known: {error}");
                return Ok(None);
            }
        };
        if let Err(error) = md.call(op::Detach { clean: true }) {
            tracing::debug!("the session ends by its lease: {error}");
        }
        let shard = attached.shard;
        let (of, given) = (usize::from(shard.of), metadata.len());
        if of != given || usize::from(shard.index.0) != index {
            bail!(
                "the metadata of this filesystem is in {of} shards, and --md number {index} of {given} is shard {}: give \
                 --md once for each shard, in order",
                shard.index
            );
        }
        known.extend(attached.servers.iter().map(|server| server.uuid));
    }
    Ok(Some(known))
}

/// Refuses chunks of another filesystem, before a server of that one is replaced.
fn check_identity(
    args: &Args,
    addr: &S3Addr,
    metadata: &dyn Registrar,
    known: &[[u8; 16]],
) -> anyhow::Result<()> {
    let Some(identity) = &args.identity else {
        return Ok(());
    };
    let cannot = || format!("cannot use the store {addr}");
    let bucket = Bucket::open(addr).with_context(cannot)?;
    let Some(uuid) = find_uuid(&bucket, identity).with_context(cannot)? else {
        return Ok(());
    };
    if known.contains(&uuid) || !has_chunks(&bucket, identity).with_context(cannot)? {
        return Ok(());
    }
    // Metadata that was loaded from a dump takes servers that it does not know.
    let report = ServerReport {
        uuid,
        id: None,
        addr: Some(node::address_for_others(&args.listen).to_string()),
        host: String::new(),
        memory: false,
        space: Space::default(),
        chunks: 1,
        stored: 0,
        engine: Vec::new(),
        deleted: Vec::new(),
        obeys: 0,
    };
    metadata.heartbeat(report).with_context(|| {
        format!("the chunks of {identity} in {addr} are of another filesystem, or of none that this metadata service knows")
    })?;
    Ok(())
}

/// Checks that the metadata service accepts this process. If it is unreachable, returns a text for the user;
/// the data server then waits for it.
fn greeted(metadata: &RemoteMd, addr: &Addrs) -> anyhow::Result<Option<String>> {
    match metadata.greet(node::GREETING) {
        Ok(()) => Ok(None),
        Err(error) if error.is_transient() => {
            tracing::warn!("the metadata service is not reachable yet; waiting for it: {error}");
            Ok(Some(format!("waiting for the metadata service at {addr}")))
        }
        Err(error) => Err(anyhow::anyhow!(
            "the metadata service does not take this data server: {error}; is --md its address, and --key-file its key?"
        )),
    }
}

struct Running {
    data: DataNode,
    metadata: Vec<Arc<RemoteMd>>,
    /// The text about waiting, for the ready line.
    waits: Option<String>,
}

impl Live for Running {
    fn ready_line(&self) -> String {
        let mut line = "data server".to_owned();
        if let Some(addr) = self.data.addr() {
            line.push_str(&format!(" at {addr}"));
        }
        if let Some(waits) = &self.waits {
            line.push_str(&format!(", {waits}"));
        }
        line
    }

    fn own_ends(&self) -> Vec<OwnEnd> {
        self.data.own_end().into_iter().collect()
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        // A report that still waits for an unreachable service is not worth waiting for.
        self.metadata.iter().for_each(|shard| shard.close());
        self.data.stop()
    }
}
