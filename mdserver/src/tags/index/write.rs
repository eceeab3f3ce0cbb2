//! Writes a run: entries in order into leaves, then the directory, then the footer.

use super::IndexError;
use super::bytes::{common, push_varint, seal};
use super::cache::Cache;
use super::leaf::LeafBuilder;
use super::run::{Directory, END_MAGIC, FOOTER, HEADER, MAGIC, Run, VERSION, name};
use crc_fast::crc32_iscsi as crc32c;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes passed to one write call.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes after which a run under way is synced, so that the final sync of a large one does not delay the journal on
/// the same disk.
const SYNC_BYTES: u64 = 16 << 20;

/// A run being written; without [`Self::finish`] its file is removed again.
#[derive(Debug)]
pub(super) struct RunWriter {
    number: u64,
    path: PathBuf,
    file: Option<File>,
    leaf: LeafBuilder,
    /// A leaf is closed when it has this many bytes.
    leaf_bytes: usize,
    out: Vec<u8>,
    /// The file offset of `out`.
    written: u64,
    /// The file offset up to which it is synced.
    synced: u64,
    /// The file offset of the open leaf.
    leaf_at: u64,
    directory: Directory,
    entries: u64,
    gone: u64,
    cache: Arc<Cache>,
}

impl RunWriter {
    /// Begins run `number` in `dir`.
    pub(super) fn new(
        dir: &Path,
        number: u64,
        leaf_bytes: usize,
        cache: Arc<Cache>,
    ) -> Result<Self, IndexError> {
        let path = dir.join(name(number));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path);
        let file = file.map_err(|error| IndexError::io("create", &path, &error))?;
        let mut out = Vec::with_capacity(WRITE_BYTES + 2 * leaf_bytes);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(HEADER as u32).to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        seal(&mut out);
        Ok(Self {
            number,
            path,
            file: Some(file),
            leaf: LeafBuilder::default(),
            leaf_bytes,
            out,
            written: 0,
            synced: 0,
            leaf_at: HEADER as u64,
            directory: Directory {
                offsets: vec![HEADER as u64],
                ..Directory::default()
            },
            entries: 0,
            gone: 0,
            cache,
        })
    }

    /// Adds an entry; they must ascend.
    pub(super) fn push(&mut self, key: &[u8], gone: bool) -> Result<(), IndexError> {
        if self.leaf.entries() == 0 {
            // The shortest bytes after the previous leaf and not after this entry.
            let separator = match self.directory.leaves() {
                0 => &[],
                _ => &key[..(common(self.leaf.last(), key) + 1).min(key.len())],
            };
            self.directory.bytes.extend_from_slice(separator);
            self.directory.ends.push(self.directory.bytes.len());
        }
        self.leaf.push(key, gone);
        self.entries += 1;
        self.gone += u64::from(gone);
        if self.leaf.len() >= self.leaf_bytes {
            self.end_leaf()?;
        }
        Ok(())
    }

    /// Entries so far.
    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Completes the run and makes it durable; the caller makes its name durable.
    pub(super) fn finish(mut self) -> Result<Run, IndexError> {
        self.end_leaf()?;
        let directory_at = self.leaf_at;
        let from = self.out.len();
        let (mut last, mut begin): (&[u8], usize) = (&[], 0);
        for (leaf, &end) in self.directory.ends.iter().enumerate() {
            let separator = &self.directory.bytes[begin..end];
            let shared = common(last, separator);
            push_varint(&mut self.out, shared as u64);
            push_varint(&mut self.out, (separator.len() - shared) as u64);
            self.out.extend_from_slice(&separator[shared..]);
            let len = self.directory.offsets[leaf + 1] - self.directory.offsets[leaf];
            push_varint(&mut self.out, len);
            (last, begin) = (separator, end);
        }
        let directory_crc = crc32c(&self.out[from..]);
        let len = self.written + (self.out.len() + FOOTER) as u64;
        let mut footer = END_MAGIC.to_vec();
        for word in [self.number, directory_at, len, self.entries, self.gone] {
            footer.extend_from_slice(&word.to_le_bytes());
        }
        footer.extend_from_slice(&(self.directory.leaves() as u32).to_le_bytes());
        footer.extend_from_slice(&directory_crc.to_le_bytes());
        footer.extend_from_slice(&[0; 4]);
        seal(&mut footer);
        self.out.extend_from_slice(&footer);
        self.flush()?;
        let Some(file) = self.file.take() else {
            return Err(IndexError::damaged(&self.path, len, "the file was closed"));
        };
        let synced = file.sync_all();
        if let Err(error) = synced {
            self.file = Some(file);
            return Err(IndexError::io("sync", &self.path, &error));
        }
        let mut directory = std::mem::take(&mut self.directory);
        directory.bytes.shrink_to_fit();
        directory.ends.shrink_to_fit();
        directory.offsets.shrink_to_fit();
        let place = (self.number, self.path.clone(), file);
        let sizes = (len, self.entries, self.gone);
        Ok(Run::written(
            place,
            sizes,
            directory,
            Arc::clone(&self.cache),
        ))
    }

    fn end_leaf(&mut self) -> Result<(), IndexError> {
        if self.leaf.entries() == 0 {
            return Ok(());
        }
        self.leaf.finish(self.number, self.leaf_at, &mut self.out);
        self.leaf_at = self.written + self.out.len() as u64;
        self.directory.offsets.push(self.leaf_at);
        if self.out.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IndexError> {
        if let Some(file) = &mut self.file {
            let written = file.write_all(&self.out);
            written.map_err(|error| IndexError::io("write", &self.path, &error))?;
        }
        self.written += self.out.len() as u64;
        self.out.clear();
        if let Some(file) = &self.file
            && self.written - self.synced >= SYNC_BYTES
        {
            let synced = file.sync_data();
            synced.map_err(|error| IndexError::io("sync", &self.path, &error))?;
            self.synced = self.written;
        }
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        // After `finish` the file belongs to the run.
        if self.file.is_some()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, path = %self.path.display(), "an unfinished run of the index of tags is left");
        }
    }
}
