//! Where log lines go and which are written: `-v`, `-q`, `RUST_LOG`, `--log-file`.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

use crate::args::Verbosity;

/// How much is logged when `RUST_LOG` says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level(&'static str);

impl Level {
    /// What a service logs: its life by default, each `-v` more, `-q` only what is wrong.
    pub(crate) fn service(verbosity: &Verbosity) -> Level {
        Level(match (verbosity.quiet, verbosity.verbose) {
            (true, _) => "warn,fuser::reply=off",
            // sled and fuser tell of their own insides at info; people did not ask for that. A reply that
            // the kernel does not wait for any more, as at an unmount, is nothing anybody can act on.
            (false, 0) => "info,sled=warn,fuser=warn,fuser::reply=off",
            (false, 1) => "debug,sled=info,fuser=info",
            (false, _) => "trace,sled=info",
        })
    }

    /// What a command that runs and ends logs: only what is wrong by default.
    pub(crate) fn tool(verbosity: &Verbosity) -> Level {
        Level(match (verbosity.quiet, verbosity.verbose) {
            (true, _) => "error",
            (false, 0) => "warn,fuser=error",
            (false, 1) => "info,sled=warn,fuser=warn",
            (false, _) => "debug,sled=info",
        })
    }
}

/// Starts logging to `file`, or to stderr. May be called once in a process.
pub(crate) fn start(level: Level, file: Option<&Path>) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).map_err(|error| {
            crate::failure::usage(format!(
                "RUST_LOG={text:?} is no log filter ({error}); write for example RUST_LOG=debug or RUST_LOG=slabfs_fs=trace,info"
            ))
        })?,
        _ => EnvFilter::new(level.0),
    };
    let builder = tracing_subscriber::fmt().with_env_filter(filter);
    match file {
        Some(path) => {
            let file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .with_context(|| {
                    format!(
                        "cannot write the log file {}; choose another with --log-file",
                        path.display()
                    )
                })?;
            builder
                .with_ansi(false)
                .with_writer(std::sync::Mutex::new(file))
                .init();
        }
        // A reader of stderr that has gone is no reason to end (by default the failure is told on stderr,
        // with a macro that panics when that fails too).
        None => builder
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .init(),
    }
    Ok(())
}
