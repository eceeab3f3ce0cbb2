//! `slabfs mdserver`: the metadata service as a process of its own.

use std::path::PathBuf;
use std::time::Duration;

use slabfs_etcd::{CheckpointsAddr, Etcd, EtcdAddr, agree_on_shards};
use slabfs_mdserver::api::Shard;
use slabfs_mdserver::service::ServiceOptions;
use slabfs_objstore::Addr;
use slabfs_objstore::wire::Key;

use crate::args::{MetaArgs, ServiceArgs, parse_addr, parse_shard, parse_time};
use crate::lifecycle::{self, Live, OwnEnd, Place, Shutdown};
use crate::logging::Level;
use crate::node::{self, MetadataNode};
use crate::owner::Owner;

mod member;

use member::{Member, Settings};

/// Run the metadata service: names, dims, locations of chunks.
///
/// Mounts and data servers find each other through it. It stores everything in one directory, with a journal
/// that survives kill -9 and power loss; starting it again on the same directory recovers everything, and it
/// logs what it recovered.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs mdserver --listen unix:md.sock --data md --daemon
      for data servers and mounts of this user on this machine
  head -c 32 /dev/urandom | base64 > key; chmod 600 key
  slabfs mdserver --listen tcp:0.0.0.0:7070 --key-file key --data md2 --daemon
      for other machines, which need a copy of the key file
  slabfs stop --data md

Next: data servers, `slabfs objserver --listen unix:os1.sock --md unix:md.sock --data os1 --daemon`; then mounts. \
Larger filesystems have several services at work, --shard 0/3, 1/3 and 2/3: docs/operations/shards.md. On several machines, with the journal in etcd (--meta etcd://h1,h2,h3/slabfs --checkpoints s3://bucket/slabfs), one service \
leads and the others take over: docs/operations/etcd.md.")]
pub(crate) struct Args {
    /// Where to listen: unix:PATH or tcp:HOST:PORT
    #[arg(long, value_name = "ADDR", value_parser = parse_addr)]
    listen: Addr,
    /// Directory for all metadata; created if it is missing
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Which part of the metadata this service has: 0/N the names, 1/N to N-1/N each a part of the objects. N services are
    /// started that way, and N is fixed then. Mounts and data servers get --md once for each, in this order
    #[arg(long, value_name = "I/N", default_value = "0/1", value_parser = parse_shard)]
    shard: Shard,
    /// File with the shared key (16 bytes or more, readable by its owner only); required for tcp:
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Keep the journal in etcd: etcd://HOST:PORT,HOST:PORT/PREFIX, or etcds://… for TLS. Several services with the same
    /// one are standbys of each other; --data has a copy then
    #[arg(long, value_name = "URL", requires = "checkpoints")]
    meta: Option<EtcdAddr>,
    /// With --meta: the place of checkpoints, which all of these services share: a directory, or s3://BUCKET/PREFIX, as that
    /// of --store of data servers
    #[arg(long, value_name = "DIR|URL", requires = "meta")]
    checkpoints: Option<CheckpointsAddr>,
    /// With --meta: how long after its last message to etcd a leader is replaced, 2s to 60s
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_leader_lease)]
    leader_lease: Duration,
    #[command(flatten)]
    service_meta: MetaArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(crate) fn run(args: Args, level: Level) -> anyhow::Result<()> {
    let key = node::key(args.key_file.as_deref(), std::slice::from_ref(&args.listen))?;
    Owner::Mdserver.claim(&args.data, args.service.log_file.as_deref())?;
    let place = Place::of_data(&args.data);
    let service = args.service.clone();
    lifecycle::run(&service, level, place, move |shutdown| {
        start(&args, key, shutdown)
    })
}

/// Leases of etcd have complete seconds.
fn parse_leader_lease(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let seconds = time.as_secs();
    match (2..=60).contains(&seconds) && time.subsec_nanos() == 0 {
        true => Ok(time),
        false => Err(format!("{text:?} is not 2s to 60s, in complete seconds")),
    }
}

fn start(args: &Args, key: Option<Key>, shutdown: &Shutdown) -> anyhow::Result<Box<dyn Live>> {
    let options = ServiceOptions {
        shard: args.shard,
        ..node::service_options(&args.service_meta)
    };
    if let (Some(etcd), Some(checkpoints)) = (&args.meta, &args.checkpoints) {
        agree_on_shards(&Etcd::new(etcd)?, args.shard.of)?;
        let part = format!("shard-{}", args.shard.index);
        let (etcd, checkpoints) = match args.shard.divided() {
            true => (etcd.below(&part), checkpoints.below(&part)?),
            false => (etcd.clone(), checkpoints.clone()),
        };
        let settings = Settings {
            etcd,
            checkpoints,
            lease: args.leader_lease,
            data: args.data.clone(),
            listen: args.listen.clone(),
            key,
            options,
        };
        node::make_private(&args.data)?;
        return Ok(Box::new(Member::start(settings, shutdown)?));
    }
    let listener = node::listen(&args.listen, key, shutdown)?;
    let mut metadata = MetadataNode::open(&args.data, options, args.service_meta.on_journal_error)?;
    shutdown.check()?;
    metadata.serve(listener)?;
    Ok(Box::new(metadata))
}

impl Live for MetadataNode {
    fn ready_line(&self) -> String {
        let place = self.addr();
        let place = place.map_or_else(String::new, |addr| format!(" at {addr}"));
        format!("metadata service{place}")
    }

    fn own_ends(&self) -> Vec<OwnEnd> {
        self.own_end().into_iter().collect()
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        MetadataNode::stop(*self)
    }
}
