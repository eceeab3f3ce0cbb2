//! The measured slabfs: a metadata service, two data servers and a mount as processes over Unix sockets, this
//! process attached to them by the client library, and the processes of `raw`.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use slabfs_fs::client::{Client, ClientOptions, Handle, OpenMode};
use slabfs_mdserver::api::{Create, Ino, Kind, ROOT, SpecChange};
use slabfs_mdserver::client::RemoteMd;
use slabfs_model::Coords;
use slabfs_objstore::Addr;
use slabfs_objstore::client::{Options, Servers};

use super::TransferArgs;
use super::raw::Raw;
use crate::cleanup;
use crate::systems::{binary, spawn};

const DEADLINE: Duration = Duration::from_secs(30);

/// Everything that runs.
pub(super) struct Cluster {
    client: Arc<Client>,
    mountpoint: PathBuf,
    pub(super) raw: RefCell<Raw>,
}

impl Cluster {
    /// Starts everything; on an error, what was started is recorded with `cleanup`.
    pub(super) fn start(args: &TransferArgs) -> anyhow::Result<Cluster> {
        let dir = new_directory(args.work.as_deref().unwrap_or(Path::new("/dev/shm")))?;
        let slabfs = binary(args.slabfs.as_deref())?;
        let socket = |number: u32| format!("unix:{}", dir.join(format!("{number}.sock")).display());
        let md = socket(0);
        let command = |subcommand: &str| {
            let mut command = Command::new(&slabfs);
            command.args([subcommand, "--quiet"]);
            command
        };
        let mut service = command("mdserver");
        service.args(["--listen", &md, "--data"]);
        spawn(arg(service, dir.join("md")), "slabfs mdserver")?;
        for number in 1..=2 {
            let mut server = command("objserver");
            server.args(["--md", &md, "--listen", &socket(number), "--data"]);
            spawn(
                arg(server, dir.join(format!("os{number}"))),
                "slabfs objserver",
            )?;
        }
        let mountpoint = dir.join("mnt");
        std::fs::create_dir(&mountpoint).context("creating a directory")?;
        cleanup::mount(mountpoint.clone());
        let mut mount = command("mount");
        mount.args(["--md", &md]);
        spawn(arg(mount, mountpoint.clone()), "slabfs mount")?;
        Ok(Cluster {
            client: attach(&dir.join("0.sock"))?,
            mountpoint,
            raw: RefCell::new(Raw::start(&dir, (args.size as usize).max(256) << 20)?),
        })
    }

    /// The path of an object on the mount.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// Creates an `aligned` array of bytes, whose chunks go to both servers.
    pub(super) fn create(&self, name: &str, dims: &[u64]) -> anyhow::Result<Arc<Handle>> {
        let mode = OpenMode {
            write: true,
            append: false,
        };
        let (made, handle) = self.client.create(new_object(name), mode)?;
        let ino: Ino = made.entry.attr.ino;
        let spec = SpecChange {
            dtype: Some("u1".parse().context("a dtype")?),
            dims: Some(Coords::from_slice(dims)),
            layout: Some("aligned".parse().context("a layout")?),
            placement: Some("dynamic".parse().context("a placement")?),
            ..SpecChange::default()
        };
        self.client.declare(ino, spec)?;
        Ok(handle)
    }

    /// Detaches; `cleanup` stops the rest.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        Ok(self.client.stop()?)
    }
}

fn arg(mut command: Command, path: PathBuf) -> Command {
    command.arg(path);
    command
}

fn new_directory(parent: &Path) -> anyhow::Result<PathBuf> {
    let dir = parent.join(format!("slabfs-bench-{}", std::process::id()));
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    cleanup::directory(dir.clone());
    dir.canonicalize().context("finding a directory")
}

fn attach(socket: &Path) -> anyhow::Result<Arc<Client>> {
    let md = RemoteMd::connect(Addr::Unix(socket.to_owned()), None, DEADLINE);
    let servers = Servers::new(Options {
        deadline: DEADLINE,
        ..Options::default()
    });
    let options = ClientOptions::default();
    Client::start(Arc::new(md), Arc::new(servers), options).context("attaching")
}

fn new_object(name: &str) -> Create {
    Create {
        parent: ROOT,
        name: name.into(),
        kind: Kind::Object,
        mode: 0o644,
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        rdev: 0,
        target: None,
        exclusive: true,
        open: true,
    }
}
