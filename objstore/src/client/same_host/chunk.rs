//! A chunk that this process reads itself: from its file, or from the memory of another process.

use slabfs_model::Hyperslab;

use super::memory::MemoryChunk;
use crate::error::Result;
use crate::name::ChunkForm;
use crate::store::SameHostChunk;

#[derive(Debug)]
pub(in crate::client) enum Chunk {
    File(Box<SameHostChunk>),
    Memory(MemoryChunk),
}

impl Chunk {
    /// As [`ChunkStore::read`](crate::store::ChunkStore::read).
    pub(in crate::client) fn read(
        &self,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        match self {
            Chunk::File(chunk) => chunk.read(form, slab, out),
            Chunk::Memory(chunk) => chunk.read(form, slab, out),
        }
    }

    /// As [`ChunkStore::show`](crate::store::ChunkStore::show).
    pub(in crate::client) fn show(
        &self,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        match self {
            Chunk::File(chunk) => chunk.show(form, slab, f),
            Chunk::Memory(chunk) => chunk.show(form, slab, f),
        }
    }

    /// Like `show`, without waiting for a disk: false also if pages that must be read are not in memory.
    pub(in crate::client) fn show_at_once(
        &self,
        form: &ChunkForm,
        slab: &Hyperslab,
        keeps: bool,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        match self {
            Chunk::File(chunk) => chunk.show_at_once(form, slab, keeps, f),
            Chunk::Memory(chunk) => chunk.show(form, slab, f),
        }
    }

    /// Whether it has a descriptor of its own.
    pub(super) fn has_file(&self) -> bool {
        matches!(self, Chunk::File(_))
    }

    /// The bytes of its file.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Chunk::File(chunk) => chunk.bytes(),
            Chunk::Memory(_) => 0,
        }
    }
}
