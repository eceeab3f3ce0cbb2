//! The place of an output: it is written under a hidden name, and gets its own when it is complete.
//!
//! A failure leaves the old file or directory, or none. The hidden directory is next to the place, and only its owner can
//! enter it: no other user can put a link where the output is written.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tempfile::TempDir;

use crate::{FormatError, Result};

/// So much is written before the disk gets it.
const WRITE_BACK: usize = 32 << 20;

/// An output that is being written.
#[derive(Debug)]
pub struct Output {
    /// Bytes that were written since the disk got some.
    written: usize,
    /// Wakes the thread that starts their way to the disk.
    write_back: Option<SyncSender<()>>,
    unfinished: PathBuf,
    path: PathBuf,
    /// Removed with everything in it; `None` where the output is written in its place.
    dir: Option<TempDir>,
}

impl Output {
    /// Prepares the place of `path`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn at(path: &Path) -> Result<Output> {
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let dir = tempfile::Builder::new()
            .prefix(".slabfs-export-")
            .tempdir_in(parent)
            .map_err(|error| FormatError::file(path, "creating it", &error))?;
        Ok(Output {
            written: 0,
            write_back: None,
            unfinished: dir.path().join("unfinished"),
            path: path.to_owned(),
            dir: Some(dir),
        })
    }

    /// A file that is written in its place, and not stored.
    pub(crate) fn in_place(path: &Path) -> Output {
        Output {
            written: 0,
            write_back: None,
            unfinished: path.to_owned(),
            path: path.to_owned(),
            dir: None,
        }
    }

    /// Where it is written.
    pub fn unfinished(&self) -> &Path {
        &self.unfinished
    }

    /// The name that it gets.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that so many bytes of a file were written. They go to the disk while others are written, so that there are few
    /// left for [`Output::finish`] to wait for.
    pub fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written < WRITE_BACK {
            return;
        }
        self.written = 0;
        if self.write_back.is_none() {
            self.write_back = write_back(&self.unfinished).ok();
        }
        if let Some(wake) = &self.write_back {
            // If it is at work, it gets to these with the next ones.
            let _ = wake.try_send(());
        }
    }

    /// Stores it and gives it its name, in the place of an old file or, for a directory, of an old directory.
    ///
    /// # Errors
    /// Of the filesystem; nothing is left then.
    pub fn finish(self) -> Result<()> {
        let Some(dir) = self.dir else { return Ok(()) };
        let failed = |error: io::Error| FormatError::file(&self.path, "storing it", &error);
        if let Ok(old) = self.path.metadata()
            && old.is_file()
            && self.unfinished.is_file()
        {
            // As a program that writes into the old file would leave them.
            let rights = old.permissions();
            std::fs::set_permissions(&self.unfinished, rights).map_err(failed)?;
        }
        store(&self.unfinished).map_err(failed)?;
        if self.unfinished.is_dir() && self.path.is_dir() {
            // The old one is then in the hidden directory, and is removed with it.
            exchange(&self.unfinished, &self.path).map_err(failed)?;
        } else {
            std::fs::rename(&self.unfinished, &self.path).map_err(failed)?;
        }
        dir.close().map_err(|error| {
            FormatError::file(&self.path, "removing what was written before", &error)
        })
    }
}

/// Starts a thread that has the disk write what a file has, whenever it is woken.
fn write_back(path: &Path) -> io::Result<SyncSender<()>> {
    let file = File::open(path)?;
    let (send, receive) = sync_channel(1);
    let run = move || {
        for () in receive {
            // SAFETY: the descriptor is that of an open file. An error is one of the `fsync` that follows.
            unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
    };
    std::thread::Builder::new()
        .name("write back".to_owned())
        .spawn(run)?;
    Ok(send)
}

/// Waits until a file, or the filesystem of a directory, is on disk.
fn store(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    match file.metadata()?.is_dir() {
        // One call for all files in it.
        true => Ok(rustix::fs::syncfs(&file)?),
        false => file.sync_all(),
    }
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}
