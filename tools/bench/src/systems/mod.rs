//! The compared systems: starting one, its directories, mounting it again. Only `cleanup` stops them.
//!
//! A system is some servers, if any, and one or two mounts of the same files.

mod cluster;
mod gluster;
mod moose;
pub(crate) mod network;
mod place;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use clap::ValueEnum;
use nix::sys::signal::Signal;

use crate::cleanup::{self, command, output};
pub(crate) use cluster::Cluster;
pub(crate) use place::Place;

/// A kind of system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A FUSE filesystem that stores nothing: the ceiling.
    Null,
    /// A FUSE filesystem that stores files in memory with one copy.
    Memory,
    /// The same, with the kernel's pages.
    Pages,
    /// bindfs over a directory, locks not forwarded.
    Bindfs,
    /// A plain directory of the disk; for MPI programs an ext4 in an image in memory.
    Ext4,
    /// `slabfs up`: everything in one process.
    Up,
    /// slabfs as three processes over Unix sockets.
    Split,
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
    /// Whether it supports arrays.
    pub(crate) fn is_slabfs(self) -> bool {
        matches!(
            self,
            Kind::Up | Kind::Split | Kind::Slabfs | Kind::SlabfsUnix
        )
    }

    /// Whether it uses TCP, in the benchmark's own network.
    pub(crate) fn is_networked(self) -> bool {
        matches!(self, Kind::Gluster | Kind::Moose | Kind::Slabfs)
    }

    /// Whether it is a program of another project that mounts it.
    fn is_foreign(self) -> bool {
        matches!(
            self,
            Kind::Bindfs | Kind::Ext4 | Kind::Gluster | Kind::Moose
        )
    }

    fn mounts(self) -> usize {
        match self {
            Kind::Gluster | Kind::Moose | Kind::Slabfs | Kind::SlabfsUnix => 2,
            _ => 1,
        }
    }
}

/// The command that mounts a system at a directory.
type Mount = Box<dyn Fn(&Path) -> Command>;

/// One running system.
pub(crate) struct System {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The directories with the same files.
    pub(crate) dirs: Vec<PathBuf>,
    /// The processes of the mounts.
    pub(crate) pids: Vec<u32>,
    place: Place,
    mount: Mount,
}

/// All of them, another first each round, so that none always follows the same one.
pub(crate) fn in_rotation<T>(all: &[T], round: u32) -> impl Iterator<Item = &T> {
    let first = round as usize % all.len().max(1);
    all[first..].iter().chain(&all[..first])
}

impl System {
    /// Starts a system. Everything that was started is recorded with `cleanup`, also on an error.
    pub(crate) fn start(kind: Kind, place: Place) -> anyhow::Result<System> {
        let name = crate::args::name(kind);
        System::try_start(kind, place).with_context(|| format!("starting the system {name}"))
    }

    fn try_start(kind: Kind, place: Place) -> anyhow::Result<System> {
        if let (Kind::Ext4, Some(disk)) = (kind, &place.disk) {
            return Ok(System {
                kind,
                dirs: vec![disk.clone()],
                pids: Vec::new(),
                mount: Box::new(|_| Command::new("true")),
                place,
            });
        }
        let mount: Mount = match kind {
            Kind::Null | Kind::Memory | Kind::Pages => {
                let own = std::env::current_exe().context("finding this program")?;
                let name = crate::args::name(kind);
                Box::new(move |at| command(&own, &[&"fs", &name, &at]))
            }
            Kind::Bindfs => {
                let data = place.make("data")?;
                Box::new(move |at| command("bindfs", &[&"-f", &data, &at]))
            }
            Kind::Ext4 => {
                let image = place.write("image", "")?;
                let file = std::fs::File::options().write(true).open(&image);
                file.and_then(|file| file.set_len(place.image << 20))
                    .context("sizing the image")?;
                output(&mut command("mkfs.ext4", &[&"-q", &image]))?;
                Box::new(move |at| command("mount", &[&"-t", &"ext4", &"-o", &"loop", &image, &at]))
            }
            Kind::Up => {
                let (slabfs, data) = (place.slabfs.clone(), place.dir.join("data"));
                Box::new(move |at| command(&slabfs, &[&"up", &"--quiet", &"--data", &data, &at]))
            }
            Kind::Gluster => gluster::start(&place)?,
            Kind::Moose => moose::start(&place)?,
            Kind::Split => cluster(&place, 1, false)?,
            Kind::Slabfs => cluster(&place, 2, true)?,
            Kind::SlabfsUnix => cluster(&place, 2, false)?,
        };
        let at = |number| place.mountpoint(&format!("mnt{number}"));
        let mut system = System {
            kind,
            dirs: (0..kind.mounts()).map(at).collect::<Result<_, _>>()?,
            pids: Vec::new(),
            place,
            mount,
        };
        system.mount_all()?;
        if kind == Kind::Moose {
            moose::settle(&system)?;
        }
        Ok(system)
    }

    fn mount_all(&mut self) -> anyhow::Result<()> {
        let name = format!("a mount of {}", crate::args::name(self.kind));
        for at in &self.dirs {
            let mut mount = (self.mount)(at);
            if self.kind == Kind::Ext4 {
                output(&mut mount)?;
            } else if self.kind.is_foreign() {
                let pid = self.place.foreign(&mut mount, &name)?;
                network::wait_until(pid, &name, || cleanup::is_mounted(at))?;
                self.pids.push(pid);
            } else {
                self.pids.push(cleanup::spawn(mount, &name)?);
            }
        }
        Ok(())
    }

    /// Unmounts and mounts again, so that no process has any data cached; not what has its files in the process.
    pub(crate) fn remount(&mut self) -> anyhow::Result<()> {
        if matches!(self.kind, Kind::Null | Kind::Memory | Kind::Pages) {
            return Ok(());
        }
        for at in self.dirs.iter().filter(|_| self.kind.is_foreign()) {
            cleanup::unmount(at)?;
        }
        // The project's own programs unmount when they end.
        for pid in self.pids.drain(..) {
            cleanup::end_now(pid, Signal::SIGTERM)?;
        }
        self.mount_all()
    }

    /// Creates an array of 4-byte elements.
    pub(crate) fn declare(&self, path: &Path, dims: &str, layout: &str) -> anyhow::Result<()> {
        let args: [&str; 6] = ["--dtype", "f4", "--dims", dims, "--layout", layout];
        output(command(&self.place.slabfs, &[&"create", &path]).args(args)).map(drop)
    }
}

fn cluster(place: &Place, servers: u16, tcp: bool) -> anyhow::Result<Mount> {
    let cluster = Cluster::start(&place.slabfs, &place.dir, servers, tcp)?;
    Ok(Box::new(move |at| cluster.mount_command(at)))
}
