//! Files of sealed chunks that another process of this machine reads: it opens them as the store does, and checks
//! their sums itself.
//!
//! A sealed chunk's head, pages of sums and content stand in the page cache from the moment it is sealed, whatever is on
//! the disk yet, and nothing of it changes any more but the writer that a page names. All pages are read when the file is
//! taken, so that a page that is just rewritten is met there, where the answer is to do without the file.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::Arc;

use super::group::{self, GROUP, Group};
use super::head::Encoding;
use super::{FileChunk, PAGE, Slot, State, page_at, read_head, read_up_to, size_of};
use crate::error::Result;
use crate::name::ChunkName;
use crate::store::SameHostFile;
use crate::store::local::extent::Extent;
use crate::store::local::shared::Shared;
use crate::{ChunkForm, StoreError};

impl FileChunk {
    /// The file, open for reading, if all of the chunk stands in it as it is and never changes any more.
    pub(in crate::store::local) fn same_host_file(&self) -> Result<Option<SameHostFile>> {
        let state = self.read_lock(0, 0);
        let whole = matches!(self.name, ChunkName::Free(_))
            && state.head.sealed
            && state.head.encoding == Encoding::Raw
            && !state.head_dirty
            && !self.is_any_dirty(&state);
        if !whole {
            return Ok(None);
        }
        match OpenOptions::new().read(true).open(&self.path) {
            Ok(file) => Ok(Some(SameHostFile {
                file,
                mark: self.shared.mark,
            })),
            // It has just been deleted.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::from_io("open", &self.path, &e)),
        }
    }

    fn is_any_dirty(&self, state: &State) -> bool {
        let dirty = |slot: &Slot| matches!(slot, Slot::Loaded(group) if group.dirty);
        state.groups.iter().any(dirty)
    }

    /// The chunk of a file that a store lends; nothing if the file is not all that a sealed chunk's is.
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
        let state = State {
            head,
            area,
            len,
            groups,
            head_dirty: false,
            unsynced: false,
            lasting: true,
            poisoned: false,
        };
        let shared = Arc::new(Shared::new(mark, true, false));
        let path = Path::new("a file lent by a data server");
        Some(FileChunk {
            same_host: true,
            ..Self::assemble(path, file, &shared, state)
        })
    }
}

/// A page of sums that is as it should be.
fn page(file: &File, area: u64, g: usize, mark: u64) -> Option<Group> {
    let mut page = [0; PAGE as usize];
    let have = read_up_to(file, page_at(area, g), &mut page).ok()?;
    match Group::read(&page[..have], g as u32, mark, true) {
        group::Read::Good(group) => Some(group),
        _ => None,
    }
}

/// A chunk of a store in another process, read from its file. It stays what it is when the store deletes it.
#[derive(Debug)]
pub(crate) struct SameHostChunk(FileChunk);

impl SameHostChunk {
    /// Takes a file; nothing if it is not that of the chunk, whole, and is to be done without.
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
        crate::store::local::check_len(&extent, out.len() as u64)?;
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

    /// The same without waiting for a disk: false also where not all is in memory that has to be looked at.
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
