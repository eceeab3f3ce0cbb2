//! `slabfs drain`: everything off a data server.
//!
//! The mount moves a slice with each call and this command asks until nothing is left; so it can be
//! ended at any time, and begun again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::args::show_size;
use crate::onmount::Mount;
use crate::output;

/// Between two rounds in which nothing could be moved.
const PAUSE: Duration = Duration::from_millis(300);
/// How often progress is told.
const TELL: Duration = Duration::from_secs(2);

/// Move everything off a data server, so that it can be stopped.
///
/// From now on it gets no new chunks; what it has is copied to the others, while everything stays
/// readable and writable. The command ends when the server is empty. It may be interrupted: the server
/// stays marked, and the same command goes on. `--cancel` takes the mark off; what was moved stays where
/// it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs servers mnt                  which servers there are
  slabfs drain 3 mnt                  empty server 3; then `slabfs stop` it
  slabfs drain 3 mnt --cancel         let it have chunks again")]
pub(crate) struct Args {
    /// The data server's number
    server: u32,
    /// The mount point, or anything below it
    mountpoint: PathBuf,
    /// Take the mark off: the server gets new chunks again
    #[arg(long)]
    cancel: bool,
    /// The outcome as JSON, for programs; no progress
    #[arg(long)]
    json: bool,
    /// Give up when nothing could be moved for so long
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::args::parse_time)]
    patience: Duration,
}

/// What was moved so far.
#[derive(Debug, Default)]
struct Sums {
    chunks: u64,
    bytes: u64,
    /// The server is not there to be asked.
    away: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mount = Mount::of(&args.mountpoint)?;
    let server = args.server;
    mount.call(&json!({"op": "drain", "server": server, "cancel": args.cancel}))?;
    if args.cancel {
        return match args.json {
            true => output::json(&json!({"server": server, "draining": false})),
            false => output::print(&format!("data server {server} gets new chunks again\n")),
        };
    }
    let sums = empty(args, &mount)?;
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

/// Asks for slices until the server is empty.
fn empty(args: &Args, mount: &Mount) -> anyhow::Result<Sums> {
    let mut sums = Sums::default();
    let (mut moved, mut told) = (Instant::now(), Instant::now());
    let (mut after, mut clean) = (0, false);
    let mut wrong: Option<String> = None;
    loop {
        let slice = mount.call(
            &json!({"op": "drain_slice", "server": args.server, "after": after, "clean": clean}),
        )?;
        let number = |key: &str| slice.get(key).and_then(Value::as_u64);
        let chunks = number("chunks").context("the mount does not say what it moved")?;
        sums.chunks += chunks;
        sums.bytes += number("bytes").unwrap_or(0);
        if let Some(error) = slice.get("error").and_then(Value::as_str) {
            wrong = Some(error.to_owned());
        }
        if slice.get("empty").and_then(Value::as_bool) == Some(true) {
            sums.away = slice.get("away").and_then(Value::as_bool) == Some(true);
            return Ok(sums);
        }
        if chunks > 0 {
            moved = Instant::now();
        }
        if moved.elapsed() > args.patience {
            match wrong {
                Some(wrong) => bail!(
                    "data server {} is not empty, and not all of it can be moved: {wrong}; see the log of the mount, remove or mend what it names, and drain again",
                    args.server
                ),
                None => bail!(
                    "data server {} is not empty: files are being written there, or what was deleted is not gone yet; drain again later",
                    args.server
                ),
            }
        }
        if !args.json && told.elapsed() > TELL {
            told = Instant::now();
            crate::output::tell(&format!(
                "{} chunks, {} moved",
                sums.chunks,
                show_size(sums.bytes)
            ));
        }
        clean = slice.get("clean").and_then(Value::as_bool) == Some(true);
        after = match number("next") {
            Some(next) => next,
            None => {
                // All were looked at; what was busy, and what is deleted only now, is left.
                if chunks == 0 {
                    std::thread::sleep(PAUSE);
                }
                0
            }
        };
    }
}
