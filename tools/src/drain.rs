//! `slabfs drain`: moves everything off a data server.
//!
//! Each request moves a slice, and the command repeats it until nothing is left; so it can be interrupted at
//! any time and run again.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::json;
use slabfs_fs::client::Drained;

use crate::args::show_size;
use crate::failure::usage;
use crate::onmount::Mount;
use crate::output;
use crate::progress::Progress;

/// Pause after a round in which nothing could be moved.
const PAUSE: Duration = Duration::from_millis(300);

/// Move everything off a data server, so that it can be stopped.
///
/// The server gets no new chunks from now on; its chunks are copied to the others, while everything stays
/// readable and writable. The command ends when the server is empty. It may be interrupted: the server stays
/// marked, and the same command continues. `--cancel` removes the mark; chunks that were moved stay where they
/// are.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs servers mnt               # which servers there are
  slabfs drain 3 mnt               # empty server 3
  slabfs drain 3 mnt --cancel      # let it have new chunks again

Next: an objserver that is empty can be stopped, `slabfs stop --data DIR`.")]
pub(crate) struct Args {
    /// The data server's number
    server: PathBuf,
    /// The mount point, or any path below it; may also come first
    mountpoint: PathBuf,
    /// Remove the mark: the server gets new chunks again
    #[arg(long)]
    cancel: bool,
    /// Print the outcome as JSON, for programs; no progress
    #[arg(long)]
    json: bool,
    /// Give up when nothing could be moved for this long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::args::parse_time)]
    patience: Duration,
}

/// Totals so far.
#[derive(Debug, Default)]
struct Sums {
    chunks: u64,
    bytes: u64,
    /// The server is stopped or unreachable.
    away: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (server, mountpoint) = parted(&args.server, &args.mountpoint)?;
    let mount = Mount::of(mountpoint)?;
    mount.call(&json!({"op": "drain", "server": server, "cancel": args.cancel}))?;
    if args.cancel {
        return match args.json {
            true => output::json(&json!({"server": server, "draining": false})),
            false => output::print(&format!("data server {server} gets new chunks again\n")),
        };
    }
    let sums = empty(args, server, &mount)?;
    match args.json {
        true => output::json(
            &json!({"server": server, "empty": true, "away": sums.away, "chunks": sums.chunks, "bytes": sums.bytes}),
        ),
        false if sums.away => output::print(&format!(
            "data server {server} is stopped, and nothing is on it any more: it is not needed\n"
        )),
        false => output::print(&format!(
            "data server {server} is empty ({} chunks, {} moved): it can be stopped\n",
            sums.chunks,
            show_size(sums.bytes)
        )),
    }
}

/// The number of the server and the mount point, which may be given in either order.
fn parted<'a>(first: &'a Path, second: &'a Path) -> anyhow::Result<(u32, &'a Path)> {
    let number = |text: &Path| text.to_str()?.parse::<u32>().ok();
    match (number(first), number(second)) {
        (Some(server), _) => Ok((server, second)),
        (None, Some(server)) => Ok((server, first)),
        (None, None) => Err(usage(format!(
            "neither {} nor {} is the number of a data server; `slabfs servers` lists them",
            first.display(),
            second.display()
        ))),
    }
}

/// The bytes that a server reported last.
fn stored(server: u32, mount: &Mount) -> anyhow::Result<u64> {
    let servers = mount.call(&json!({"op": "servers"}))?;
    let mut servers = servers.as_array().into_iter().flatten();
    let known = servers.find(|known| known.get("id") == Some(&json!(server)));
    let bytes = known.and_then(|known| known.get("bytes")?.as_u64());
    Ok(bytes.unwrap_or(0))
}

/// Requests slices until the server is empty.
fn empty(args: &Args, server: u32, mount: &Mount) -> anyhow::Result<Sums> {
    let mut sums = Sums::default();
    let progress = match args.json {
        true => Progress::none(),
        false => Progress::begin("moving", stored(server, mount)?),
    };
    let mut moved = Instant::now();
    let (mut after, mut clean) = (0, false);
    let mut wrong: Option<String> = None;
    loop {
        let slice = mount.call(
            &json!({"op": "drain_slice", "server": server, "after": after, "clean": clean}),
        )?;
        let slice: Drained =
            serde_json::from_value(slice).context("the mount does not report what it moved")?;
        sums.chunks += slice.chunks;
        sums.bytes += slice.bytes;
        wrong = slice.error.or(wrong);
        if slice.empty {
            sums.away = slice.away;
            return Ok(sums);
        }
        if slice.chunks > 0 {
            moved = Instant::now();
        }
        if moved.elapsed() > args.patience {
            match wrong {
                Some(wrong) => bail!(
                    "data server {server} is not empty, and not all of it can be moved: {wrong}; see the log of the mount, remove or repair what it names, and drain again"
                ),
                None => bail!(
                    "data server {server} is not empty: files are being written there, or deleted data is not removed yet; drain again later"
                ),
            }
        }
        progress.at(sums.bytes);
        clean = slice.clean;
        after = slice.next.unwrap_or(0);
        // All chunks were visited; those that were busy, and those deleted only now, are left.
        if slice.next.is_none() && slice.chunks == 0 {
            std::thread::sleep(PAUSE);
        }
    }
}
