//! A file that somebody else fills with a whole chunk.
//!
//! It has a temporary name in the store's directory, and no other knows it: each that is made is a file of its own, also
//! for the same chunk. Whoever is too late writes to a file that is nobody's any more.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// A part of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Its first byte.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
}

/// An empty file for a chunk; see [`ChunkStore::blank`](super::ChunkStore::blank). Dropped, it is gone.
#[derive(Debug)]
pub struct Blank {
    pub(super) name: ChunkName,
    pub(super) form: ChunkForm,
    pub(super) file: File,
    path: PathBuf,
    places: Vec<Place>,
    /// It has got another name, and stays.
    named: bool,
}

impl Blank {
    /// Makes the file, which must not exist.
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

    /// Where the chunk's bytes belong in the file, in their order.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// The file, to be written by somebody else, who cannot read it.
    pub fn for_writing(&self) -> Result<File> {
        let opened = OpenOptions::new().write(true).open(&self.path);
        opened.map_err(|e| StoreError::from_io("open", &self.path, &e))
    }

    /// Writes bytes of the chunk, the first of them its byte `from`, to where they belong; all are bytes that it has.
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
                "{}: bytes behind the end of the chunk",
                self.name
            ))),
        }
    }

    /// Gives the file its name, in place of another of that name.
    pub(super) fn rename(&mut self, to: &Path) -> io::Result<()> {
        std::fs::rename(&self.path, to)?;
        self.named = true;
        Ok(())
    }

    /// The chunk's bytes, as they are in the file.
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
        // Whoever has it open keeps the file, but not its room.
        let emptied = self.file.set_len(0);
        if let Err(error) = emptied.and_then(|()| std::fs::remove_file(&self.path)) {
            tracing::warn!("{}: cannot be removed: {error}", self.path.display());
        }
    }
}
