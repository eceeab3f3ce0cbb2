//! `slabfs mount`: a mount whose metadata service and data servers are other processes.

use std::path::PathBuf;
use std::sync::Arc;

use slabfs_fs::clients::ShardAt;
use slabfs_fs::session::shards_text;
use slabfs_mdserver::client::RemoteMd;
use slabfs_objstore::client::Servers;
use slabfs_objstore::wire::Key;
use slabfs_objstore::{Addr, Addrs};

use crate::args::{MountArgs, NetArgs, ServiceArgs, parse_addrs};
use crate::lifecycle::{self, Live, OwnEnd, Place, Shutdown};
use crate::logging::Level;
use crate::mountpoint;
use crate::node::{self, MountNode};

/// Mount a running slabfs.
///
/// Give the address of its metadata service; the data servers are known from there. If they are unreachable,
/// operations wait for them up to --io-timeout.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs mount --md unix:md.sock mnt --daemon
  slabfs mount --md tcp:node7:7070 --key-file key mnt2 --daemon
  slabfs umount mnt

Next: `slabfs servers mnt` lists its data servers, `slabfs create mnt/temp --dims 16,16 --dtype f4` makes an array.")]
pub(crate) struct Args {
    /// Where to mount: an empty directory
    mountpoint: PathBuf,
    /// The metadata service: unix:PATH or tcp:HOST:PORT; several with commas where standbys may take over. If the metadata is in
    /// shards, once for each shard, in order
    #[arg(long, value_name = "ADDR", required = true, value_parser = parse_addrs)]
    md: Vec<Addrs>,
    #[command(flatten)]
    mount: MountArgs,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(crate) fn run(args: Args, level: Level) -> anyhow::Result<()> {
    let addrs: Vec<Addr> = args.md.iter().flat_map(Addrs::all).cloned().collect();
    let key = node::key(args.net.key_file.as_deref(), &addrs)?;
    mountpoint::check(&args.mountpoint)?;
    let place = Place::of_mount(&args.mountpoint);
    let service = args.service.clone();
    lifecycle::run(&service, level, place, move |shutdown| {
        start(&args, key, shutdown)
    })
}

fn start(args: &Args, key: Option<Key>, shutdown: &Shutdown) -> anyhow::Result<Box<dyn Live>> {
    let deadline = args.net.io_timeout;
    let mut shards = Vec::with_capacity(args.md.len());
    for md in &args.md {
        let metadata = Arc::new(RemoteMd::connect(md.clone(), key.clone(), deadline));
        greeted(&metadata)?;
        let reached = (Some(md.clone()), key.clone());
        let memory = node::coupled_memory(&args.mount, metadata.clone(), reached, args.md.len());
        shards.push(ShardAt {
            metadata,
            servers: Arc::new(Servers::new(node::server_options(key.clone(), deadline))),
            memory: Some(memory),
        });
    }
    let mount = MountNode::start(
        shards,
        Some(shards_text(&args.md)),
        &args.mountpoint,
        &args.mount,
        deadline,
        shutdown,
    )?;
    Ok(Box::new(mount))
}

/// Checks that the metadata service accepts this process. If it is not reachable yet, the log says so, because nothing
/// else shows why the mount waits.
fn greeted(metadata: &RemoteMd) -> anyhow::Result<()> {
    match metadata.greet(node::GREETING) {
        Ok(()) => Ok(()),
        Err(error) if error.is_transient() => {
            tracing::warn!("the metadata service is not reachable yet; waiting for it: {error}");
            Ok(())
        }
        Err(error) => Err(anyhow::anyhow!(
            "the metadata service does not take this mount: {error}; is --md its address, and --key-file its key?"
        )),
    }
}

impl Live for MountNode {
    fn ready_line(&self) -> String {
        self.point().display().to_string()
    }

    fn own_ends(&self) -> Vec<OwnEnd> {
        vec![self.own_end()]
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        MountNode::stop(*self)
    }
}
