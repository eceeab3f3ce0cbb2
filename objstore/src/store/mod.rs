//! Chunk stores: the [`ChunkStore`] trait and its contract, the engine over a local directory, and one in memory.
//!
//! A store holds chunks under [`ChunkName`]s. *Free* chunks are written once, in full (`put`) or as a stream (`append`,
//! `seal`), and are immutable afterwards. *Grid* chunks are written in place (`write`), and unwritten cells read as the
//! fill. All slabs are in cells of the chunk, and all data is packed: the cells of the slab in row-major order, without
//! gaps.
//!
//! The effect of a call that returned is visible to every later call and survives a crash of the process; after
//! [`ChunkStore::sync`] it survives a power failure. A failed call leaves no partial data that could be read.

mod blank;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub(crate) mod extent;
mod local;
pub(crate) mod memory;

pub use blank::{Blank, Place};
pub use local::{Held, Inspect, LocalOptions, LocalStore};
pub(crate) use local::{SameHostChunk, part, write_part};
pub use memory::{MemoryBytes, MemoryFiles, MemoryPlace, MemoryStore};

use std::fs::File;
use std::io::IoSlice;

use serde::{Deserialize, Serialize};
use slabfs_model::{Hyperslab, ObjectId};

use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// The space of a store's filesystem, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Space {
    /// Total size.
    pub total: u64,
    /// Available space.
    pub free: u64,
    /// Used space, by this store and all other users of the filesystem.
    pub used: u64,
    /// The filesystem's number on its host (`f_fsid`), if it has one: stores with the same number share this space.
    pub disk: Option<u64>,
}

/// Which bytes of a chunk are allocated; see [`ChunkStore::allocated`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Allocated {
    /// Allocated bytes, rounded to blocks of [`SUMMED`] bytes.
    pub bytes: u64,
    /// The first allocated run at or after the requested byte: start and end (exclusive).
    pub next: Option<(u64, u64)>,
}

/// A byte range of a chunk that is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patch {
    /// The first byte.
    pub from: u64,
    /// The end (exclusive).
    pub to: u64,
    /// All bytes in between are overwritten.
    pub is_complete: bool,
}

/// A range of a file; see [`ChunkStore::file_part`].
#[derive(Clone, Copy)]
pub struct FilePart<'a> {
    /// The file.
    pub file: &'a File,
    /// The offset of the range.
    pub at: u64,
    /// The length of the range.
    pub len: u64,
    /// Computes its CRC-32C, mostly from the stored block checksums.
    pub sum: &'a dyn Fn() -> Result<u32>,
}

/// A chunk's file for another process on the same host to read; see [`ChunkStore::same_host_file`].
#[derive(Debug)]
pub struct SameHostFile {
    /// The file, open for reading only.
    pub file: File,
    /// The mark of this opening of the store; checksum pages that carry another mark are not trusted.
    pub mark: u64,
}

/// Changes to a chunk; see [`ChunkStore::patch`].
pub trait Patches {
    /// The next range to change; at most a few MiB.
    fn next(&mut self) -> Option<Patch>;

    /// Changes the bytes of the range that `next` returned last. `bytes` holds the present content, or arbitrary bytes
    /// if all of the range is overwritten.
    fn apply(&mut self, bytes: &mut [u8]);
}

/// A source of chunks: a store, or files handed out by another process's store.
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

/// Bytes of a block of a chunk's file; each block has its own checksum.
pub const SUMMED: u64 = 64 << 10;

/// A store of chunks; the module documentation states the guarantees of a call.
pub trait ChunkStore: Send + Sync {
    /// Fails if another process serves these chunks now, or may: then this one answers nothing.
    fn may_answer(&self) -> Result<()> {
        Ok(())
    }

    /// Counters of the engine that this store is on, by name: requests, bytes, what waits.
    fn counts(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Another number when the store may have lost what was not synced: a *write verifier*, as in NFS. Data that was written
    /// under one is durable if a sync under the same one succeeds. 0 for stores that lose nothing before their process ends,
    /// or have nothing to sync.
    fn verifier(&self) -> u64 {
        0
    }

    /// Stores a complete immutable chunk: `data` is all its cells. Repeating it with the same data is allowed.
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()>;

    /// Stores a complete immutable chunk that is encoded already: `data` is what the store has on disk of a chunk with
    /// the form's codec ([`crate::codec::coded`]). Table and tail are checked; whether the blocks can be decoded is
    /// found out by reads. Repeating it with the same data is allowed.
    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()>;

    /// What `put_encoded` takes, of a chunk that is stored encoded; `None` of one that is not.
    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>>;

    /// Creates an empty file for another process to fill with a complete immutable chunk, for [`ChunkStore::adopt`].
    /// Returns `None` if the chunk must be `put` instead: it is unsuitable or exists already.
    fn blank(&self, _name: &ChunkName, _form: &ChunkForm) -> Result<Option<Blank>> {
        Ok(None)
    }

    /// Stores a chunk as `put` does, from a filled file of this store; no process may write to the file any more.
    /// `sums` are the checksums of its blocks ([`SUMMED`] bytes, the last one zero-padded) as computed by the writer;
    /// every later read verifies them. If `sums` is empty, they are computed from the present content of the file.
    fn adopt(&self, blank: Blank, _sums: &[u32]) -> Result<()> {
        let name = blank.name();
        Err(StoreError::Invalid(format!(
            "{name}: a file of another store"
        )))
    }

    /// Appends `data` to an unsealed free chunk, creating it if `at` is 0. `at` is the packed byte offset, at most the
    /// present length; existing bytes from there on are overwritten, so the call may be repeated. The form's shape is
    /// the maximum shape of the chunk.
    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()>;

    /// Ends a stream of appends: the chunk becomes immutable, with the form's shape (appended bytes beyond it are cut)
    /// and codec. On [`NoSpace`](crate::StoreError::NoSpace) it stays unsealed and readable. The call may be repeated.
    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()>;

    /// Writes cells of a grid chunk in place, creating it if it is missing.
    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()>;

    /// Changes ranges of a grid chunk in order, all under the chunk's lock, so that no other call reads or writes it in
    /// between. Creates the chunk if it is missing. `end` is the end of the last range. A failed call may have applied
    /// some of the changes.
    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()>;

    /// Reads cells, packed, into `out`, which has exactly their size. Verifies the checksums of all blocks involved. A
    /// chunk that does not exist is [`Missing`](crate::StoreError::Missing); the caller decides whether that means
    /// fill.
    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()>;

    /// Reads cells without a copy: if they are contiguous, verifies them, calls `f` once with them and returns `true`.
    /// Otherwise `f` is not called: use `read`. `f` runs under the chunk's lock and must not call the store.
    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool>;

    /// Like `show`, for cells that are contiguous in an immutable file: `f` gets the range of the file, to be sent with
    /// `sendfile`. The cells were verified. The file may be unlinked meanwhile; its content does not change.
    fn file_part(
        &self,
        _name: &ChunkName,
        _form: &ChunkForm,
        _slab: &Hyperslab,
        _f: &mut dyn FnMut(FilePart<'_>),
    ) -> Result<bool> {
        Ok(false)
    }

    /// The file of an immutable chunk that is stored uncompressed in a file of its own; otherwise, or if the chunk does
    /// not exist, `None`. The receiver verifies the checksums. The chunk may be deleted meanwhile; the file's content
    /// does not change.
    fn same_host_file(&self, _name: &ChunkName) -> Result<Option<SameHostFile>> {
        Ok(None)
    }

    /// Where an immutable chunk is in memory that other processes on this host may read, if it is in such memory.
    fn same_host_memory(&self, _name: &ChunkName) -> Option<MemoryPlace> {
        None
    }

    /// The files of that memory, for one more reading process.
    fn memory_files(&self) -> Result<Option<MemoryFiles>> {
        Ok(None)
    }

    /// Resets all cells of a grid chunk at or beyond `keep` on any axis to fill. A missing chunk is no error.
    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()>;

    /// Resets cells of a grid chunk to fill, and frees their space where possible. A missing chunk is no error.
    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()>;

    /// Which bytes of a grid chunk, in canonical order, are allocated, from byte `from` on. The others are holes and
    /// read as zeros; the result is only meaningful for chunks with a zero fill value. A missing chunk has no allocated
    /// bytes. A hole smaller than a page may count as data.
    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated>;

    /// Deletes chunks; missing ones are no error. All are tried; returns the first error.
    fn delete(&self, names: &[ChunkName]) -> Result<()>;

    /// Deletes the grid chunks of all generations of an object below `below`.
    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()>;

    /// Deletes all grid chunks of an object.
    fn delete_grid(&self, object: ObjectId) -> Result<()>;

    /// Makes the present state of these chunks durable against power failure. A missing free chunk is
    /// [`Missing`](crate::StoreError::Missing); a missing grid chunk stays deleted. Without names: syncs everything,
    /// including deletions.
    fn sync(&self, names: &[ChunkName]) -> Result<()>;

    /// Up to `limit` chunks after `after`, in order of names, each with its stored bytes.
    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>>;

    /// The space of the store's filesystem.
    fn space(&self) -> Result<Space>;

    /// Reads all of a chunk and verifies its checksums.
    fn verify(&self, name: &ChunkName) -> Result<()>;
}
