//! Free chunks that clients write directly to files of the store, without a copy through the server. The client
//! supplies the checksums, which every read verifies; if it does not, the server reads the file once to compute them.
//!
//! The file has a temporary name until its checksum pages and its head are written, last of all: a crash leaves either
//! a temporary file, which the next opening removes, or a complete chunk.

use std::io;
use std::sync::atomic::Ordering;

use super::file::{self, FileChunk};
use super::free::{require_free, require_volume};
use super::{LocalStore, SMALL};
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};
use crate::store::Blank;

impl LocalStore {
    /// Creates a file for a chunk that will be stored uncompressed in a file of its own and does not exist yet;
    /// otherwise `None`.
    pub(super) fn blank_free(&self, name: &ChunkName, form: &ChunkForm) -> Result<Option<Blank>> {
        require_free(name)?;
        let volume = require_volume(name, form)?;
        if volume < SMALL || !form.codec.is_none() || self.entry(name).is_some() {
            return Ok(None);
        }
        let places = file::places(&self.new_head(name, form), volume);
        let number = self.blanks.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.chunk_path(name);
        let path = path.with_extension(format!("{number}.tmp"));
        let create = || Blank::create(path.clone(), name, form, places.clone());
        self.directory.create(&path, create).map(Some)
    }

    /// Converts a filled file to a chunk.
    pub(super) fn adopt_free(&self, mut blank: Blank, sums: &[u32]) -> Result<()> {
        let (name, form) = (blank.name.clone(), blank.form.clone());
        let path = self.directory.chunk_path(&name);
        let lock = self.lock(&name);
        if self.entry(&name).is_some() {
            // The chunk was stored by another request meanwhile; `put_free` checks that the content is the same.
            drop(lock);
            let content = blank.content();
            let content = content.map_err(|e| StoreError::from_io("read", &path, &e))?;
            return self.put_free(&name, &form, &[io::IoSlice::new(&content)]);
        }
        let mut head = self.new_head(&name, &form);
        head.sealed = true;
        head.content = require_volume(&name, &form)?;
        let file = blank.file.try_clone();
        let file = file.map_err(|e| StoreError::from_io("open", &path, &e))?;
        let chunk = FileChunk::of_filled(&path, file, head, sums, &self.shared)?;
        blank
            .rename(&path)
            .map_err(|e| StoreError::from_io("rename", &path, &e))?;
        self.directory.note_change(&path);
        self.enter(chunk);
        Ok(())
    }
}
