//! slabfs as processes: a metadata service and data servers, over Unix sockets or over TCP.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;

use super::network::ADDRESS;
use crate::cleanup::{self, command, end_now, spawn};

/// The first port.
const PORT: u16 = 7070;

/// The running processes.
#[derive(Debug)]
pub(crate) struct Cluster {
    slabfs: PathBuf,
    dir: PathBuf,
    /// The key file of servers that use TCP.
    key: Option<PathBuf>,
    /// The process of the metadata service.
    pub(crate) service: u32,
}

impl Cluster {
    /// Starts the processes, with their data in `dir`.
    pub(crate) fn start(
        slabfs: &Path,
        dir: &Path,
        servers: u16,
        tcp: bool,
    ) -> anyhow::Result<Cluster> {
        let mut cluster = Cluster {
            slabfs: slabfs.to_owned(),
            dir: dir.to_owned(),
            key: tcp.then(|| write_key(dir)).transpose()?,
            service: 0,
        };
        cluster.serve()?;
        for number in 1..=servers {
            let listen = cluster.address(number);
            let data = dir.join(format!("os{number}"));
            let mut server = cluster.command("objserver", &[&"--md", &cluster.md()]);
            server.args(["--listen", &listen, "--data"]).arg(data);
            spawn(server, "slabfs objserver")?;
        }
        Ok(cluster)
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        let mut service = self.command("mdserver", &[&"--listen", &self.md()]);
        service.arg("--data").arg(self.dir.join("md"));
        self.service = spawn(service, "slabfs mdserver")?;
        Ok(())
    }

    /// Ends the metadata service by `signal`, and starts it again; returns the time of the start.
    pub(crate) fn restart(&mut self, signal: Signal) -> anyhow::Result<Duration> {
        end_now(self.service, signal)?;
        let started = Instant::now();
        self.serve()?;
        Ok(started.elapsed())
    }

    /// Mounts it at a new directory; returns that and the process.
    pub(crate) fn mount(&self, name: &str) -> anyhow::Result<(PathBuf, u32)> {
        let at = self.dir.join(name);
        std::fs::create_dir(&at).with_context(|| format!("creating {}", at.display()))?;
        cleanup::mount(at.clone());
        let pid = spawn(self.mount_command(&at), "slabfs mount")?;
        Ok((at, pid))
    }

    pub(super) fn mount_command(&self, at: &Path) -> Command {
        self.command("mount", &[&"--md", &self.md(), &at])
    }

    /// The address of the metadata service.
    pub(crate) fn md(&self) -> String {
        self.address(0)
    }

    /// The address of the metadata service (0) or a data server.
    fn address(&self, process: u16) -> String {
        match self.key {
            Some(_) => format!("tcp:{ADDRESS}:{}", PORT + process),
            None => format!("unix:{}", self.socket(process).display()),
        }
    }

    /// The Unix socket of the metadata service (0) or a data server.
    pub(crate) fn socket(&self, process: u16) -> PathBuf {
        self.dir.join(format!("{process}.sock"))
    }

    fn command(&self, subcommand: &str, args: &[&dyn AsRef<OsStr>]) -> Command {
        let mut command = command(&self.slabfs, &[&subcommand, &"--quiet"]);
        if let Some(key) = &self.key {
            command.arg("--key-file").arg(key);
        }
        command.args(args.iter().map(|arg| arg.as_ref()));
        command
    }
}

/// A key that the processes share; no others reach them.
fn write_key(dir: &Path) -> anyhow::Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("key");
    std::fs::write(&path, "the benchmark's own, on its own network\n").context("the key")?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).context("the key")?;
    Ok(path)
}
