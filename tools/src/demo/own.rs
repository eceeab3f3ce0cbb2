//! A mount that a demonstration starts in a process of its own and removes afterwards.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Data servers of such a mount.
const SERVERS: &str = "2";

/// A running `slabfs up` on a temporary directory; dropping it stops the one and removes the other.
pub(super) struct OwnMount {
    process: Child,
    dir: PathBuf,
    mountpoint: PathBuf,
}

impl OwnMount {
    /// Starts it and waits until it answers.
    pub(super) fn start() -> anyhow::Result<OwnMount> {
        let dir = std::env::temp_dir().join(format!("slabfs-demo-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mountpoint = dir.join("mnt");
        let started = Self::start_in(&dir, &mountpoint);
        match started {
            Ok(process) => Ok(OwnMount {
                process,
                dir,
                mountpoint,
            }),
            Err(error) => {
                remove(&dir);
                Err(error)
            }
        }
    }

    fn start_in(dir: &Path, mountpoint: &Path) -> anyhow::Result<Child> {
        std::fs::create_dir(mountpoint)
            .with_context(|| format!("cannot create {}", mountpoint.display()))?;
        let program = std::env::current_exe().context("cannot find the slabfs binary itself")?;
        let mut process = Command::new(program)
            .args(["up", "--quiet", "--servers", SERVERS, "--data"])
            .arg(dir.join("data"))
            .arg(mountpoint)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start `slabfs up`")?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("`slabfs up` has no pipe")?;
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("reading from `slabfs up`")?;
        if line.starts_with("ready:") {
            return Ok(process);
        }
        let status = process.wait().context("waiting for `slabfs up`")?;
        bail!("the demonstration's own mount did not start ({status}); see the message above")
    }

    /// Where it is mounted.
    pub(super) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Stops it and waits for a clean exit.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.interrupt();
        let status = self.process.wait().context("waiting for `slabfs up`")?;
        anyhow::ensure!(
            status.success(),
            "the demonstration's own mount ended badly ({status})"
        );
        Ok(())
    }

    fn interrupt(&self) {
        // It may have exited already; `wait` reports that.
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

impl Drop for OwnMount {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.interrupt();
            if let Err(error) = self.process.wait() {
                tracing::warn!("cannot wait for the demonstration's mount: {error}");
            }
        }
        remove(&self.dir);
    }
}

fn remove(dir: &Path) {
    if let Err(error) = std::fs::remove_dir_all(dir) {
        tracing::warn!("{} stays behind: {error}", dir.display());
    }
}
