//! `slabfs umount`: take a mount down and wait until its process has stored everything.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};

use crate::args::parse_time;
use crate::mountpoint::{Mounted, detach, mounts, unmount};
use crate::output;
use crate::process::{Watched, users_of};

/// Unmount, and wait until the mount's process has written everything and ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs umount mnt
  slabfs umount mnt --lazy        take it out of sight although programs still use it")]
pub(crate) struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Take it out of sight at once; it ends when the last program that uses it does
    #[arg(long)]
    lazy: bool,
    /// How long to wait for its process to end
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    timeout: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let shown = args.mountpoint.display();
    let full = match args.mountpoint.canonicalize() {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
            detach(&args.mountpoint)?;
            let text = format!("{shown} was a mount whose process is gone; it is taken away\n");
            return output::print(&text);
        }
        result => result.map_err(|error| crate::onmount::explain(&args.mountpoint, error))?,
    };
    let mounted = mounts()?;
    let Some(mounted) = mounted.iter().rfind(|mounted| mounted.at == full) else {
        bail!("nothing is mounted on {shown}");
    };
    if !mounted.kind.starts_with("fuse") {
        bail!(
            "{shown} is a mount of type {}, not one of slabfs; use `umount`",
            mounted.kind
        );
    }
    let process = serving_process(mounted);
    if args.lazy {
        return detach(&full);
    }
    match unmount(&full) {
        Ok(()) => {}
        Err(nix::Error::EBUSY) => {
            let users = users_of(&full);
            let users = if users.is_empty() {
                "programs".to_owned()
            } else {
                users.join(", ")
            };
            bail!(
                "{shown} is in use by {users}; close what is open below it (and leave it with your shells), or use `slabfs umount --lazy {shown}`"
            );
        }
        Err(error) => {
            return Err(anyhow::Error::new(error)).with_context(|| {
                format!("cannot unmount {shown}; it belongs to whoever mounted it")
            });
        }
    }
    let Some(process) = process else {
        return Ok(());
    };
    if !process
        .wait(args.timeout)
        .context("waiting for the mount's process")?
    {
        return Err(anyhow!(
            "{shown} is unmounted, but its process still runs after {:?}: it may be storing data, or waiting for a server; see its log",
            args.timeout
        ));
    }
    Ok(())
}

/// The process behind a mount, as far as it is on this machine.
fn serving_process(mounted: &Mounted) -> Option<Watched> {
    let pid = mounted.process()?;
    match Watched::open(pid) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::warn!("cannot watch process {pid}: {error}");
            None
        }
    }
}
