//! Output of commands. A reader that has enough (`slabfs stats mnt | head`) closes the pipe; that is not an
//! error, and the command stops.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use serde_json::Value;

/// Writes `text` to stdout.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes()).map(|_| ())
}

/// Writes bytes to stdout; returns whether the reader still reads.
pub(crate) fn bytes(text: &[u8]) -> anyhow::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.context("cannot write to stdout").map(|()| true),
    }
}

/// Writes a line to stderr. An error is ignored, because there is no other place to report it.
pub(crate) fn error_line(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a value as indented JSON.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    let value: Value = serde_json::to_value(value).context("writing JSON")?;
    print(&format!("{value:#}\n"))
}
