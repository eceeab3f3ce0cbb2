//! Logging: where log lines go and which are written: `-v`, `-q`, `RUST_LOG`, `--log-file`.
//!
//! Log lines contain names and texts that other users choose. Control characters are escaped, so that a text
//! cannot forge another line (`file`), and the rate is limited, so that an error in a loop does not fill a disk
//! (`rate`).

mod file;
mod rate;

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub(crate) use file::open;
use file::{Escaped, Sink};
use rate::Rate;

use crate::args::Verbosity;

/// The log filter when `RUST_LOG` is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level(&'static str);

impl Level {
    /// The filter of a service: starts, stops and the like by default, more with each `-v`, only warnings and
    /// errors with `-q`.
    pub(crate) fn service(verbosity: &Verbosity) -> Level {
        Level(match (verbosity.quiet, verbosity.verbose) {
            (true, _) => "warn,fuser::reply=off",
            // sled and fuser log internals at info, which users did not ask for. fuser::reply reports replies
            // that the kernel does not wait for any more, as at an unmount; there is nothing to do about them.
            (false, 0) => "info,sled=warn,fuser=warn,fuser::reply=off",
            (false, 1) => "debug,sled=info,fuser=info",
            (false, _) => "trace,sled=info",
        })
    }

    /// The filter of a command that runs and ends: only warnings and errors by default.
    pub(crate) fn tool(verbosity: &Verbosity) -> Level {
        Level(match (verbosity.quiet, verbosity.verbose) {
            (true, _) => "error",
            (false, 0) => "warn,fuser=error",
            (false, 1) => "info,sled=warn,fuser=warn",
            (false, _) => "debug,sled=info",
        })
    }

    /// The filter of `slabfs fsck`: as of other commands, without the lines about chunks that it reports as findings.
    pub(crate) fn fsck(verbosity: &Verbosity) -> Level {
        match (verbosity.quiet, verbosity.verbose) {
            (false, 0) => Level(
                "warn,fuser=error,slabfs_objstore::store::local::open=off,\
                 slabfs_objstore::store::local::segment::scan=off",
            ),
            _ => Level::tool(verbosity),
        }
    }
}

/// A log file and its size limit.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Bytes; a file that would exceed it is rotated.
    pub(crate) limit: u64,
}

/// Starts logging to a file, or to stderr. May be called once in a process.
pub(crate) fn start(level: Level, file: Option<&LogFile>) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            crate::failure::usage(format!(
                "RUST_LOG={text:?} is no log filter ({error}); write for example RUST_LOG=debug or RUST_LOG=slabfs_fs=trace,info"
            ))
        })?,
        _ => EnvFilter::new(level.0),
    };
    let rate = Rate::start().context("starting the thread of the log")?;
    // A closed stderr is no reason to end (by default the failure is printed on stderr, with a macro that
    // panics when that fails too).
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let log = tracing_subscriber::registry().with(filter);
    match file {
        Some(LogFile { path, limit }) => {
            let sink = Sink::new(path, open(path)?, *limit);
            let lines = lines.with_ansi(false).with_writer(move || sink.clone());
            log.with(lines).with(rate).init();
        }
        None => {
            let lines = lines
                .with_ansi(io::stderr().is_terminal())
                .with_writer(|| Escaped(io::stderr()));
            log.with(lines).with(rate).init();
        }
    }
    Ok(())
}
