//! Requests to a mount through its `.slabfs/call`: one JSON request, one JSON reply.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde_json::Value;
use slabfs_fs::call::PathText;

use super::{Mount, explain, ioctl};

/// How long to retry while all calls of the mount are in use.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// The error reply to a call.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The errno that a system call would have returned.
    pub(crate) errno: i32,
    /// What was wrong, and what to do.
    pub(crate) text: String,
    /// The index of the failed item of a list in the request, from 0.
    pub(crate) index: Option<usize>,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Refused {}

impl Mount {
    /// Sends the request `{"op": …}` and returns the value of `ok` in the reply.
    ///
    /// # Errors A [`Refused`] if the mount returns an error; otherwise why the request could not be sent or the
    /// reply not be read.
    pub(crate) fn call(&self, request: &Value) -> anyhow::Result<Value> {
        let path = self.root.join(".slabfs/call");
        let with = || format!("asking the mount through {}", path.display());
        let text = request.to_string();
        let file = match open(&path, true) {
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
                // A read-only mount accepts requests by ioctl.
                let file = open(&path, false).map_err(|error| cannot_open(&path, error))?;
                ioctl::ask(&file, text.as_bytes()).with_context(with)?;
                file
            }
            opened => {
                let file = opened.map_err(|error| cannot_open(&path, error))?;
                file.write_all_at(text.as_bytes(), 0).with_context(with)?;
                file
            }
        };
        let text = read(&file).with_context(with)?;
        let mut reply: Value = serde_json::from_slice(&text)
            .with_context(|| format!("{} did not answer in JSON", path.display()))?;
        if let Some(text) = reply.get("error").and_then(Value::as_str) {
            let errno = reply.get("errno").and_then(Value::as_i64).unwrap_or(0);
            return Err(anyhow::Error::new(Refused {
                errno: errno as i32,
                text: text.to_owned(),
                index: reply
                    .get("index")
                    .and_then(Value::as_u64)
                    .and_then(|index| usize::try_from(index).ok()),
            }));
        }
        match reply.get_mut("ok") {
            Some(ok) => Ok(ok.take()),
            None => Err(anyhow!("{} gave no answer", path.display())),
        }
    }

    /// A path as the calls of this mount name it: from its root, and with symbolic links in its directories
    /// resolved. The last component need not exist and is not followed.
    pub(crate) fn inside(&self, path: &Path) -> anyhow::Result<PathText> {
        let full = match (path.parent(), path.file_name()) {
            (Some(parent), Some(name)) if !path.is_dir() => {
                let parent = if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                };
                parent
                    .canonicalize()
                    .map_err(|error| explain(parent, error))?
                    .join(name)
            }
            _ => path.canonicalize().map_err(|error| explain(path, error))?,
        };
        let inside = full
            .strip_prefix(&self.root)
            .map_err(|_| anyhow!("{} is not below {}", full.display(), self.root.display()))?;
        if inside.starts_with(".slabfs") {
            return Err(anyhow!(
                "{} belongs to the mount itself; give a file or directory of yours",
                path.display()
            ));
        }
        Ok(PathText::of_path(inside))
    }
}

fn open(path: &Path, write: bool) -> Result<File, Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        match OpenOptions::new().read(true).write(write).open(path) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

fn read(file: &File) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    let mut piece = vec![0; 128 << 10];
    loop {
        match file.read_at(&mut piece, text.len() as u64) {
            Ok(0) => return Ok(text),
            Ok(len) => text.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn cannot_open(path: &Path, error: Error) -> anyhow::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) => anyhow!(
            "{} is not there: the mount's process is of an older version; unmount it and start it again",
            path.display()
        ),
        Some(libc::EAGAIN) => anyhow!(
            "too many commands ask this mount at once; try again when some of them have ended"
        ),
        _ => explain(path, error),
    }
}
