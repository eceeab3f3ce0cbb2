//! Hands out files of sealed chunks to clients on the same host, and reads such files on the client's side, verifying
//! their checksums there.
//!
//! A sealed chunk's head, checksum pages and content are in the page cache from the moment it is sealed, whether or not
//! they are on disk yet, and nothing of it changes any more except the writer mark in a checksum page. The client reads
//! all checksum pages when it receives the file; if it meets a page that is just being rewritten, it does without the
//! file.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use super::group::{self, GROUP, Group};
use super::head::Encoding;
use super::{FileChunk, PAGE, Slot, State, page_at, read_head, read_up_to, size_of};
use crate::error::Result;
use crate::name::ChunkName;
use crate::store::SameHostFile;
use crate::store::extent::Extent;
use crate::store::local::shared::Shared;
use crate::{ChunkForm, StoreError};

impl FileChunk {
    /// A read-only descriptor of the file, if it holds the complete chunk uncompressed and is immutable.
    pub(in crate::store::local) fn same_host_file(&self) -> Result<Option<SameHostFile>> {
        let state = self.read_lock(0, 0);
        let is_final = matches!(self.name, ChunkName::Free(_))
            && state.head.sealed
            && state.head.encoding == Encoding::Raw
            && !state.head_dirty
            && !self.is_any_dirty(&state);
        if !is_final {
            return Ok(None);
        }
        match OpenOptions::new().read(true).open(&self.path) {
            Ok(file) => Ok(Some(SameHostFile {
                file,
                mark: self.shared.mark,
            })),
            // Deleted concurrently.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::from_io("open", &self.path, &e)),
        }
    }

    fn is_any_dirty(&self, state: &State) -> bool {
        let dirty = |slot: &Slot| matches!(slot, Slot::Loaded(group) if group.dirty);
        state.groups.iter().any(dirty)
    }

    /// The chunk in a file handed out by a store; `None` unless the file is that of a complete, sealed chunk.
    fn of_same_host(handed: SameHostFile, name: &ChunkName) -> Option<FileChunk> {
        let SameHostFile { file, mark } = handed;
        let head = read_head(&file).ok()?;
        let area = head.bytes().len() as u64;
        let len = head.content;
        let fits = head.name == *name
            && head.sealed
            && head.encoding == Encoding::Raw
            && head.form.volume() == Some(len)
            && file.metadata().ok()?.len() >= size_of(len, area);
        if !fits {
            return None;
        }
        let groups = (0..len.div_ceil(GROUP) as usize)
            .map(|g| Some(Slot::Loaded(Box::new(page(&file, area, g, mark)?))))
            .collect::<Option<Vec<_>>>()?;
        let state = State::new(head, area, len, groups, false);
        let shared = Arc::new(Shared::new((mark, 0), true, false));
        let path = Path::new("a file handed out by a data server");
        Some(FileChunk {
            same_host: true,
            ..Self::assemble(path, file, &shared, state)
        })
    }
}

/// Reads a valid checksum page.
fn page(file: &File, area: u64, g: usize, mark: u64) -> Option<Group> {
    let mut page = [0; PAGE as usize];
    let have = read_up_to(file, page_at(area, g), &mut page).ok()?;
    match Group::read(&page[..have], g as u32, mark, true) {
        group::Read::Good(group) => Some(group),
        _ => None,
    }
}

/// A chunk of a store in another process, read from its file. It stays readable when the store deletes it.
#[derive(Debug)]
pub(crate) struct SameHostChunk(FileChunk);

impl SameHostChunk {
    /// Opens a received file; `None` if it is not the complete file of the chunk.
    pub(crate) fn new(handed: SameHostFile, name: &ChunkName) -> Option<SameHostChunk> {
        FileChunk::of_same_host(handed, name).map(SameHostChunk)
    }

    /// As [`ChunkStore::read`](crate::store::ChunkStore::read).
    pub(crate) fn read(
        &self,
        form: &ChunkForm,
        slab: &slabfs_model::Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        let extent = Extent::new(form, slab)?;
        extent.check_len(out.len() as u64)?;
        self.0.read_slab(form, &extent, out)
    }

    /// Bytes of the chunk.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.read_lock(0, 0).len
    }

    /// As [`ChunkStore::show`](crate::store::ChunkStore::show).
    pub(crate) fn show(
        &self,
        form: &ChunkForm,
        slab: &slabfs_model::Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.0.show_slab(form, &Extent::new(form, slab)?, f)
    }

    /// Like `show`, without waiting for a disk: false also if pages that must be read are not in memory.
    pub(crate) fn show_at_once(
        &self,
        form: &ChunkForm,
        slab: &slabfs_model::Hyperslab,
        keeps: bool,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.0
            .show_slab_at_once(form, &Extent::new(form, slab)?, keeps, f)
    }
}
