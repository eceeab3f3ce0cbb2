//! slabfs: a metadata service, two data servers and two mounts, over TCP like the others or over Unix sockets.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use nix::sys::signal::Signal;

use super::local::succeed;
use super::network::ADDRESS;
use super::systems::{Kind, Place, System};
use crate::cleanup;
use crate::systems::spawn;

/// The first port.
const PORT: u16 = 7070;

/// The servers with their mounts.
pub(super) struct Slabfs<'a> {
    place: &'a Place,
    key: Option<PathBuf>,
    at: [PathBuf; 2],
    pids: [u32; 2],
}

impl<'a> Slabfs<'a> {
    pub(super) fn start(place: &'a Place) -> anyhow::Result<Slabfs<'a>> {
        let key = (!is_unix(place)).then(|| write_key(place)).transpose()?;
        let mut slabfs = Slabfs {
            place,
            key,
            at: [place.mountpoint("mnt0")?, place.mountpoint("mnt1")?],
            pids: [0; 2],
        };
        let md = slabfs.address(0);
        let mut command = slabfs.command("mdserver");
        command.args(["--listen", &md, "--data"]);
        command.arg(place.dir.join("md"));
        spawn(command, "slabfs mdserver")?;
        for server in 1..=2 {
            let mut command = slabfs.command("objserver");
            command.args(["--md", &md, "--listen", &slabfs.address(server), "--data"]);
            command.arg(place.dir.join(format!("os{server}")));
            spawn(command, "slabfs objserver")?;
        }
        slabfs.mount()?;
        Ok(slabfs)
    }

    fn mount(&mut self) -> anyhow::Result<()> {
        for (number, at) in self.at.iter().enumerate() {
            let mut command = self.command("mount");
            command.args(["--md", &self.address(0)]).arg(at);
            self.pids[number] = spawn(command, "slabfs mount")?;
        }
        Ok(())
    }

    fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.place.slabfs);
        command.args([subcommand, "--quiet"]);
        if let Some(key) = &self.key {
            command.arg("--key-file").arg(key);
        }
        command
    }

    /// The address of the metadata service (0) or a data server.
    fn address(&self, process: u16) -> String {
        if is_unix(self.place) {
            let socket = self.place.dir.join(format!("{process}.sock"));
            format!("unix:{}", socket.display())
        } else {
            format!("tcp:{ADDRESS}:{}", PORT + process)
        }
    }
}

impl System for Slabfs<'_> {
    fn dirs(&self) -> [&Path; 2] {
        [&self.at[0], &self.at[1]]
    }

    fn forget(&mut self) -> anyhow::Result<()> {
        for pid in self.pids {
            cleanup::end_now(pid, Signal::SIGTERM)?;
        }
        self.mount()
    }

    fn declare(&self, path: &Path, dims: Option<&str>) -> anyhow::Result<()> {
        let Some(dims) = dims else { return Ok(()) };
        let mut command = Command::new(&self.place.slabfs);
        command.arg("create").arg(path);
        succeed(command.args(["--dtype", "f4", "--dims", dims, "--layout", "aligned"]))
    }
}

fn is_unix(place: &Place) -> bool {
    place.kind == Kind::SlabfsUnix
}

/// A key that the processes share; no others reach them.
fn write_key(place: &Place) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = place.write("key", "the benchmark's own, on its own network\n")?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).context("the key")?;
    Ok(path)
}
