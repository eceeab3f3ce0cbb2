//! A chunk store in memory, for the chunks of coupled objects (docs/decisions/30-memory-store.md).
//!
//! All chunks are in one arena (`arena`), which processes on the same host map and read without a copy and without a request.
//! The memory of deleted chunks is used again (`extents`). Only complete immutable chunks are stored: no streams, and no
//! grid chunks. They are stored unencoded, whatever their codec, and without checksums: a byte that is sent has that of its
//! message.
//!
//! Nothing survives the process.

mod arena;
mod extents;

pub use arena::{MemoryBytes, MemoryFiles, MemoryPlace};
pub(crate) use arena::{PAGE, PINS, number};

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;
use slabfs_model::{Hyperslab, ObjectId};

use self::arena::Arena;
use super::extent::Extent;
use super::{Allocated, ChunkStore, Patches, Space};
use crate::codec::coded::Table;
use crate::error::{Result, StoreError};
use crate::name::{ChunkForm, ChunkName};

/// The store; see the module documentation.
#[derive(Debug)]
pub struct MemoryStore {
    id: [u8; 16],
    arena: Arc<Arena>,
    chunks: RwLock<BTreeMap<ChunkName, MemoryBytes>>,
}

impl MemoryStore {
    /// An empty store for this many bytes, in complete pages. Memory is taken as it is used.
    ///
    /// # Errors
    /// If the system has no files in memory.
    pub fn new(size: u64) -> Result<MemoryStore> {
        let made = || -> std::io::Result<MemoryStore> {
            let mut id = [0; 16];
            getrandom::fill(&mut id).map_err(|error| std::io::Error::other(error.to_string()))?;
            Ok(MemoryStore {
                id,
                arena: Arc::new(Arena::new(size)?),
                chunks: RwLock::default(),
            })
        };
        made().map_err(|error| StoreError::Io {
            what: "making memory for chunks".to_owned(),
            detail: error.to_string(),
            errno: error.raw_os_error(),
        })
    }

    /// Its random id.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// A copy of these bytes in the store's memory, which `put` takes without another copy. `None` if half of the memory would not
    /// stay free: several copies that become one chunk are copied once more, and until then they stay.
    #[must_use]
    pub fn copy(&self, bytes: &[u8]) -> Option<MemoryBytes> {
        let (size, used) = self.arena.space();
        if used + bytes.len() as u64 > size / 2 {
            return None;
        }
        self.arena.copy(bytes.len(), std::iter::once(bytes))
    }

    fn get(&self, name: &ChunkName) -> Result<MemoryBytes> {
        let found = self.chunks.read().get(name).cloned();
        found.ok_or_else(|| StoreError::Missing(name.clone()))
    }

    fn insert(&self, name: &ChunkName, form: &ChunkForm, bytes: MemoryBytes) -> Result<()> {
        if form.volume() != Some(bytes.len() as u64) {
            return Err(StoreError::Invalid(format!(
                "{name} has {} bytes, and its shape {:?} others",
                bytes.len(),
                form.shape
            )));
        }
        let mut chunks = self.chunks.write();
        if let Some(there) = chunks.get(name) {
            if **there != *bytes {
                return Err(StoreError::Invalid(format!(
                    "{name} exists with other bytes; chunks do not change"
                )));
            }
            return Ok(());
        }
        chunks.insert(name.clone(), bytes);
        Ok(())
    }
}

fn check_free(name: &ChunkName) -> Result<()> {
    match name {
        ChunkName::Free(_) => Ok(()),
        ChunkName::Grid { .. } => Err(only_complete(name)),
    }
}

fn only_complete(name: &ChunkName) -> StoreError {
    StoreError::Invalid(format!(
        "{name}: memory of coupled objects takes complete immutable chunks only"
    ))
}

/// The range of a slab in a chunk of `bytes`, if the cells are there.
fn checked<'a>(form: &ChunkForm, slab: &'a Hyperslab, bytes: &[u8]) -> Result<Extent<'a>> {
    let extent = Extent::new(form, slab)?;
    match extent.end <= bytes.len() as u64 {
        true => Ok(extent),
        false => Err(StoreError::Invalid(
            "the slab lies beyond the end of its chunk".to_owned(),
        )),
    }
}

/// Reads a slab of a chunk that is completely in memory.
pub(crate) fn read_of(
    bytes: &[u8],
    form: &ChunkForm,
    slab: &Hyperslab,
    out: &mut [u8],
) -> Result<()> {
    let extent = checked(form, slab, bytes)?;
    extent.check_len(out.len() as u64)?;
    let mut done = 0;
    extent.runs(&mut |at, len| {
        let (at, len) = (at as usize, len as usize);
        out[done..done + len].copy_from_slice(&bytes[at..at + len]);
        done += len;
        Ok(())
    })
}

/// Shows a slab of a chunk that is completely in memory, if it is contiguous.
pub(crate) fn show_of(
    bytes: &[u8],
    form: &ChunkForm,
    slab: &Hyperslab,
    f: &mut dyn FnMut(&[u8]),
) -> Result<bool> {
    let extent = checked(form, slab, bytes)?;
    let Some((at, len)) = extent.single() else {
        return Ok(false);
    };
    f(&bytes[at as usize..(at + len) as usize]);
    Ok(true)
}

impl ChunkStore for MemoryStore {
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        check_free(name)?;
        if let [all] = data
            && let Some(bytes) = self.arena.find(all)
        {
            return self.insert(name, form, bytes);
        }
        let len: usize = data.iter().map(|part| part.len()).sum();
        if form.volume() != Some(len as u64) {
            return Err(StoreError::Invalid(format!(
                "{name} has {len} bytes, and its shape {:?} others",
                form.shape
            )));
        }
        let bytes = self.arena.copy(len, data.iter().map(|part| &**part));
        self.insert(name, form, bytes.ok_or(StoreError::NoSpace)?)
    }

    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        check_free(name)?;
        let packed: Vec<u8> = data.iter().flat_map(|part| part.iter().copied()).collect();
        let wrong = |why: String| StoreError::Invalid(format!("{name}: {why}"));
        let table = Table::of(&packed).map_err(wrong)?;
        if form.volume() != Some(table.raw_len()) {
            return Err(wrong("the table has the bytes of another shape".to_owned()));
        }
        let mut raw = Vec::with_capacity(table.raw_len() as usize);
        let mut block = Vec::new();
        for number in 0..table.blocks() {
            let range = table.stored_range(number);
            let stored = &packed[range.start as usize..range.end as usize];
            table
                .unpack_block(number, form.codec, form.elem as usize, stored, &mut block)
                .map_err(|error| wrong(error.to_string()))?;
            raw.extend_from_slice(&block);
        }
        self.put(name, form, &[IoSlice::new(&raw)])
    }

    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        self.get(name).map(|_| None)
    }

    fn append(&self, name: &ChunkName, _: &ChunkForm, _: u64, _: &[IoSlice<'_>]) -> Result<()> {
        Err(only_complete(name))
    }

    fn seal(&self, name: &ChunkName, _: &ChunkForm) -> Result<()> {
        Err(only_complete(name))
    }

    fn write(
        &self,
        name: &ChunkName,
        _: &ChunkForm,
        _: &Hyperslab,
        _: &[IoSlice<'_>],
    ) -> Result<()> {
        Err(only_complete(name))
    }

    fn patch(&self, name: &ChunkName, _: &ChunkForm, _: u64, _: &mut dyn Patches) -> Result<()> {
        Err(only_complete(name))
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        read_of(&self.get(name)?, form, slab, out)
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        show_of(&self.get(name)?, form, slab, f)
    }

    fn same_host_memory(&self, name: &ChunkName) -> Option<MemoryPlace> {
        self.get(name).ok().map(|bytes| bytes.place())
    }

    fn memory_files(&self) -> Result<Option<MemoryFiles>> {
        let files = self.arena.files().map_err(|error| StoreError::Io {
            what: "handing out memory".to_owned(),
            detail: error.to_string(),
            errno: error.raw_os_error(),
        });
        files.map(Some)
    }

    fn clip(&self, name: &ChunkName, _: &ChunkForm, _: &[u64]) -> Result<()> {
        Err(only_complete(name))
    }

    fn punch(&self, name: &ChunkName, _: &ChunkForm, _: &Hyperslab) -> Result<()> {
        Err(only_complete(name))
    }

    fn allocated(&self, _: &ChunkName, _: u64) -> Result<Allocated> {
        Ok(Allocated::default())
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        let mut chunks = self.chunks.write();
        // Dropped after the lock: that looks at the pins of all readers.
        let gone: Vec<_> = names.iter().map(|name| chunks.remove(name)).collect();
        drop(chunks);
        drop(gone);
        Ok(())
    }

    fn delete_generation(&self, _: ObjectId, _: u32) -> Result<()> {
        Ok(())
    }

    fn delete_grid(&self, _: ObjectId) -> Result<()> {
        Ok(())
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        let chunks = self.chunks.read();
        let is_missing =
            |name: &&ChunkName| matches!(name, ChunkName::Free(_)) && !chunks.contains_key(*name);
        match names.iter().find(is_missing) {
            Some(name) => Err(StoreError::Missing(name.clone())),
            None => Ok(()),
        }
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        let chunks = self.chunks.read();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let found = chunks.range((from, Bound::Unbounded)).take(limit);
        Ok(found
            .map(|(name, bytes)| (name.clone(), (bytes.len() as u64).next_multiple_of(PAGE)))
            .collect())
    }

    fn space(&self) -> Result<Space> {
        let (total, used) = self.arena.space();
        Ok(Space {
            total,
            free: total.saturating_sub(used),
            used,
            disk: None,
        })
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        self.get(name).map(drop)
    }
}

#[cfg(test)]
mod tests;
