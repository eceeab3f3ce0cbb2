//! The systems that are compared, one trait for all: start, two places of the same files, forget, and, by
//! `cleanup` alone, stop.

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
    /// slabfs: a metadata service, two data servers, two mounts, over TCP as the other distributed ones.
    Slabfs,
    /// The same over Unix sockets, as on one node: what is compared with filesystems that know one node only.
    SlabfsUnix,
}

impl Kind {
    /// As it is written on the command line and in the table.
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

/// A system that runs.
pub(super) trait System {
    /// The two places at which the same files are.
    fn dirs(&self) -> [&Path; 2];

    /// Takes the mounts down and mounts anew, so that no process knows any data any more.
    fn forget(&mut self) -> anyhow::Result<()>;

    /// Makes an array of 4-byte elements with such dims, where that means something.
    fn declare(&self, _path: &Path, _dims: Option<&str>) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Where a system is started: a directory of its own, noted to be removed.
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

    /// Starts a program of others; what it says goes to a file.
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
            format!(
                "starting {name}; install it (tools/setup --bench) or leave it out by --systems"
            )
        })?;
        Ok(cleanup::foreign(child, name))
    }

    /// Starts a program of others that mounts, and waits for the mount.
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

/// Takes a mount of a program of others down and ends its process.
pub(super) fn end_foreign_mount(at: &Path, pid: u32) -> anyhow::Result<()> {
    cleanup::unmount(at)?;
    cleanup::end_now(pid, nix::sys::signal::Signal::SIGTERM)
}

/// Starts a system. What was started is noted with `cleanup`, also on an error.
pub(super) fn start(place: &Place) -> anyhow::Result<Box<dyn System + '_>> {
    Ok(match place.kind {
        Kind::Ext4 => Box::new(local::Ext4::start(place)?),
        Kind::Bindfs => Box::new(local::Bindfs::start(place)?),
        Kind::Gluster => Box::new(gluster::Gluster::start(place)?),
        Kind::Moose => Box::new(moose::Moose::start(place)?),
        Kind::Slabfs | Kind::SlabfsUnix => Box::new(slabfs::Slabfs::start(place)?),
    })
}
