//! The identity and state of a directory: the lock, `FORMAT`, and whether it was closed cleanly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Directory, entries, sync_dir};
use crate::error::{Result, StoreError};

const FORMAT: u32 = 1;
const FIRST_LINE: &str = "slabfs chunk store";

impl Directory {
    /// Increments the count of openings on disk; returns it, and whether the store was closed cleanly before. If it was
    /// not, syncs everything in the directory, so that the data found is durable.
    pub(in crate::store::local) fn note_opening(&self, durable: bool) -> Result<(u64, bool)> {
        let path = self.path.join("opened");
        let (last, end) = match fs::read_to_string(&path) {
            Ok(text) => {
                let mut words = text.split_whitespace();
                let last = words.next().and_then(|n| n.parse::<u64>().ok());
                let last = last.ok_or_else(|| {
                    StoreError::Invalid(format!("{}: it should begin with the number of times the store was opened; write one that is surely larger", path.display()))
                })?;
                (last, words.next().unwrap_or("running").to_owned())
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // A new store; or one that lost this file, which is then treated as not cleanly closed.
                let is_new = entries(&self.segments())?.is_empty();
                (0, if is_new { "clean" } else { "running" }.to_owned())
            }
            Err(e) => return Err(StoreError::from_io("read", &path, &e)),
        };
        // "unsynced" means closed cleanly, but perhaps not on disk.
        if end != "clean" {
            if end != "unsynced" {
                tracing::warn!("{}: the store was not closed in order", self.path.display());
            }
            if durable {
                let synced = File::open(&self.path)
                    .and_then(|dir| nix::unistd::syncfs(&dir).map_err(io::Error::from));
                synced.map_err(|e| StoreError::from_io("sync", &self.path, &e))?;
            }
        }
        // Otherwise a crash could leave changes that a trusted catalogue does not list.
        let must_last = durable || end == "clean";
        self.write_opened(last + 1, "running", must_last)?;
        Ok((last + 1, end == "clean"))
    }

    /// Marks the store as closed cleanly; everything is on disk.
    pub(in crate::store::local) fn note_clean(&self, durable: bool) -> Result<()> {
        let path = self.path.join("opened");
        let text = fs::read_to_string(&path).map_err(|e| StoreError::from_io("read", &path, &e))?;
        let state = if durable { "clean" } else { "unsynced" };
        let count = text.split_whitespace().next().and_then(|n| n.parse().ok());
        self.write_opened(count.unwrap_or(0), state, durable)
    }

    /// Overwrites the file, always with the same length: this must work on a full disk too.
    fn write_opened(&self, count: u64, state: &str, durable: bool) -> Result<()> {
        let path = self.path.join("opened");
        let is_new = !path.exists();
        let write = || -> io::Result<()> {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            file.write_all_at(format!("{count:<20} {state:<8}\n").as_bytes(), 0)?;
            if durable { file.sync_all() } else { Ok(()) }
        };
        write().map_err(|e| StoreError::from_io("write", &path, &e))?;
        if durable && is_new {
            sync_dir(&self.path)
        } else {
            Ok(())
        }
    }
}

pub(super) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let fail = |e: io::Error| StoreError::from_io("lock", &path, &e);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut text = String::new();
            // The pid only improves the message.
            let holder = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            return Err(StoreError::Locked {
                dir: dir.to_owned(),
                holder,
            });
        }
        Err(fs::TryLockError::Error(e)) => return Err(fail(e)),
    }
    // Overwritten in place, so that it works on a full disk; if it fails, the lock is still held.
    let pid = format!("{:<10}\n", std::process::id());
    if let Err(error) = file.write_all_at(pid.as_bytes(), 0) {
        tracing::debug!("{}: the pid cannot be written: {error}", path.display());
    }
    Ok(file)
}

pub(super) fn create_format(dir: &Path) -> Result<[u8; 16]> {
    let strangers: Vec<PathBuf> = entries(dir)?
        .into_iter()
        .filter(|p| {
            !matches!(
                p.file_name().and_then(|n| n.to_str()),
                Some("lock" | "lost+found" | "FORMAT.tmp")
            )
        })
        .collect();
    if let Some(stranger) = strangers.first() {
        return Err(StoreError::Invalid(format!(
            "{} is not a chunk store and not empty (it has {}): choose an empty directory; if it was a store, its FORMAT file is lost: put it back from a backup",
            dir.display(),
            stranger.display(),
        )));
    }
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|e| StoreError::Io {
        what: "draw a store id".to_owned(),
        detail: e.to_string(),
        errno: None,
    })?;
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let (tmp, path) = (dir.join("FORMAT.tmp"), dir.join("FORMAT"));
    let text = format!("{FIRST_LINE}\nformat {FORMAT}\nid {hex}\n");
    let write = || -> io::Result<()> {
        let mut file = File::create(&tmp)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&tmp, &path)
    };
    write().map_err(|e| StoreError::from_io("create", &path, &e))?;
    Ok(id)
}

pub(super) fn parse_format(dir: &Path, text: &str) -> Result<[u8; 16]> {
    let bad = |why: &str| StoreError::Invalid(format!("{}: {why}", dir.join("FORMAT").display()));
    let mut lines = text.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(bad(
            "this is not the FORMAT file of a slabfs chunk store; choose another directory",
        ));
    }
    let version = lines
        .next()
        .and_then(|l| l.strip_prefix("format "))
        .and_then(|v| v.trim().parse::<u32>().ok());
    match version {
        Some(FORMAT) => {}
        Some(other) => {
            return Err(bad(&format!(
                "the store has format {other} and this slabfs reads format {FORMAT}: use the slabfs that wrote it, or choose another directory"
            )));
        }
        None => {
            return Err(bad(
                "the line `format N` is missing; put the file back from a backup",
            ));
        }
    }
    let hex = lines
        .next()
        .and_then(|l| l.strip_prefix("id "))
        .map_or("", str::trim);
    let digits = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let id = u128::from_str_radix(hex, 16).ok().filter(|_| digits);
    id.map(u128::to_be_bytes)
        .ok_or_else(|| bad("the line `id` is not 32 hex digits; put the file back from a backup"))
}
