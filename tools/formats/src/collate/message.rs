//! What a worker says to the process that waits for it: messages that end with a zero byte, on its standard output.

use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// This file is being described.
    Reading(PathBuf),
    /// The description of all files is complete; elements that are there twice are compared.
    Comparing,
    /// What is not decomposed is copied from this file.
    Copying(PathBuf),
    /// The output is being written.
    Writing,
    /// A line for the user.
    Note(String),
    /// A line for a user who wants to know more, or what.
    Said(String),
    /// It failed.
    Failed(String),
    /// Everything is written.
    Complete,
}

/// The most bytes of a message.
const LONGEST: u64 = 1 << 20;

impl Message {
    /// Sends it.
    ///
    /// # Errors
    /// The other process is gone.
    pub(super) fn send(&self) -> std::io::Result<()> {
        let (kind, text): (u8, &[u8]) = match self {
            Message::Reading(path) => (b'r', path.as_os_str().as_bytes()),
            Message::Comparing => (b'c', b""),
            Message::Copying(path) => (b'p', path.as_os_str().as_bytes()),
            Message::Writing => (b'w', b""),
            Message::Note(text) => (b'n', text.as_bytes()),
            Message::Said(text) => (b's', text.as_bytes()),
            Message::Failed(text) => (b'f', text.as_bytes()),
            Message::Complete => (b'e', b""),
        };
        let text = text
            .iter()
            .copied()
            .filter(|&byte| byte != 0)
            .take(LONGEST as usize - 2);
        let bytes: Vec<u8> = std::iter::once(kind).chain(text).chain([0]).collect();
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()
    }

    /// The next message; `None` at the end, and for bytes that are none.
    pub(super) fn receive(from: &mut impl BufRead) -> Option<Message> {
        let mut bytes = Vec::new();
        let read = std::io::Read::take(from, LONGEST).read_until(0, &mut bytes);
        read.ok()?;
        let (&kind, text) = bytes.strip_suffix(&[0])?.split_first()?;
        let line = || String::from_utf8_lossy(text).into_owned();
        let path = || Path::new(std::ffi::OsStr::from_bytes(text)).to_owned();
        match kind {
            b'r' => Some(Message::Reading(path())),
            b'p' => Some(Message::Copying(path())),
            b'c' => Some(Message::Comparing),
            b'w' => Some(Message::Writing),
            b'n' => Some(Message::Note(line())),
            b's' => Some(Message::Said(line())),
            b'f' => Some(Message::Failed(line())),
            b'e' => Some(Message::Complete),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_with_a_zero() {
        let mut from: &[u8] = b"rocean.nc.0000\0c\0nhalf";
        assert_eq!(
            Message::receive(&mut from),
            Some(Message::Reading("ocean.nc.0000".into()))
        );
        assert_eq!(Message::receive(&mut from), Some(Message::Comparing));
        assert_eq!(Message::receive(&mut from), None);
    }
}
