//! The log file: readable by its owner only, one line per event, rotated when it is large.
//!
//! When a line would make the file longer than its limit, the file is renamed to `FILE.old`, replacing the
//! previous one, and a new file is created; there are never more than two. Processes that write to the same
//! file exclude each other during this with a lock on it, for which none waits; each detects by the inode
//! number that another process has rotated it. If the rotation fails, the file grows, and the rotation is tried
//! again after as many bytes as the limit. A file that belongs to another user is not written to, because that
//! user could read the log. A background process writes other output, such as the text of a panic, to the same
//! file: its stderr follows the rotation. A file that is not a regular file is not renamed.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;

/// The most bytes of one line that are written; longer lines are cut.
const LONGEST: usize = 16 << 10;

/// Opens a log file for appending: accessible by its owner only, and not through a symbolic link, which another
/// user may have created.
pub(crate) fn open(path: &Path) -> anyhow::Result<File> {
    let file = own_file(path).with_context(|| {
        format!(
            "cannot write the log file {}; choose another with --log-file (a link is not followed), or leave it out to log \
             to stderr",
            path.display()
        )
    })?;
    Ok(file)
}

fn own_file(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if about.file_type().is_char_device() {
        return Ok(file);
    }
    if about.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other(format!(
            "it belongs to user {}",
            about.uid()
        )));
    }
    if about.is_file() && about.mode() & 0o077 != 0 {
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// A writer of entire lines to a log file.
#[derive(Debug, Clone)]
pub(super) struct Sink(Arc<Mutex<Log>>);

#[derive(Debug)]
struct Log {
    path: PathBuf,
    file: File,
    /// The limit of its size.
    limit: u64,
    /// Size at which it is rotated: the limit, or more after a failure.
    next: u64,
}

impl Sink {
    /// A log in `file`, which is open at `path`, and is rotated before it has more than `limit` bytes.
    pub(super) fn new(path: &Path, file: File, limit: u64) -> Sink {
        Sink(Arc::new(Mutex::new(Log {
            path: path.to_owned(),
            file,
            limit,
            next: limit,
        })))
    }
}

impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let escaped = escaped(line);
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let about = log.file.metadata()?;
        let after = about.len().saturating_add(escaped.len() as u64);
        if about.is_file() && about.len() > 0 && after > log.next {
            // A log that is too long is better than a lost line.
            match log.rotate() {
                Ok(()) => log.next = log.limit,
                Err(error) => {
                    log.next = after.saturating_add(log.limit);
                    let path = log.path.display();
                    let text = format!("{path}: stays as long as it is for now: {error}\n");
                    log.file.write_all(text.as_bytes())?;
                }
            }
        }
        log.file.write_all(&escaped)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn rotate(&mut self) -> io::Result<()> {
        match self.file.try_lock() {
            Ok(()) => {}
            // Another process rotates it, or an unrelated process has locked it.
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other("another process holds a lock on it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The descriptor may have duplicates, such as stderr: closing it does not release the lock.
        match self.rotate_locked() {
            Ok(file) => std::mem::replace(&mut self.file, file).unlock(),
            Err(error) => {
                self.file.unlock()?;
                Err(error)
            }
        }
    }

    fn rotate_locked(&self) -> io::Result<File> {
        let current = same(
            &self.file.metadata()?,
            std::fs::symlink_metadata(&self.path).ok(),
        );
        if current {
            let mut old = OsString::from(&self.path);
            old.push(".old");
            std::fs::rename(&self.path, old)?;
        }
        let file = own_file(&self.path)?;
        let stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        if same(&self.file.metadata()?, stderr.metadata().ok()) {
            nix::unistd::dup2_stderr(&file)?;
        }
        Ok(file)
    }
}

/// Whether both are the same file.
fn same(one: &std::fs::Metadata, other: Option<std::fs::Metadata>) -> bool {
    other.is_some_and(|other| (one.dev(), one.ino()) == (other.dev(), other.ino()))
}

/// A writer that escapes control characters, for lines that may have colours.
pub(super) struct Escaped<W>(pub(super) W);

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&escaped(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes the control characters of a line, except for the newline at its end and for colours. ESC need not be
/// escaped here: the tracing library escapes those in texts.
fn escaped(line: &[u8]) -> Vec<u8> {
    let (text, end) = match line.strip_suffix(b"\n") {
        Some(text) => (text, &b"\n"[..]),
        None => (line, &b""[..]),
    };
    let cut = &text[..text.len().min(LONGEST)];
    let mut out = Vec::with_capacity(cut.len() + 64);
    for &byte in cut {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' | 0x1b | b' '..=0x7e | 0x80.. => out.push(byte),
            control => out.extend_from_slice(format!("\\x{control:02x}").as_bytes()),
        }
    }
    if cut.len() < text.len() {
        let more = text.len() - cut.len();
        out.extend_from_slice(format!(" … ({more} bytes more)").as_bytes());
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
    fn a_long_line_is_cut() {
        let mut line = vec![b'x'; LONGEST + 10];
        line.push(b'\n');
        let written = String::from_utf8(escaped(&line)).expect("text");
        assert!(written.ends_with("x … (10 bytes more)\n"), "{written}");
        assert!(written.len() < LONGEST + 32);
    }

    #[test]
    fn a_large_log_is_rotated() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("log");
        let sink = || Sink::new(&path, open(&path).expect("opened"), 1000);
        let (mut one, mut other) = (sink(), sink());
        for at in 0..100 {
            let line = format!("{at:03} {}\n", "x".repeat(95));
            let sink = if at % 3 == 0 { &mut other } else { &mut one };
            sink.write_all(line.as_bytes()).expect("written");
        }
        let old = std::fs::read_to_string(dir.path().join("log.old")).expect("the old one");
        let new = std::fs::read_to_string(&path).expect("the new one");
        assert!(old.len() <= 1000 && new.len() <= 1000);
        let all = old + &new;
        let numbers: Vec<usize> = all
            .lines()
            .map(|line| line[..3].parse().expect("a number"))
            .collect();
        assert!(numbers.len() > 10, "{numbers:?}");
        assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "{numbers:?}");
        assert_eq!(numbers.last(), Some(&99));
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2);
        let mode = path.metadata().expect("metadata").mode() & 0o777;
        assert_eq!(mode, 0o600);
    }

    #[test]
    fn a_log_that_cannot_be_rotated_grows() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("log");
        let mut sink = Sink::new(&path, open(&path).expect("opened"), 10);
        std::fs::create_dir(dir.path().join("log.old")).expect("in the way");
        sink.write_all(b"first line\n").expect("written");
        sink.write_all(b"second line\n").expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.contains("stays as long as it is"), "{text}");
        assert!(text.ends_with("second line\n"), "{text}");
        // The lock is released, and a lock that another descriptor holds is not waited for.
        let mut other = Sink::new(&path, open(&path).expect("opened"), 10);
        std::fs::remove_dir(dir.path().join("log.old")).expect("removed");
        let held = File::open(&path).expect("opened");
        held.lock().expect("locked");
        other.write_all(b"third line\n").expect("written");
        held.unlock().expect("unlocked");
        other.0.lock().expect("no panic").next = 0;
        other.write_all(b"fourth line\n").expect("written");
        let text = std::fs::read_to_string(&path).expect("read");
        assert_eq!(text, "fourth line\n");
    }

    #[test]
    fn a_log_is_for_its_owner_and_no_link() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("log");
        std::fs::write(&path, "before\n").expect("written");
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode(0o644)).expect("set");
        let mut sink = Sink::new(&path, open(&path).expect("opened"), 1 << 20);
        sink.write_all(b"a\nb\n").expect("written");
        assert_eq!(
            std::fs::read_to_string(&path).expect("read"),
            "before\na\\nb\n"
        );
        let now = path.metadata().expect("metadata").mode() & 0o777;
        assert_eq!(now, 0o600);
        if nix::unistd::geteuid().is_root() {
            let foreign = dir.path().join("foreign");
            std::fs::write(&foreign, "").expect("written");
            std::os::unix::fs::chown(&foreign, Some(4001), None).expect("given away");
            let error = format!("{:#}", open(&foreign).expect_err("of another user"));
            assert!(error.contains("belongs to user 4001"), "{error}");
        }
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let error = format!("{:#}", open(&link).expect_err("a link"));
        assert!(error.contains("not followed"), "{error}");
    }
}
