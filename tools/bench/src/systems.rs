//! The compared systems: starting them, their directories, stopping them.
//!
//! All of them are running during the entire run; an idle one costs nothing. Everything that is started is
//! first recorded with `cleanup`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail, ensure};
use clap::ValueEnum;

use crate::args::{Args, Form};
use crate::cleanup;

/// Columns of a 2-D object that is read and written by complete rows: rows of 256 KiB.
const ROW_ELEMENTS: u64 = 65_536;
/// Bytes of an element.
const ELEM: u64 = 4;

/// A kind of system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// A FUSE filesystem that stores nothing: the ceiling.
    Null,
    /// A FUSE filesystem that stores files in memory with one copy.
    Memory,
    /// bindfs over the directory in which the others store their data.
    Bindfs,
    /// A plain directory of the disk.
    Ext4,
    /// `slabfs up`: everything in one process.
    Up,
    /// slabfs as three processes over Unix sockets.
    Split,
}

impl Kind {
    /// As on the command line and in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Null => "null",
            Kind::Memory => "memory",
            Kind::Bindfs => "bindfs",
            Kind::Ext4 => "ext4",
            Kind::Up => "up",
            Kind::Split => "split",
        }
    }

    /// Whether it supports arrays.
    pub(crate) fn is_slabfs(self) -> bool {
        matches!(self, Kind::Up | Kind::Split)
    }
}

/// One running system.
#[derive(Debug)]
pub(crate) struct System {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Its directory.
    pub(crate) dir: PathBuf,
    /// The process of the mount, if its memory is measured.
    pub(crate) mount_pid: Option<u32>,
    slabfs: PathBuf,
}

/// All systems of a run.
#[derive(Debug)]
pub(crate) struct Systems {
    all: Vec<System>,
}

impl Systems {
    /// Starts the requested systems. On an error, everything that was started is cleaned up.
    pub(crate) fn start(args: &Args) -> anyhow::Result<Systems> {
        Starter::new(args)
            .and_then(|starter| starter.start_all(&args.systems))
            .map_err(|error| match cleanup::run() {
                Ok(()) => error,
                Err(other) => error.context(format!("and while cleaning up: {other:#}")),
            })
    }

    /// All of them, another first each round, so that no system always follows the same one.
    pub(crate) fn in_rotation(&self, round: u32) -> impl Iterator<Item = &System> {
        let first = round as usize % self.all.len().max(1);
        self.all[first..].iter().chain(&self.all[..first])
    }

    /// Stops all of them and removes their files.
    pub(crate) fn stop(&mut self) -> anyhow::Result<()> {
        self.all.clear();
        cleanup::run()
    }
}

impl System {
    /// Creates an object of `bytes` bytes and returns its path; it must not exist.
    pub(crate) fn create(&self, name: &str, form: Form, bytes: u64) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        if !self.kind.is_slabfs() || form == Form::Bytes {
            std::fs::File::create_new(&path)
                .with_context(|| format!("creating {}", path.display()))?;
            return Ok(path);
        }
        ensure!(
            bytes.is_multiple_of(ROW_ELEMENTS * ELEM),
            "the size must be a multiple of complete rows of 256 KiB"
        );
        let dims = format!("{},{ROW_ELEMENTS}", bytes / (ROW_ELEMENTS * ELEM));
        let layout = if form == Form::Grid {
            "grid:1024,1024"
        } else {
            "aligned"
        };
        self.declare(&path, &dims, layout)?;
        Ok(path)
    }

    /// Creates an array of 4-byte elements.
    pub(crate) fn declare(&self, path: &Path, dims: &str, layout: &str) -> anyhow::Result<()> {
        let status = Command::new(&self.slabfs)
            .arg("create")
            .arg(path)
            .args(["--dtype", "f4", "--dims", dims, "--layout", layout])
            .status()
            .context("running slabfs create")?;
        ensure!(status.success(), "slabfs create {} failed", path.display());
        Ok(())
    }
}

/// The directories while systems are being started.
struct Starter {
    slabfs: PathBuf,
    work: PathBuf,
    disk: PathBuf,
}

impl Starter {
    fn new(args: &Args) -> anyhow::Result<Starter> {
        let slabfs = binary(args.slabfs.as_deref())?;
        let own = std::env::current_exe().context("finding this program")?;
        let next_to = own.parent().context("finding this program's directory")?;
        let name = format!("slabfs-bench-{}", std::process::id());
        let new = |parent: &Path| -> anyhow::Result<PathBuf> {
            let dir = parent.join(&name);
            std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
            cleanup::directory(dir.clone());
            dir.canonicalize()
                .with_context(|| format!("finding {}", dir.display()))
        };
        let work = new(args.work.as_deref().unwrap_or(Path::new("/dev/shm")))?;
        let disk = new(args.disk.as_deref().unwrap_or(next_to))?;
        Ok(Starter { slabfs, work, disk })
    }

    fn start_all(&self, kinds: &[Kind]) -> anyhow::Result<Systems> {
        let mut all = Vec::new();
        for &kind in kinds {
            let (dir, mount_pid) = self
                .start(kind)
                .with_context(|| format!("starting the system {}", kind.name()))?;
            all.push(System {
                kind,
                dir,
                mount_pid,
                slabfs: self.slabfs.clone(),
            });
        }
        Ok(Systems { all })
    }

    fn start(&self, kind: Kind) -> anyhow::Result<(PathBuf, Option<u32>)> {
        let name = kind.name();
        match kind {
            Kind::Ext4 => Ok((self.disk.clone(), None)),
            Kind::Null | Kind::Memory => {
                let mountpoint = self.mountpoint(name)?;
                let own = std::env::current_exe().context("finding this program")?;
                let mut command = Command::new(own);
                command.args(["fs", name]).arg(&mountpoint);
                let pid = spawn(command, name)?;
                Ok((mountpoint, Some(pid)))
            }
            Kind::Bindfs => {
                let data = self.work.join("bindfs-data");
                std::fs::create_dir(&data).context("creating a directory")?;
                let mountpoint = self.mountpoint(name)?;
                // It continues in the background once it is mounted and ends with its mount.
                let status = Command::new("bindfs").arg(&data).arg(&mountpoint).status();
                let status =
                    status.context("running bindfs; install it or omit it with --systems")?;
                ensure!(status.success(), "bindfs failed ({status})");
                Ok((mountpoint, None))
            }
            Kind::Up => {
                let mountpoint = self.mountpoint(name)?;
                let data = self.work.join("up-data");
                let pid = self.slabfs(name, &["up", "--data"], &[&data, &mountpoint])?;
                Ok((mountpoint, Some(pid)))
            }
            Kind::Split => {
                let mountpoint = self.mountpoint(name)?;
                let path = |name: &str| self.work.join(name);
                let md = format!("unix:{}", path("md.sock").display());
                let os = format!("unix:{}", path("os.sock").display());
                self.slabfs(
                    "split mdserver",
                    &["mdserver", "--listen", &md, "--data"],
                    &[&path("md")],
                )?;
                let objserver = ["objserver", "--listen", &os, "--md", &md, "--data"];
                self.slabfs("split objserver", &objserver, &[&path("os")])?;
                let pid = self.slabfs("split mount", &["mount", "--md", &md], &[&mountpoint])?;
                Ok((mountpoint, Some(pid)))
            }
        }
    }

    fn mountpoint(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.work.join(format!("mnt-{name}"));
        std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        cleanup::mount(path.clone());
        Ok(path)
    }

    fn slabfs(&self, name: &'static str, args: &[&str], paths: &[&Path]) -> anyhow::Result<u32> {
        let mut command = Command::new(&self.slabfs);
        command.args(args).args(paths).arg("--quiet");
        spawn(command, name)
    }
}

/// The slabfs binary: the given one, or the one next to this program.
pub(crate) fn binary(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let slabfs = given.map_or_else(|| own.with_file_name("slabfs"), Path::to_owned);
    ensure!(
        slabfs.is_file(),
        "there is no slabfs binary at {}; build it or give --slabfs PATH",
        slabfs.display()
    );
    slabfs.canonicalize().context("finding the slabfs binary")
}

/// Starts a process and waits until it prints `ready:`; returns its id.
pub(crate) fn spawn(mut command: Command, name: &'static str) -> anyhow::Result<u32> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    cleanup::prepare(&mut command);
    let mut child: Child = command
        .spawn()
        .with_context(|| format!("starting {name}"))?;
    let stdout = child.stdout.take().context("a process without stdout")?;
    let pid = cleanup::process(child, name);
    let mut line = String::new();
    BufReader::new(stdout)
        .read_line(&mut line)
        .with_context(|| format!("waiting for {name}"))?;
    if !line.starts_with("ready:") {
        bail!("{name} did not start; its message is above");
    }
    Ok(pid)
}
