//! Where log lines go and which are written: `-v`, `-q`, `RUST_LOG`, `--log-file`.
//!
//! What is logged holds names and texts of others. A line is one line whatever is in it: control characters are written as
//! escapes, so that nobody makes up lines of his own. A log file is for its owner, and is no link.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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
            let sink = Sink::new(open(path)?);
            builder
                .with_ansi(false)
                .log_internal_errors(false)
                .with_writer(move || sink.clone())
                .init();
        }
        // A reader of stderr that has gone is no reason to end (by default the failure is told on stderr,
        // with a macro that panics when that fails too).
        None => builder
            .log_internal_errors(false)
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(|| Escaped(io::stderr()))
            .init(),
    }
    Ok(())
}

/// Opens a log file to append to: for its owner, and no link, which somebody else may have put there.
pub(crate) fn open(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path);
    let file = opened.with_context(|| {
        format!(
            "cannot write the log file {}; choose another with --log-file (a link is not followed), or leave it out to log \
             to stderr",
            path.display()
        )
    })?;
    let about = file.metadata().context("looking at the log file")?;
    let own = about.uid() == nix::unistd::geteuid().as_raw();
    if about.is_file() && own && about.mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))
            .context("keeping others out of the log file")?;
    }
    Ok(file)
}

/// A log file, written to a line at a time.
#[derive(Debug, Clone)]
struct Sink(Arc<Mutex<File>>);

impl Sink {
    fn new(file: File) -> Sink {
        Sink(Arc::new(Mutex::new(file)))
    }
}

impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (&*file).write_all(&escaped(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A place for lines that may have colours.
struct Escaped<W>(W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&escaped(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// A line with its control characters as escapes, but for the end of it, and for colours, of which the library lets none
/// through that are in a text.
fn escaped(line: &[u8]) -> Vec<u8> {
    let (text, end) = match line.strip_suffix(b"\n") {
        Some(text) => (text, &b"\n"[..]),
        None => (line, &b""[..]),
    };
    let mut out = Vec::with_capacity(line.len() + 16);
    for &byte in text {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' | 0x1b | b' '..=0x7e | 0x80.. => out.push(byte),
            control => out.extend_from_slice(format!("\\x{control:02x}").as_bytes()),
        }
    }
    out.extend_from_slice(end);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line() {
        let line = escaped(b"a name\nWARN forged\r\x07 \xc3\xa9\n");
        assert_eq!(line, b"a name\\nWARN forged\\r\\x07 \xc3\xa9\n");
    }

    #[test]
    fn a_log_is_for_its_owner_and_no_link() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("log");
        std::fs::write(&path, "before\n").expect("written");
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode(0o644)).expect("set");
        let mut sink = Sink::new(open(&path).expect("opened"));
        sink.write_all(b"a\nb\n").expect("written");
        assert_eq!(
            std::fs::read_to_string(&path).expect("read"),
            "before\na\\nb\n"
        );
        let now = path.metadata().expect("metadata").mode() & 0o777;
        assert_eq!(now, 0o600);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let error = format!("{:#}", open(&link).expect_err("a link"));
        assert!(error.contains("not followed"), "{error}");
    }
}
