//! What commands print. A reader that has seen enough (`slabfs stats mnt | head`) closes the pipe;
//! that is no error, and no reason to go on.

use std::io::{ErrorKind, Write};

use anyhow::Context;
use serde_json::Value;

/// Writes `text` to stdout as it is.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    bytes(text.as_bytes()).map(|_| ())
}

/// Writes bytes to stdout as they are; says whether anybody reads on.
pub(crate) fn bytes(text: &[u8]) -> anyhow::Result<bool> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.context("cannot write to stdout").map(|()| true),
    }
}

/// Writes a line to stderr. When nobody reads that any more there is nobody left to tell.
pub(crate) fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Writes a value as indented JSON.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> anyhow::Result<()> {
    let value: Value = serde_json::to_value(value).context("writing JSON")?;
    print(&format!("{value:#}\n"))
}
