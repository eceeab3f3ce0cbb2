//! A file that another process fills with a complete chunk.
//!
//! It has a unique temporary name in the store's directory: each call creates a separate file, even for the same chunk.
//! A client that writes too late writes to an unlinked file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// A range of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its offset.
    pub at: u64,
    /// Its length.
    pub len: u64,
}

/// An empty file for a chunk; see [`ChunkStore::blank`](super::ChunkStore::blank). Removed when dropped, unless
/// adopted.
#[derive(Debug)]
pub struct Blank {
    pub(super) name: ChunkName,
    pub(super) form: ChunkForm,
    pub(super) file: File,
    path: PathBuf,
    places: Vec<Place>,
    /// Renamed to its final name, so not removed on drop.
    named: bool,
}

impl Blank {
    /// Creates the file, which must not exist.
    pub(crate) fn create(
        path: PathBuf,
        name: &ChunkName,
        form: &ChunkForm,
        places: Vec<Place>,
    ) -> io::Result<Blank> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        Ok(Blank {
            name: name.clone(),
            form: form.clone(),
            file,
            path,
            places,
            named: false,
        })
    }

    /// The chunk.
    pub fn name(&self) -> &ChunkName {
        &self.name
    }

    /// The file ranges of the chunk's bytes, in order.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// A write-only descriptor of the file, for the client.
    pub fn for_writing(&self) -> Result<File> {
        let opened = OpenOptions::new().write(true).open(&self.path);
        opened.map_err(|e| StoreError::from_io("open", &self.path, &e))
    }

    /// Writes `bytes` of the chunk, beginning at its byte `from`, to their places in the file.
    pub(crate) fn write(&self, mut from: u64, mut bytes: &[u8]) -> Result<()> {
        for place in &self.places {
            if bytes.is_empty() {
                break;
            }
            if from >= place.len {
                from -= place.len;
                continue;
            }
            let room = usize::try_from(place.len - from).unwrap_or(usize::MAX);
            let (here, rest) = bytes.split_at(room.min(bytes.len()));
            (self.file.write_all_at(here, place.at + from))
                .map_err(|e| StoreError::from_io("write", &self.path, &e))?;
            (from, bytes) = (0, rest);
        }
        match bytes {
            [] => Ok(()),
            _ => Err(StoreError::Invalid(format!(
                "{}: bytes beyond the end of the chunk",
                self.name
            ))),
        }
    }

    /// Renames the file to its final name, replacing an existing file.
    pub(super) fn rename(&mut self, to: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, to)?;
        self.named = true;
        Ok(())
    }

    /// Reads the chunk's bytes from the file.
    pub(crate) fn content(&self) -> io::Result<Vec<u8>> {
        let total: u64 = self.places.iter().map(|place| place.len).sum();
        let mut bytes = vec![0; total as usize];
        let mut done = 0;
        for place in &self.places {
            let len = place.len as usize;
            self.file
                .read_exact_at(&mut bytes[done..done + len], place.at)?;
            done += len;
        }
        Ok(bytes)
    }
}

impl Drop for Blank {
    fn drop(&mut self) {
        if self.named {
            return;
        }
        // Truncate first: a client may still have the file open, and must not hold its disk space.
        let emptied = self.file.set_len(0);
        if let Err(error) = emptied.and_then(|()| std::fs::remove_file(&self.path)) {
            tracing::warn!("{}: cannot be removed: {error}", self.path.display());
        }
    }
}
