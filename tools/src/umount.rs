//! `slabfs umount`: unmounts, and waits until the mount's process has stored everything.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use slabfs_fs::mount::{Mounted, copy_elsewhere};

use crate::args::parse_time;
use crate::mountpoint::{abort, detach, mounts, process_of, unmount};
use crate::onmount::{Mount, Refused};
use crate::output;
use crate::process::{Watched, has_ended, users_of};

/// Unmount, and wait until everything is stored.
///
/// It ends when the mount's process has stored everything and ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs umount mnt
  slabfs umount mnt2 --lazy    # although programs still use it
  slabfs umount mnt3 --force   # although the last data cannot be stored

Status 0 means that everything is stored, except data of objects that are coupled in memory, which ends with the \
mount (`slabfs help couple`). If data cannot be stored the mount stays, so that nothing is lost while \
the server may return.")]
pub(crate) struct Args {
    /// The mount point
    mountpoint: PathBuf,
    /// Detach it at once; it ends when the last program that uses it does
    #[arg(long)]
    lazy: bool,
    /// Unmount although not everything can be stored; the rest is lost
    #[arg(long)]
    force: bool,
    /// How long storing dirty data and waiting for the process may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    timeout: Duration,
    /// Only let the mount store everything, and print the error, if any
    #[arg(long, hide = true)]
    only_store: bool,
}

/// Arguments of the child process that requests the mount to store everything.
const ASKS: [&str; 2] = ["umount", "--only-store"];

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let shown = args.mountpoint.display();
    if args.only_store {
        return match store(&args.mountpoint) {
            Ok(()) => Ok(()),
            Err(error) => output::print(&format!("{error:#}")),
        };
    }
    if let Some(left) = left_behind(&args.mountpoint)? {
        abort(&left)?;
        return take_away(&left.at);
    }
    let full = match named(&args.mountpoint) {
        Some(full) if mounts()?.iter().any(|mounted| mounted.at == full) => full,
        _ => match args.mountpoint.canonicalize() {
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                return take_away(&args.mountpoint);
            }
            result => result.map_err(|error| crate::onmount::explain(&args.mountpoint, error))?,
        },
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
    let until = Instant::now() + args.timeout;
    if !args.force {
        have_stored(&full, args.timeout)?;
    }
    match unmount(&full) {
        Ok(()) => {}
        // Programs have files open there, but no process serves them any more.
        Err(nix::Error::EBUSY) if is_dead(&full) => return take_away(&full),
        Err(nix::Error::EBUSY) if !mounts_below(&full)?.is_empty() => {
            bail!(
                "{shown} has other mounts below it: {}; unmount them first, the last one in this list first",
                mounts_below(&full)?.join(", ")
            );
        }
        Err(nix::Error::EBUSY) => {
            let users = users_of(&full, &ASKS);
            // Programs inside a system call, which may last as long as a server is away, or processes of
            // earlier tries.
            let in_a_call = users.is_empty() && args.force;
            let users = if users.is_empty() {
                "programs".to_owned()
            } else {
                users.join(", ")
            };
            if in_a_call {
                detach(&full)?;
            } else {
                bail!(
                    "{shown} is in use by {users}; close what is open below it (and leave it with your shells), or use `slabfs umount --lazy {shown}`"
                );
            }
        }
        Err(error) => {
            return Err(anyhow::Error::new(error)).with_context(|| {
                format!("cannot unmount {shown}; it belongs to the user who mounted it")
            });
        }
    }
    let Some(process) = process else {
        return Ok(());
    };
    if !process
        .wait(until.saturating_duration_since(Instant::now()))
        .context("waiting for the mount's process")?
    {
        let why = match copy_elsewhere(&mounted.device) {
            Some(copy) => format!(
                "process {} has a copy of the mount in its mount namespace, as a container does; the mount ends with it",
                copy.process
            ),
            None => "it may be storing data, or waiting for a server; see its log".to_owned(),
        };
        return Err(anyhow!(
            "{shown} is unmounted, but its process still runs after {:?}: {why}",
            args.timeout
        ));
    }
    Ok(())
}

/// The mount at a path if its process was killed. The kernel may still wait for a reply of that process, and
/// any access to the mount would block; so only the list of mounts is read.
fn left_behind(mountpoint: &Path) -> anyhow::Result<Option<Mounted>> {
    // A wrong path is reported below.
    let Some(full) = named(mountpoint) else {
        return Ok(None);
    };
    let mut mounted = mounts()?;
    mounted.retain(|mounted| mounted.at == full);
    Ok(mounted
        .pop()
        .filter(|last| process_of(last).is_some_and(has_ended)))
}

/// The mounts inside the mount at `full`, in the order in which they were mounted.
fn mounts_below(full: &Path) -> anyhow::Result<Vec<String>> {
    let below = mounts()?.into_iter().map(|mounted| mounted.at);
    let below = below.filter(|at| at != full && at.starts_with(full));
    Ok(below.map(|at| at.display().to_string()).collect())
}

/// Whether no process serves a mount any more, in which case the kernel returns ENOTCONN.
fn is_dead(mountpoint: &Path) -> bool {
    let looked = std::fs::metadata(mountpoint);
    looked.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// The full path of a mount point, without accessing it: a mount whose services are away answers late.
fn named(mountpoint: &Path) -> Option<PathBuf> {
    let full = match (mountpoint.parent(), mountpoint.file_name()) {
        (Some(parent), Some(name)) => std::path::absolute(parent)
            .and_then(|parent| parent.canonicalize())
            .map(|parent| parent.join(name)),
        _ => std::path::absolute(mountpoint),
    };
    full.ok()
}

/// Removes a mount without a process.
fn take_away(mountpoint: &Path) -> anyhow::Result<()> {
    detach(mountpoint)?;
    let shown = mountpoint.display();
    output::print(&format!(
        "{shown} was a mount whose process is gone; it is removed\n"
    ))
}

/// Lets the mount store everything, while it is still mounted and the request can be repeated. The mount may
/// have to wait for servers that are away, longer than the timeout, and the kernel does not interrupt a request
/// that has no reply. So a child process makes the request.
fn have_stored(mountpoint: &Path, timeout: Duration) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("where this program is")?;
    let mut asks = Command::new(program)
        .args(ASKS)
        .arg("--")
        .arg(mountpoint)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("starting the process that asks the mount")?;
    let said = asks.stdout.take().context("a pipe")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // After the timeout the receiver is gone.
        let _ = sender.send(std::io::read_to_string(said));
    });
    let shown = mountpoint.display();
    let Ok(said) = receiver.recv_timeout(timeout) else {
        // The child would stay in the call until a service is back. The mount releases it in a second or two.
        asks.kill().context("ending the process that asked")?;
        bail!(
            "{shown} stays mounted, because it did not report within {timeout:?} that everything is stored: it may wait for \
             a server (`slabfs servers {shown}` shows which are away), or have much to store; try again later, or lose \
             the data that is not stored with `slabfs umount --force {shown}`"
        );
    };
    let said = said.context("reading the mount's reply")?;
    let status = asks.wait().context("waiting for the process that asked")?;
    match said.as_str() {
        "" if status.success() => Ok(()),
        "" => Err(anyhow!(
            "{shown} stays mounted: the process that asked it ended with {status}"
        )),
        why => Err(anyhow!("{why}")),
    }
}

/// Lets the mount store everything.
fn store(mountpoint: &Path) -> anyhow::Result<()> {
    let shown = mountpoint.display();
    let stored = Mount::of(mountpoint).and_then(|mount| mount.call(&json!({ "op": "sync" })));
    match stored {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.errno != libc::ENOSYS => Err(anyhow!(
                "{shown} stays mounted, because it is not certain that everything is stored: {refused}; try again when \
                 that is repaired (`slabfs servers {shown}` shows which servers are away), or unmount it with \
                 `slabfs umount --force {shown}`: what is not stored is then lost"
            )),
            // The mount has no such request: it is read-only, or of an older version.
            _ => {
                tracing::debug!("the mount was not asked to store everything: {error:#}");
                Ok(())
            }
        },
    }
}

/// The process behind a mount, if it is on this machine.
fn serving_process(mounted: &Mounted) -> Option<Watched> {
    let pid = process_of(mounted)?;
    match Watched::open(pid) {
        Ok(watched) => watched,
        Err(error) => {
            tracing::warn!("cannot watch process {pid}: {error}");
            None
        }
    }
}
