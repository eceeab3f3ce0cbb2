//! The compared systems, with one trait for all: start, two directories of the same files, dropping caches,
//! and, only by `cleanup`, stopping.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::ValueEnum;

use super::{MpiArgs, gluster, local, moose, network, slabfs};
use crate::cleanup;

/// A kind of system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Kind {
    /// An ext4 in an image, one mount.
    Ext4,
    /// bindfs over a directory, one mount, locks not forwarded.
    Bindfs,
    /// GlusterFS: a distributed volume of two bricks, two mounts.
    #[value(name = "glusterfs")]
    Gluster,
    /// MooseFS: two chunkservers, one copy, two mounts.
    #[value(name = "moosefs")]
    Moose,
    /// slabfs: a metadata service, two data servers, two mounts, over TCP like the other distributed ones.
    Slabfs,
    /// The same over Unix sockets, as on one node: compared with filesystems for one node.
    SlabfsUnix,
}

impl Kind {
    /// As on the command line and in the table.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Ext4 => "ext4",
            Kind::Bindfs => "bindfs",
            Kind::Gluster => "glusterfs",
            Kind::Moose => "moosefs",
            Kind::Slabfs => "slabfs",
            Kind::SlabfsUnix => "slabfs-unix",
        }
    }
}

/// A running system.
pub(super) trait System {
    /// The two directories with the same files.
    fn dirs(&self) -> [&Path; 2];

    /// Unmounts and mounts again, so that no process has any data cached.
    fn forget(&mut self) -> anyhow::Result<()>;

    /// Creates an array of 4-byte elements with these dims, where that is supported.
    fn declare(&self, _path: &Path, _dims: Option<&str>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Where a system is started: a directory of its own, recorded to be removed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) kind: Kind,
    pub(super) dir: PathBuf,
    pub(super) slabfs: PathBuf,
    /// MiB of data of a pattern.
    pub(super) size: u64,
}

impl Place {
    pub(super) fn new(args: &MpiArgs, kind: Kind) -> anyhow::Result<Place> {
        let parent = args.work.as_deref().unwrap_or(Path::new("/dev/shm"));
        let dir = parent.join(format!(
            "slabfs-bench-{}-{}",
            std::process::id(),
            kind.name()
        ));
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        cleanup::directory(dir.clone());
        Ok(Place {
            kind,
            dir: dir.canonicalize().context("finding a directory")?,
            slabfs: crate::systems::binary(args.slabfs.as_deref())?,
            size: args.size,
        })
    }

    /// A new directory in it.
    pub(super) fn make(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        Ok(path)
    }

    /// A new directory that is unmounted at the end.
    pub(super) fn mountpoint(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.make(name)?;
        cleanup::mount(path.clone());
        Ok(path)
    }

    /// A new file in it.
    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Starts a program of another project; its output goes to a file.
    pub(super) fn foreign(&self, command: &mut Command, name: &'static str) -> anyhow::Result<u32> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))
            .context("opening a log")?;
        let other = log.try_clone().context("opening a log")?;
        command.stdin(Stdio::null()).stdout(log).stderr(other);
        cleanup::prepare(command);
        let child = command.spawn().with_context(|| {
            format!("starting {name}; install it (tools/setup --bench) or omit it with --systems")
        })?;
        Ok(cleanup::foreign(child, name))
    }

    /// Starts a program of another project that mounts, and waits for the mount.
    pub(super) fn foreign_mount(
        &self,
        command: &mut Command,
        name: &'static str,
        at: &Path,
    ) -> anyhow::Result<u32> {
        let pid = self.foreign(command, name)?;
        network::wait_until(pid, name, || cleanup::is_mounted(at))?;
        Ok(pid)
    }
}

/// Unmounts a mount of another project's program and ends its process.
pub(super) fn end_foreign_mount(at: &Path, pid: u32) -> anyhow::Result<()> {
    cleanup::unmount(at)?;
    cleanup::end_now(pid, nix::sys::signal::Signal::SIGTERM)
}

/// Starts a system. Its processes are recorded with `cleanup`, also on an error.
pub(super) fn start(place: &Place) -> anyhow::Result<Box<dyn System + '_>> {
    Ok(match place.kind {
        Kind::Ext4 => Box::new(local::Ext4::start(place)?),
        Kind::Bindfs => Box::new(local::Bindfs::start(place)?),
        Kind::Gluster => Box::new(gluster::Gluster::start(place)?),
        Kind::Moose => Box::new(moose::Moose::start(place)?),
        Kind::Slabfs | Kind::SlabfsUnix => Box::new(slabfs::Slabfs::start(place)?),
    })
}
