//! Systems on one node: ext4 in an image in memory, and bindfs over a directory. Both places are one mount.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::systems::{Place, System, end_foreign_mount};
use crate::cleanup;

/// An ext4 in an image.
pub(super) struct Ext4 {
    image: PathBuf,
    at: PathBuf,
}

impl Ext4 {
    pub(super) fn start(place: &Place) -> anyhow::Result<Ext4> {
        let image = place.write("image", "")?;
        let file = std::fs::File::options().write(true).open(&image);
        // All patterns, and as much again for ext4's own structures.
        file.and_then(|file| file.set_len((4 * place.size + 512) << 20))
            .context("sizing the image")?;
        succeed(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        let at = place.mountpoint("mnt")?;
        let ext4 = Ext4 { image, at };
        ext4.mount()?;
        Ok(ext4)
    }

    fn mount(&self) -> anyhow::Result<()> {
        let mut command = Command::new("mount");
        succeed(
            command
                .args(["-t", "ext4", "-o", "loop"])
                .arg(&self.image)
                .arg(&self.at),
        )
    }
}

impl System for Ext4 {
    fn dirs(&self) -> [&Path; 2] {
        [&self.at, &self.at]
    }

    fn forget(&mut self) -> anyhow::Result<()> {
        cleanup::unmount(&self.at)?;
        self.mount()
    }
}

/// bindfs over a directory.
pub(super) struct Bindfs<'a> {
    place: &'a Place,
    data: PathBuf,
    at: PathBuf,
    pid: u32,
}

impl<'a> Bindfs<'a> {
    pub(super) fn start(place: &'a Place) -> anyhow::Result<Bindfs<'a>> {
        let data = place.make("data")?;
        let at = place.mountpoint("mnt")?;
        let mut bindfs = Bindfs {
            place,
            data,
            at,
            pid: 0,
        };
        bindfs.mount()?;
        Ok(bindfs)
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        let mut command = Command::new("bindfs");
        command.arg("-f").arg(&self.data).arg(&self.at);
        self.pid = self.place.foreign_mount(&mut command, "bindfs", &self.at)?;
        Ok(())
    }
}

impl System for Bindfs<'_> {
    fn dirs(&self) -> [&Path; 2] {
        [&self.at, &self.at]
    }

    fn forget(&mut self) -> anyhow::Result<()> {
        end_foreign_mount(&self.at, self.pid)?;
        self.mount()
    }
}

/// Runs a command that must succeed; its other output is discarded.
pub(super) fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("running {name}"))?;
    ensure!(status.success(), "{name} failed ({status})");
    Ok(())
}
