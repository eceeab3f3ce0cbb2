//! Chunk stores: the contract, and the engine over a local directory.
//!
//! A store keeps chunks under [`ChunkName`]s. *Free* chunks are written once, whole (`put`) or as a
//! stream (`append`, `seal`), and never change. *Grid* chunks are written in place (`write`), and
//! what nobody wrote reads as the fill. All slabs are in cells of the chunk and all data is packed:
//! the cells of the slab in row-major order, without gaps.
//!
//! A call that returned is seen by every later call, and survives the death of the process; it
//! survives the loss of power after [`ChunkStore::sync`]. A call that failed left nothing
//! half-written that could be read.

mod blank;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod local;

pub use blank::{Blank, Place};
pub use local::{Held, LocalOptions, LocalStore};
pub(crate) use local::{SameHostChunk, part, write_part};

use std::fs::File;
use std::io::IoSlice;

use serde::{Deserialize, Serialize};
use slabfs_model::{Hyperslab, ObjectId};

use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// The room of a store, in bytes, as its filesystem sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Space {
    /// All of it.
    pub total: u64,
    /// What can still be written.
    pub free: u64,
    /// What is taken, by whomever.
    pub used: u64,
}

/// Which bytes of a chunk take room; see [`ChunkStore::allocated`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allocated {
    /// How many do, to blocks of [`SUMMED`] bytes.
    pub bytes: u64,
    /// The first run of them from the byte asked for on: from, and up to.
    pub next: Option<(u64, u64)>,
}

/// A place of a chunk, in bytes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// The first byte.
    pub from: u64,
    /// Behind the last byte.
    pub to: u64,
    /// All bytes in between are written anew.
    pub is_whole: bool,
}

/// A part of a file; see [`ChunkStore::lend`].
#[derive(Clone, Copy)]
pub struct FilePart<'a> {
    /// The file.
    pub file: &'a File,
    /// Its first byte in it.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    /// Gives its CRC-32C, mostly out of those that are stored.
    pub sum: &'a dyn Fn() -> Result<u32>,
}

/// A chunk's file for another process of this machine to read; see [`ChunkStore::loan`].
#[derive(Debug)]
pub struct SameHostFile {
    /// The file, open for reading only.
    pub file: File,
    /// The mark of the store's writers; pages of sums that name another are not believed.
    pub mark: u64,
}

/// Changes to a chunk; see [`ChunkStore::patch`].
pub trait Patches {
    /// The next place that is changed; at most a few MiB.
    fn next(&mut self) -> Option<Patch>;

    /// Changes the bytes of the place that `next` gave last: what stands there is given, or anything where all of it
    /// is written anew.
    fn apply(&mut self, bytes: &mut [u8]);
}

/// Where chunks are read from: a store, or files that another one lends.
pub(crate) trait ChunkSource {
    /// As [`ChunkStore::read`].
    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()>;

    /// As [`ChunkStore::show`].
    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool>;
}

impl ChunkSource for dyn ChunkStore + '_ {
    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        ChunkStore::read(self, name, form, slab, out)
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        ChunkStore::show(self, name, form, slab, f)
    }
}

/// Bytes of a block of a chunk's file that has a sum of its own.
pub const SUMMED: u64 = 64 << 10;

/// A store of chunks; see the module page for what a call promises.
pub trait ChunkStore: Send + Sync {
    /// Stores a whole immutable chunk: `data` is all its cells. A resend of the same chunk is fine.
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()>;

    /// An empty file to which somebody else writes a whole immutable chunk, for [`ChunkStore::adopt`]. Nothing where the
    /// store has no use for one, because of the chunk or because it has it already: it is to be put.
    fn blank(&self, _name: &ChunkName, _form: &ChunkForm) -> Result<Option<Blank>> {
        Ok(None)
    }

    /// Stores a chunk as `put` does, out of a file of this store that was filled; nobody may write to it any more. `sums`
    /// are those of its blocks ([`SUMMED`] bytes, the last as if zeros followed) as who filled it knows them, and every
    /// later reading looks whether they are; without any they are made of what stands there now.
    fn adopt(&self, blank: Blank, _sums: &[u32]) -> Result<()> {
        let name = blank.name();
        Err(StoreError::Invalid(format!(
            "{name}: a file of another store"
        )))
    }

    /// Adds `data` to a free chunk that is not sealed yet, creating it at `at` 0. `at` is the packed
    /// byte offset and at most the present length; what is already there is written anew, so a
    /// resend is fine. The form's shape is the largest the chunk may get.
    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()>;

    /// Ends a stream of appends: the chunk is immutable from now on, has the form's shape (what was
    /// appended beyond is cut) and codec. On [`NoSpace`](crate::StoreError::NoSpace) it stays
    /// unsealed and readable. A resend is fine.
    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()>;

    /// Writes cells of a grid chunk in place, creating it if it is missing.
    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()>;

    /// Changes places of a grid chunk, one after the other, under its lock: nobody sees or writes the chunk in
    /// between. It is created if it is missing. `end` is behind the last byte of all places. One that failed may have
    /// been done in part.
    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()>;

    /// Reads cells, packed, into `out`, which has exactly their size. The checksums of all blocks
    /// touched are checked. A chunk that does not exist is
    /// [`Missing`](crate::StoreError::Missing); whether that means fill is the caller's to know.
    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()>;

    /// Like `read`, without a copy: where the cells lie in one verified piece, `f` is called once with
    /// them and the answer is `true`. Else `f` is not called: use `read`. `f` runs under the chunk's
    /// lock and must not call the store.
    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool>;

    /// Like `show`, of cells in one piece of a file that nobody changes any more: `f` gets them as a part of that
    /// file, to be sent without being copied. They were verified; the file may go meanwhile, its content stays.
    fn file_part(
        &self,
        _name: &ChunkName,
        _form: &ChunkForm,
        _slab: &Hyperslab,
        _f: &mut dyn FnMut(FilePart<'_>),
    ) -> Result<bool> {
        Ok(false)
    }

    /// The file of an immutable chunk that stands in one of its own, as it is; else nothing, also where there is no such
    /// chunk. Whoever gets it checks what it reads. The chunk may go meanwhile, the file's content stays.
    fn same_host_file(&self, _name: &ChunkName) -> Result<Option<SameHostFile>> {
        Ok(None)
    }

    /// Makes all cells of a grid chunk at or beyond `keep` on any axis fill. A missing chunk is fine.
    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()>;

    /// Makes cells of a grid chunk fill, and gives their space back where it can. A missing chunk is
    /// fine.
    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()>;

    /// Which bytes of a grid chunk, in canonical order, take room, from byte `from` on. The others are holes and read as zeros;
    /// where the fill is another it is not told. Of a chunk that does not exist none take room. What does not fill a page
    /// may count as data.
    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated>;

    /// Deletes chunks; those that do not exist are no error. All are tried, the first error is told.
    fn delete(&self, names: &[ChunkName]) -> Result<()>;

    /// Deletes the grid chunks of all generations of an object below `below`.
    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()>;

    /// Deletes all grid chunks of an object.
    fn delete_grid(&self, object: ObjectId) -> Result<()>;

    /// Returns when these chunks, as they are now, survive the loss of power. A free chunk that does
    /// not exist is [`Missing`](crate::StoreError::Missing); a grid chunk that does not exist will not
    /// come back. With no names: everything, deletions included.
    fn sync(&self, names: &[ChunkName]) -> Result<()>;

    /// Up to `limit` chunks after `after`, in the order of names, each with the bytes it takes.
    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>>;

    /// The room of the store.
    fn space(&self) -> Result<Space>;

    /// Reads all of a chunk and checks it.
    fn verify(&self, name: &ChunkName) -> Result<()>;
}
