//! Where a system is started: a directory of its own.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;

use super::Kind;
use crate::args::Common;
use crate::cleanup;

/// The directory, and what else a start needs.
#[derive(Debug)]
pub(crate) struct Place {
    pub(super) dir: PathBuf,
    pub(super) slabfs: PathBuf,
    /// A directory on the disk, which is the system ext4.
    pub(crate) disk: Option<PathBuf>,
    /// MiB of the image of an ext4 in memory.
    pub(crate) image: u64,
}

impl Place {
    /// A new directory, which is removed at the end.
    pub(crate) fn new(args: &Common, kind: Kind) -> anyhow::Result<Place> {
        let suffix = format!("-{}", crate::args::name(kind));
        Ok(Place {
            dir: cleanup::new_directory(args.work.as_deref(), &suffix)?,
            slabfs: args.slabfs()?,
            disk: None,
            image: 0,
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
    pub(super) fn foreign(&self, command: &mut Command, name: &str) -> anyhow::Result<u32> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))
            .context("opening a log")?;
        let other = log.try_clone().context("opening a log")?;
        cleanup::foreign(command.stdout(log).stderr(other), name)
    }
}
