//! `slabfs umount`: take a mount down and wait until its process has stored everything.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::json;

use crate::args::parse_time;
use crate::mountpoint::{Mounted, abort, detach, mounts, unmount};
use crate::onmount::{Mount, Refused};
use crate::output;
use crate::process::{Watched, has_ended, users_of};

/// Unmount, and wait until the mount's process has written everything and ended.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs umount mnt
  slabfs umount mnt --lazy        take it out of sight although programs still use it
  slabfs umount mnt --force       although a server is away and what was written last cannot be stored

Status 0 means that everything is stored. What cannot be stored keeps the mount where it is, so that
nothing is lost while the server it is meant for may come back.")]
pub(crate) struct Args {
    /// Where it is mounted
    mountpoint: PathBuf,
    /// Take it out of sight at once; it ends when the last program that uses it does
    #[arg(long)]
    lazy: bool,
    /// Unmount although not everything can be stored; that is lost then
    #[arg(long)]
    force: bool,
    /// How long it may take, storing what is written and waiting for its process
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    timeout: Duration,
    /// Only have the mount store everything, and print why it cannot, if it cannot
    #[arg(long, hide = true)]
    only_store: bool,
}

/// What the process is run with that asks a mount to store everything.
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
        // Programs have files open there, which nobody serves any more.
        Err(nix::Error::EBUSY) if is_dead(&full) => return take_away(&full),
        Err(nix::Error::EBUSY) => {
            let users = users_of(&full, &ASKS);
            // Programs in the midst of a call, which may last as long as a server is away, or those of former tries.
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
                format!("cannot unmount {shown}; it belongs to whoever mounted it")
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
        return Err(anyhow!(
            "{shown} is unmounted, but its process still runs after {:?}: it may be storing data, or waiting for a server; see its log",
            args.timeout
        ));
    }
    Ok(())
}

/// The mount at a path when its process was killed. The kernel may still wait for an answer of it, and so
/// would whoever looked at the mount: only the list of mounts is looked at.
fn left_behind(mountpoint: &Path) -> anyhow::Result<Option<Mounted>> {
    // A path that is wrong is told of below.
    let Some(full) = named(mountpoint) else {
        return Ok(None);
    };
    let mut mounted = mounts()?;
    mounted.retain(|mounted| mounted.at == full);
    Ok(mounted
        .pop()
        .filter(|last| last.process().is_some_and(has_ended)))
}

/// Whether nobody serves a mount any more: the kernel answers for it then.
fn is_dead(mountpoint: &Path) -> bool {
    let looked = std::fs::metadata(mountpoint);
    looked.is_err_and(|error| error.raw_os_error() == Some(libc::ENOTCONN))
}

/// The full path of a mount point, without a look at what it is: a mount whose services are away answers late.
fn named(mountpoint: &Path) -> Option<PathBuf> {
    let full = match (mountpoint.parent(), mountpoint.file_name()) {
        (Some(parent), Some(name)) => std::path::absolute(parent)
            .and_then(|parent| parent.canonicalize())
            .map(|parent| parent.join(name)),
        _ => std::path::absolute(mountpoint),
    };
    full.ok()
}

/// Takes a mount away that nobody serves.
fn take_away(mountpoint: &Path) -> anyhow::Result<()> {
    detach(mountpoint)?;
    let shown = mountpoint.display();
    output::print(&format!(
        "{shown} was a mount whose process is gone; it is taken away\n"
    ))
}

/// Has the mount store everything, while it is still there to be asked again. It may have to wait for servers that are
/// away, and longer than this is to take; and as long as it has not answered, the kernel lets nobody go who has asked.
/// So another process asks.
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
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        // Nobody listens any more after the timeout.
        let _ = tell.send(std::io::read_to_string(said));
    });
    let shown = mountpoint.display();
    let Ok(said) = told.recv_timeout(timeout) else {
        // It would be in the mount until a service is back. The mount lets it go in a second or two.
        asks.kill().context("ending the process that asked")?;
        bail!(
            "{shown} stays mounted, since it did not say within {timeout:?} that everything is stored: it may wait for \
             a server (`slabfs servers {shown}` shows which are away), or have much to store; try again later, or lose \
             what is not stored with `slabfs umount --force {shown}`"
        );
    };
    let said = said.context("hearing what the mount says")?;
    let status = asks.wait().context("waiting for the process that asked")?;
    match said.as_str() {
        "" if status.success() => Ok(()),
        "" => Err(anyhow!(
            "{shown} stays mounted: the process that asked it ended with {status}"
        )),
        why => Err(anyhow!("{why}")),
    }
}

/// Has the mount store everything.
fn store(mountpoint: &Path) -> anyhow::Result<()> {
    let shown = mountpoint.display();
    let stored = Mount::of(mountpoint).and_then(|mount| mount.call(&json!({ "op": "sync" })));
    match stored {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.errno != libc::ENOSYS => Err(anyhow!(
                "{shown} stays mounted, since not everything can be stored: {refused}; try again when \
                 that is mended (`slabfs servers {shown}` shows which servers are away), or lose it with \
                 `slabfs umount --force {shown}`"
            )),
            // It cannot be asked: a read-only one, or one of an older version.
            _ => {
                tracing::debug!("the mount was not asked to store everything: {error:#}");
                Ok(())
            }
        },
    }
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
