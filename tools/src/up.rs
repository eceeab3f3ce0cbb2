//! `slabfs up`: metadata service, data servers and mount in one process, over direct calls.
//!
//! The directory has `md` (the metadata) and `os1`, `os2`, … (the data servers). With `--listen` the same
//! process serves other mounts as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use slabfs_fs::clients::ShardAt;
use slabfs_model::ServerId;
use slabfs_objstore::client::Servers;
use slabfs_objstore::wire::{Key, Listener};
use slabfs_objstore::{Addr, Addrs};

use crate::args::{MetaArgs, MountArgs, NetArgs, ServiceArgs, parse_addr};
use crate::created::Created;
use crate::failure::usage;
use crate::lifecycle::{self, Live, OwnEnd, Place, Shutdown};
use crate::logging::Level;
use crate::mountpoint;
use crate::node::{self, Chunks, DataNode, MetadataNode, MountNode};
use crate::owner::Owner;

/// How long a stop deletes the chunks of removed objects; the rest is deleted after the next start.
const DELETING: Duration = Duration::from_secs(10);

/// Run everything in one process: the quick way to a mount on one machine.
///
/// Stores metadata and data in one directory; starting it again on the same directory recovers everything. Ends
/// when the mount is unmounted (`slabfs umount`) or on Ctrl-C, with nothing lost.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs up --data data mnt --daemon
      in the background; without --daemon it stays in the foreground
  slabfs umount mnt
      takes it down; data keeps everything
  slabfs up --data data --servers 4 --listen unix:md.sock mnt --daemon
      chunks spread over data/os1 to data/os4 (say, links to four disks)
  slabfs mount --md unix:md.sock mnt2 --daemon
      the same files on a second mount

Next: `slabfs create mnt/temp --dims 16,16 --dtype f4` makes an array, `slabfs status mnt` shows how it is.")]
pub(crate) struct Args {
    /// Where to mount: an empty directory
    mountpoint: PathBuf,
    /// Directory for all data; created if it is missing (default: ~/.local/share/slabfs)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Data servers to spread chunks over (default: as many as DIR has, or 1)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    servers: Option<u16>,
    /// Serve other mounts too, at unix:PATH or tcp:HOST:PORT; data servers listen at addresses derived from it
    #[arg(long, value_name = "ADDR", value_parser = parse_addr)]
    listen: Option<Addr>,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    mount: MountArgs,
    #[command(flatten)]
    net: NetArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(crate) fn run(args: Args, level: Level) -> anyhow::Result<()> {
    let data = match &args.data {
        Some(data) => data.clone(),
        None => default_data()?,
    };
    // Before the log is created, which may be in that directory.
    mountpoint::apart(&data, &args.mountpoint)?;
    let key = node::key(args.net.key_file.as_deref(), args.listen.as_slice())?;
    mountpoint::check(&args.mountpoint)?;
    Owner::Up.claim(&data, args.service.log_file.as_deref())?;
    let place = Place {
        log: data.join("slabfs.log"),
        data: Some(data.clone()),
    };
    let service = args.service.clone();
    lifecycle::run(&service, level, place, move |shutdown| {
        start(&args, &data, key, shutdown)
    })
}

/// The default data directory.
pub(crate) fn default_data() -> anyhow::Result<PathBuf> {
    let base = match std::env::var_os("XDG_DATA_HOME") {
        Some(dir) if Path::new(&dir).is_absolute() => PathBuf::from(dir),
        _ => {
            let dir = std::env::var_os("HOME").filter(|dir| !dir.is_empty());
            let dir = dir.ok_or_else(|| {
                usage("HOME is not set, so there is no default data directory; give --data DIR")
            })?;
            Path::new(&dir).join(".local/share")
        }
    };
    Ok(base.join("slabfs"))
}

fn start(
    args: &Args,
    data: &Path,
    key: Option<Key>,
    shutdown: &Shutdown,
) -> anyhow::Result<Box<dyn Live>> {
    let count = server_count(data, args.servers)?;
    // A socket may be in it.
    let created = Created::directory(data, 0o777).with_context(|| {
        format!(
            "cannot make the data directory {}; choose another with --data",
            data.display()
        )
    })?;
    // All addresses before anything is stored: one of them may be in use.
    let listeners = match &args.listen {
        Some(addr) => Some(Listeners::bind(addr, count, key.as_ref(), shutdown)?),
        None => None,
    };
    created.keep();
    let metadata = MetadataNode::open(
        &data.join("md"),
        node::service_options(&args.meta),
        args.meta.on_journal_error,
    )?;
    let mut behind = Behind {
        nodes: Vec::new(),
        metadata,
        missing: Vec::new(),
    };
    match behind.start(args, data, count, key, listeners, shutdown) {
        Ok(mount) => Ok(Box::new(Running {
            mount,
            behind,
            data: data.to_owned(),
        })),
        Err(error) => {
            if let Err(other) = behind.stop() {
                tracing::warn!("what was started did not stop well: {other:#}");
            }
            Err(error)
        }
    }
}

/// The sockets of an `up` that serves other mounts.
struct Listeners {
    metadata: Listener,
    /// Of each data server.
    servers: Vec<Listener>,
}

impl Listeners {
    /// Listens at `addr`, and for each of `count` data servers at the address derived from it.
    fn bind(
        addr: &Addr,
        count: u16,
        key: Option<&Key>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<Listeners> {
        let listen = |addr: &Addr| node::listen(addr, key.cloned(), shutdown);
        Ok(Listeners {
            metadata: listen(addr)?,
            servers: (1..=count)
                .map(|number| listen(&next_to(addr, number)?))
                .collect::<anyhow::Result<_>>()?,
        })
    }
}

/// The services behind the mount, in the order in which they are stopped.
struct Behind {
    nodes: Vec<DataNode>,
    metadata: MetadataNode,
    /// Data servers whose directories are not there.
    missing: Vec<ServerId>,
}

impl Behind {
    /// Starts the data servers and the mount, then the listener for other mounts.
    fn start(
        &mut self,
        args: &Args,
        data: &Path,
        count: u16,
        key: Option<Key>,
        listeners: Option<Listeners>,
        shutdown: &Shutdown,
    ) -> anyhow::Result<MountNode> {
        let (listener, of_servers) = match listeners {
            Some(listeners) => (Some(listeners.metadata), listeners.servers),
            None => (None, Vec::new()),
        };
        let mut of_servers = of_servers.into_iter();
        let options = node::server_options(key.clone(), args.net.io_timeout);
        let servers = Arc::new(Servers::new(options));
        for number in 1..=count {
            shutdown.check()?;
            let store = node::open_store(&server_dir(data, number))?;
            let server = DataNode::start(
                Chunks::Local(Arc::clone(&store)),
                vec![self.metadata.registrar()],
                of_servers.next(),
                args.mount.host.clone(),
            )?;
            let id = server.registered();
            self.nodes.push(server);
            servers.add_local(id?, store);
        }
        let addr: Option<Addrs> = listener
            .as_ref()
            .map(|listener| node::address_for_others(listener.addr()).into());
        let reached = (addr.clone(), key);
        let memory = node::coupled_memory(&args.mount, self.metadata.registrar(), reached, 1);
        let shard = ShardAt {
            metadata: self.metadata.local(),
            servers,
            memory: Some(memory),
        };
        let mount = MountNode::start(
            vec![shard],
            addr.map(|addr| addr.to_string()),
            &args.mountpoint,
            &args.mount,
            args.net.io_timeout,
            shutdown,
        )?;
        if let Some(listener) = listener
            && let Err(error) = self.metadata.serve(listener)
        {
            mount.stop()?;
            return Err(error);
        }
        let started: Result<Vec<_>, _> = self.nodes.iter().map(DataNode::registered).collect();
        self.missing = mount.servers_without(&started?)?;
        for server in &self.missing {
            tracing::warn!(%server, data = %data.display(),
                "a data server is away, since its directory is not there: what it stores cannot be read; put the directory back (mount its disk) and start again");
        }
        Ok(mount)
    }

    /// Stops each service even if another fails; returns the first error.
    fn stop(self) -> anyhow::Result<()> {
        // Delete the chunks of objects removed last now, not after the next start.
        if let Err(error) = self.metadata.settle() {
            tracing::warn!("objects removed last are deleted after the next start: {error:#}");
        }
        let until = Instant::now() + DELETING;
        self.nodes.iter().for_each(|node| node.finish(until));
        let mut result = Ok(());
        for node in self.nodes {
            result = result.and(node.stop());
        }
        let closed = self.metadata.stop();
        result.and(closed)
    }
}

fn server_dir(data: &Path, number: u16) -> PathBuf {
    data.join(format!("os{number}"))
}

/// The number of data servers to run: as many as there are, or as requested if that is no fewer.
fn server_count(data: &Path, asked: Option<u16>) -> anyhow::Result<u16> {
    for number in 1..=256 {
        let dir = server_dir(data, number);
        if let Ok(link) = std::fs::read_link(&dir)
            && !dir.exists()
        {
            bail!(
                "{} leads to {}, which does not exist; is its disk mounted?",
                dir.display(),
                link.display()
            );
        }
    }
    let existing = (1..=256)
        .rev()
        .find(|&number| server_dir(data, number).is_dir())
        .unwrap_or(0);
    match asked {
        Some(asked) if asked < existing => Err(anyhow!(
            "{0} holds {existing} data servers (os1 to os{existing}); with --servers {asked} the data on the others would be away. Give --servers {existing} or more, or leave it out",
            data.display()
        )),
        Some(asked) => Ok(asked),
        None => Ok(existing.max(1)),
    }
}

/// The address of data server `number`, derived from that of the metadata service.
fn next_to(addr: &Addr, number: u16) -> anyhow::Result<Addr> {
    let text = match addr {
        Addr::Unix(path) => format!("unix:{}.os{number}", path.display()),
        Addr::Tcp(place) => {
            let (host, port) = place
                .rsplit_once(':')
                .context("an address without a port")?;
            let port: u16 = port.parse().context("an address without a port")?;
            // Port 0 is any free port, here too.
            let port = if port == 0 {
                Some(0)
            } else {
                port.checked_add(number)
            };
            let port = port.ok_or_else(|| {
                usage(format!(
                    "the data servers listen on the ports after {addr}; choose a lower one"
                ))
            })?;
            format!("tcp:{host}:{port}")
        }
    };
    parse_addr(&text).map_err(usage)
}

struct Running {
    mount: MountNode,
    behind: Behind,
    data: PathBuf,
}

impl Live for Running {
    fn ready_line(&self) -> String {
        let servers = match self.behind.nodes.len() {
            1 => "1 data server".to_owned(),
            n => format!("{n} data servers"),
        };
        let missing = self.behind.missing.iter();
        let missing = missing
            .map(|server| format!("; WITHOUT data server {server}, whose directory is missing"));
        let servers = servers + &missing.collect::<String>();
        let place = self.behind.metadata.addr();
        let place = place.map_or_else(String::new, |addr| format!(", serving {addr}"));
        let (point, data) = (self.mount.point().display(), self.data.display());
        format!("{point} (data in {data}, {servers}{place})")
    }

    fn own_ends(&self) -> Vec<OwnEnd> {
        let mut ends = vec![self.mount.own_end()];
        ends.extend(self.behind.metadata.own_end());
        ends
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        let stored = self.mount.stop();
        let stopped = self.behind.stop();
        stored.and(stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_servers_than_there_are_is_refused() {
        let dir = tempfile::tempdir().expect("dir");
        let count = |asked| server_count(dir.path(), asked);
        assert_eq!(count(None).expect("a count"), 1);
        assert_eq!(count(Some(3)).expect("a count"), 3);
        std::fs::create_dir(dir.path().join("os1")).expect("dir");
        std::fs::create_dir(dir.path().join("os2")).expect("dir");
        assert_eq!(count(None).expect("a count"), 2);
        assert_eq!(count(Some(3)).expect("a count"), 3);
        std::os::unix::fs::symlink("nowhere", dir.path().join("os3")).expect("a link");
        let error = count(None).expect_err("a link to nowhere");
        assert!(error.to_string().contains("nowhere"), "{error}");
        std::fs::remove_file(dir.path().join("os3")).expect("removed");
        let error = count(Some(1)).expect_err("fewer");
        assert!(error.to_string().contains("--servers 2"), "{error}");
        assert_ne!(crate::failure::status(&error), crate::failure::USAGE);
    }

    #[test]
    fn data_servers_listen_next_to_the_metadata_service() {
        let show = |text: &str| {
            let addr = text.parse::<Addr>().expect("an address");
            next_to(&addr, 2).map(|addr| addr.to_string())
        };
        assert_eq!(
            show("unix:/run/md.sock").expect("an address"),
            "unix:/run/md.sock.os2"
        );
        assert_eq!(
            show("tcp:[::1]:7070").expect("an address"),
            "tcp:[::1]:7072"
        );
        assert_eq!(
            show("tcp:localhost:0").expect("an address"),
            "tcp:localhost:0"
        );
        assert!(show("tcp:localhost:65534").is_err());
    }
}
