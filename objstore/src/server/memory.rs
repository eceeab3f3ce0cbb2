//! A chunk store in memory, for tests: simple enough to be obviously right, with error injection.

use std::{
    collections::BTreeMap,
    io::IoSlice,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;
use slabfs_model::{Hyperslab, ObjectId, fill_slab, gather, scatter};

use crate::{
    error::{Result, StoreError},
    name::{ChunkForm, ChunkName},
    store::{Allocated, Blank, ChunkStore, Patches, Place, Space},
};

/// All chunks, dense.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    chunks: Mutex<BTreeMap<ChunkName, Vec<u8>>>,
    /// Calls that change the store.
    pub(crate) changes: AtomicUsize,
    /// Names passed to `sync`.
    pub(crate) synced: AtomicUsize,
    /// Calls of `show` that showed something.
    pub(crate) shown: AtomicUsize,
    /// The directory for files of new chunks, if the store hands them out.
    pub(crate) blanks_in: Mutex<Option<tempfile::TempDir>>,
    /// The number of filled files returned, and whether the next one is refused.
    pub(crate) filled: AtomicUsize,
    pub(crate) refuses: AtomicBool,
    /// Error injection: a free chunk with this id, or a grid chunk in this row, fails; for 99, all ids above 99. The id
    /// modulo 100 selects the failure: 1 panics, 2 has no space, 3 is damaged, 4 vanishes before its bytes are read, 5
    /// is damaged even for empty reads, 6 blocks the first caller until the trap changes.
    pub(crate) trap: AtomicU64,
    pub(crate) held: AtomicBool,
}

fn flat(data: &[IoSlice<'_>]) -> Vec<u8> {
    data.iter().flat_map(|s| s.iter().copied()).collect()
}

/// A chunk of fill.
fn new(form: &ChunkForm) -> Vec<u8> {
    let mut new = vec![0; form.volume().unwrap() as usize];
    let all = Hyperslab::all(&form.shape);
    fill_slab(&mut new, &form.shape, &all, &form.fill);
    new
}

impl Memory {
    /// How a chunk fails, if it does.
    fn trap_of(&self, name: &ChunkName) -> u64 {
        let of = match name {
            ChunkName::Free(id) => id.0,
            ChunkName::Grid { at, .. } => at[0],
        };
        match self.trap.load(Relaxed) {
            99 if of > 99 => of % 100,
            trap if trap == of => of % 100,
            _ => 0,
        }
    }

    fn spring(&self, name: &ChunkName) -> Result<()> {
        match self.trap_of(name) {
            0 => Ok(()),
            1 => panic!("the trap of chunk 1"),
            2 => Err(StoreError::NoSpace),
            4 => Err(StoreError::Missing(name.clone())),
            6 => {
                let first = !self.held.swap(true, Relaxed);
                while first && self.trap_of(name) == 6 {
                    std::thread::yield_now();
                }
                Ok(())
            }
            _ => Err(StoreError::Damaged {
                name: name.clone(),
                detail: "as asked".into(),
            }),
        }
    }

    fn change(&self, name: &ChunkName) -> Result<()> {
        self.changes.fetch_add(1, Relaxed);
        self.spring(name)
    }

    fn fill(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) {
        if let Some(chunk) = self.chunks.lock().get_mut(name) {
            fill_slab(chunk, &form.shape, slab, &form.fill);
        }
    }
}

impl ChunkStore for Memory {
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.change(name)?;
        let data = flat(data);
        assert_eq!(form.volume(), Some(data.len() as u64));
        self.chunks.lock().insert(name.clone(), data);
        Ok(())
    }

    fn put_encoded(&self, name: &ChunkName, _: &ChunkForm, _: &[IoSlice<'_>]) -> Result<()> {
        Err(StoreError::Invalid(format!("{name}: no codecs here")))
    }

    fn read_encoded(&self, _: &ChunkName) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn blank(&self, name: &ChunkName, form: &ChunkForm) -> Result<Option<Blank>> {
        let blanks_in = self.blanks_in.lock();
        let Some(dir) = &*blanks_in else {
            return Ok(None);
        };
        let path = dir.path().join(format!("{name}"));
        let len = form.volume().unwrap();
        let halves = [(0, len / 2), (len, len - len / 2)];
        let places = halves.map(|(at, len)| Place { at, len }).to_vec();
        Ok(Some(Blank::create(path, name, form, places).unwrap()))
    }

    fn adopt(&self, blank: Blank, _: &[u32]) -> Result<()> {
        self.filled.fetch_add(1, Relaxed);
        if self.refuses.swap(false, Relaxed) {
            return Err(StoreError::Deadline);
        }
        let data = blank.content().unwrap();
        self.change(blank.name())?;
        self.chunks.lock().insert(blank.name().clone(), data);
        Ok(())
    }

    fn append(&self, name: &ChunkName, _: &ChunkForm, at: u64, data: &[IoSlice<'_>]) -> Result<()> {
        self.change(name)?;
        let mut chunks = self.chunks.lock();
        let chunk = chunks.entry(name.clone()).or_default();
        if at > chunk.len() as u64 {
            return Err(StoreError::Invalid("a gap".into()));
        }
        chunk.truncate(at as usize);
        chunk.extend(flat(data));
        Ok(())
    }

    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        self.change(name)?;
        match self.chunks.lock().get_mut(name) {
            Some(chunk) => chunk.truncate(form.volume().unwrap() as usize),
            None => return Err(StoreError::Missing(name.clone())),
        }
        Ok(())
    }

    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.change(name)?;
        let mut chunks = self.chunks.lock();
        let chunk = chunks.entry(name.clone()).or_insert_with(|| new(form));
        scatter(&flat(data), slab, chunk, &form.shape);
        Ok(())
    }

    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        _: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        self.change(name)?;
        let mut chunks = self.chunks.lock();
        let chunk = chunks.entry(name.clone()).or_insert_with(|| new(form));
        while let Some(patch) = patches.next() {
            patches.apply(&mut chunk[patch.from as usize..patch.to as usize]);
        }
        Ok(())
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        // An empty read only checks whether the chunk exists.
        if !out.is_empty() || self.trap_of(name) == 5 {
            self.spring(name)?;
        }
        match self.chunks.lock().get(name) {
            Some(chunk) => gather(chunk, &form.shape, slab, out),
            None => return Err(StoreError::Missing(name.clone())),
        }
        Ok(())
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.spring(name)?;
        let chunks = self.chunks.lock();
        let chunk = chunks
            .get(name)
            .ok_or_else(|| StoreError::Missing(name.clone()))?;
        if slab.as_region().is_none_or(|r| r.shape != form.shape) {
            return Ok(false);
        }
        self.shown.fetch_add(1, Relaxed);
        f(chunk);
        Ok(true)
    }

    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        self.change(name)?;
        for (axis, keep) in keep.iter().enumerate() {
            let mut gone = Hyperslab::all(&form.shape);
            let keep = form.shape[axis].min(*keep);
            gone.axes[axis] = slabfs_model::Axis::span(keep, form.shape[axis] - keep);
            if !gone.is_empty() {
                self.fill(name, form, &gone);
            }
        }
        Ok(())
    }

    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        self.change(name)?;
        self.fill(name, form, slab);
        Ok(())
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        names.iter().try_for_each(|name| {
            self.change(name)?;
            self.chunks.lock().remove(name);
            Ok(())
        })
    }

    fn delete_generation(&self, of: ObjectId, below: u32) -> Result<()> {
        self.chunks.lock().retain(|name, _| {
            !matches!(name, ChunkName::Grid { object, generation, .. } if *object == of && *generation < below)
        });
        Ok(())
    }

    fn delete_grid(&self, of: ObjectId) -> Result<()> {
        self.chunks
            .lock()
            .retain(|name, _| !matches!(name, ChunkName::Grid { object, .. } if *object == of));
        Ok(())
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        names.iter().try_for_each(|name| self.spring(name))?;
        self.synced.fetch_add(names.len().max(1), Relaxed);
        Ok(())
    }

    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        let chunks = self.chunks.lock();
        let len = chunks.get(name).map_or(0, |data| data.len() as u64);
        Ok(Allocated {
            bytes: len,
            next: (from < len).then_some((from, len)),
        })
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        let chunks = self.chunks.lock();
        let behind = chunks
            .iter()
            .filter(|(name, _)| after.as_ref().is_none_or(|a| *name > a));
        Ok(behind
            .take(limit)
            .map(|(name, data)| (name.clone(), data.len() as u64))
            .collect())
    }

    fn space(&self) -> Result<Space> {
        let used = self.chunks.lock().values().map(|c| c.len() as u64).sum();
        Ok(Space {
            total: 1 << 40,
            free: (1 << 40) - used,
            used,
            disk: None,
        })
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        self.spring(name)?;
        match self.chunks.lock().contains_key(name) {
            true => Ok(()),
            false => Err(StoreError::Missing(name.clone())),
        }
    }
}
