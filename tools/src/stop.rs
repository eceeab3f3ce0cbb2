//! `slabfs stop`: stops the process on a data directory cleanly, and waits for it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};

use crate::args::parse_time;
use crate::mountpoint::mounts;
use crate::output;
use crate::pidfile::{self, Found};
use crate::process::Watched;
use crate::up::default_data;

/// Stop the service that runs on a data directory.
///
/// That is an mdserver, an objserver or `up`; the command waits until it has ended. It stops as on Ctrl-C: everything is written first. Its process number is in DIR/slabfs.pid while it runs. A
/// mount is stopped with `slabfs umount`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs mdserver --listen unix:md.sock --data md --daemon
  slabfs stop --data md")]
pub(crate) struct Args {
    /// The --data it was started with (default: ~/.local/share/slabfs, as for `slabfs up`)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How long to wait for its process to end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    timeout: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let dir = match &args.data {
        Some(dir) => dir.clone(),
        None => default_data()?,
    };
    let shown = dir.display();
    let pid = running(&dir)?;
    let process = Watched::open(pid).with_context(|| format!("cannot watch process {pid}"))?;
    // Check the lock again: from now on the number cannot be reused by another process.
    let process = process.filter(|_| pidfile::find(&dir).is_ok_and(|f| f == Found::Running(pid)));
    let Some(process) = process else {
        return output::print(&format!("process {pid} on {shown} has just ended\n"));
    };
    process.terminate().with_context(|| {
        format!("cannot stop process {pid} on {shown}; it belongs to the user who started it")
    })?;
    if process
        .wait(args.timeout)
        .with_context(|| format!("waiting for process {pid}"))?
    {
        return output::print(&format!("stopped process {pid} on {shown}\n"));
    }
    bail!(
        "process {pid} on {shown} got the signal to stop and still runs after {:?}: it may be storing data, or waiting for a server; see its log, or wait longer with --timeout",
        args.timeout
    )
}

/// The process that runs on `dir`; an error says why there is none.
fn running(dir: &Path) -> anyhow::Result<u32> {
    let shown = dir.display();
    let found = pidfile::find(dir)
        .with_context(|| format!("cannot read {}", pidfile::path_in(dir).display()))?;
    match found {
        Found::Running(pid) => Ok(pid),
        Found::Dead(pid) => bail!(
            "nothing runs on {shown} any more: process {pid} was killed; starting it again recovers what it had"
        ),
        Found::Nothing if is_mount(dir) => {
            bail!("{shown} is a mount; take it down with `slabfs umount {shown}`")
        }
        Found::Nothing if !dir.is_dir() => bail!(
            "{shown} is no directory; give the --data of the mdserver, objserver or `slabfs up` to stop"
        ),
        Found::Nothing => bail!(
            "nothing of slabfs runs on {shown} (there is no {}); give the --data it was started with",
            pidfile::path_in(dir).display()
        ),
    }
}

fn is_mount(dir: &Path) -> bool {
    let (Ok(full), Ok(mounts)) = (dir.canonicalize(), mounts()) else {
        return false;
    };
    mounts
        .iter()
        .any(|mounted| mounted.at == full && mounted.kind.starts_with("fuse"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_why_there_is_nothing_to_stop() {
        let dir = tempfile::tempdir().expect("dir");
        let why = |dir: &Path| running(dir).expect_err("nothing").to_string();
        assert!(why(dir.path()).contains("nothing of slabfs runs"));
        assert!(why(&dir.path().join("gone")).contains("no directory"));
        std::fs::write(pidfile::path_in(dir.path()), "77\n").expect("left behind");
        assert!(why(dir.path()).contains("77 was killed"));
    }
}
