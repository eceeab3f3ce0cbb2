//! [`ChunkStore`] over a bucket: each call brings what it needs into the cache, and works there.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Bound;

use slabfs_model::{Hyperslab, ObjectId, for_each_run};
use slabfs_objstore::store::{Allocated, Patch, Patches, Space};
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

use crate::address::Durability;
use crate::cache::Kind;
use crate::change::Touch;
use crate::fetch::Wanted;
use crate::index::{Stored, of_object};
use crate::segment::BLOCK;
use crate::store::{PLENTY, Result, S3Store};

impl ChunkStore for S3Store {
    fn may_answer(&self) -> Result<()> {
        self.check()
    }

    fn counts(&self) -> Vec<(String, u64)> {
        let requests = self.bucket.counts();
        let (cached, dirty) = {
            let state = self.state.lock();
            (state.cache.bytes, state.cache.dirty().count() as u64)
        };
        let counts = [
            ("puts", requests.puts),
            ("put_bytes", requests.put_bytes),
            ("gets", requests.gets),
            ("got_bytes", requests.got_bytes),
            ("lists", requests.lists),
            ("deletes", requests.deletes),
            ("failed", requests.failed),
            ("cache_bytes", cached),
            ("chunks_to_upload", dirty),
        ];
        let counts = counts.into_iter();
        counts
            .map(|(name, count)| (name.to_owned(), count))
            .collect()
    }

    fn verifier(&self) -> u64 {
        self.verifier
    }

    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        // A chunk that was sent again is compared with what there is.
        self.bring(name, form, &Wanted::Everything)?;
        self.local.put(name, form, data)?;
        self.note_free(name, form, true, len_of(data));
        Ok(())
    }

    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        self.bring(name, form, &Wanted::Everything)?;
        self.local.put_encoded(name, form, data)?;
        self.note_free(name, form, true, len_of(data));
        Ok(())
    }

    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        let form = {
            let state = self.state.lock();
            match state.index.chunks.get(name) {
                Some(Stored::Chunk { form, .. }) => Some(form.clone()),
                _ => None,
            }
        };
        match form {
            None => self.local.read_encoded(name),
            Some(form) => self.with(name, &form, &Wanted::Everything, &mut || {
                self.local.read_encoded(name)
            }),
        }
    }

    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        self.bring(name, form, &Wanted::Everything)?;
        self.local.append(name, form, at, data)?;
        let known = {
            let mut state = self.state.lock();
            state.cache.used(name).is_some()
        };
        match known {
            true => self.state.lock().cache.grow(name, len_of(data)),
            false => self.note_free(name, form, false, len_of(data)),
        }
        Ok(())
    }

    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        self.check()?;
        let _stripe = self.lock(name);
        self.bring(name, form, &Wanted::Everything)?;
        self.local.seal(name, form)?;
        self.note_free(name, form, true, form.volume().unwrap_or(0));
        Ok(())
    }

    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        let (blocks, end) = coverage(form, slab);
        let partial = blocks.iter().filter(|(_, bytes)| **bytes < BLOCK);
        let touch = Touch {
            needed: partial.map(|(block, _)| *block).collect(),
            may: blocks.keys().copied().collect(),
            end,
        };
        self.change(name, form, touch, || {
            let done = self.local.write(name, form, slab, data);
            (blocks.into_keys().collect(), done)
        })
    }

    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        // Which ranges come is known only as they come; they lie in front of the end.
        let needed: BTreeSet<u64> = (0..end.div_ceil(BLOCK)).collect();
        let touch = Touch {
            may: needed.clone(),
            needed,
            end,
        };
        self.change(name, form, touch, || {
            let mut noting = Noting {
                patches,
                touched: BTreeSet::new(),
            };
            let done = self.local.patch(name, form, end, &mut noting);
            (noting.touched, done)
        })
    }

    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        let wanted = Wanted::Blocks(coverage(form, slab).0.into_keys().collect());
        self.with(name, form, &wanted, &mut || {
            self.local.read(name, form, slab, out)
        })
    }

    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        let wanted = Wanted::Blocks(coverage(form, slab).0.into_keys().collect());
        self.with(name, form, &wanted, &mut || {
            self.local.show(name, form, slab, f)
        })
    }

    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        self.reset(name, form, None, || self.local.clip(name, form, keep))
    }

    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        let blocks = coverage(form, slab).0.into_keys().collect();
        self.reset(name, form, Some(blocks), || {
            self.local.punch(name, form, slab)
        })
    }

    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        let stored = {
            let state = self.state.lock();
            match state.index.chunks.get(name) {
                Some(Stored::Grid { form, .. }) => Some(form.clone()),
                _ => None,
            }
        };
        match stored {
            None => self.local.allocated(name, from),
            Some(form) => self.with(name, &form, &Wanted::Everything, &mut || {
                self.local.allocated(name, from)
            }),
        }
    }

    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        self.check()?;
        self.remove(names.iter().cloned())
    }

    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()> {
        self.check()?;
        let names = self.names(of_object(object, Some(below)));
        self.remove(names.into_iter())?;
        self.local.delete_generation(object, below)
    }

    fn delete_grid(&self, object: ObjectId) -> Result<()> {
        self.check()?;
        let names = self.names(of_object(object, None));
        self.remove(names.into_iter())?;
        self.local.delete_grid(object)
    }

    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        if names.is_empty() {
            return self.upload_all();
        }
        {
            let state = self.state.lock();
            let missing = names.iter().find(|name| {
                matches!(name, ChunkName::Free(_))
                    && !state.cache.chunks.contains_key(*name)
                    && !state.index.chunks.contains_key(*name)
            });
            if let Some(name) = missing {
                return Err(StoreError::Missing(name.clone()));
            }
        }
        match self.options.durability {
            Durability::Bucket => {
                self.check()?;
                self.put_ahead(names)?;
                self.upload(&names.iter().cloned().collect())
            }
            Durability::Local => self.sync_locally(names),
        }
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        // Those that the bucket has not are in the cache.
        let mut all: BTreeMap<ChunkName, u64> =
            self.local.list(after.clone(), limit)?.into_iter().collect();
        let state = self.state.lock();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let stored = state.index.chunks.range((from, Bound::Unbounded));
        for (name, stored) in stored.take(limit) {
            if !state.is_newer_here(name, stored) {
                all.insert(name.clone(), stored.bytes());
            }
        }
        Ok(all.into_iter().take(limit).collect())
    }

    fn space(&self) -> Result<Space> {
        let state = self.state.lock();
        let used = state.index.bytes;
        Ok(Space {
            total: PLENTY,
            free: PLENTY.saturating_sub(used),
            used,
            disk: None,
        })
    }

    fn verify(&self, name: &ChunkName) -> Result<()> {
        let stored = self.state.lock().index.chunks.get(name).cloned();
        let Some(stored) = stored else {
            return self.local.verify(name);
        };
        stored
            .spans()
            .try_for_each(|span| self.fetch(name, span).map(drop))
    }
}

impl S3Store {
    /// The names of chunks of which this is true.
    fn names(&self, of: impl Fn(&ChunkName) -> bool) -> Vec<ChunkName> {
        let state = self.state.lock();
        let stored = state.index.chunks.keys();
        let all: BTreeSet<ChunkName> = stored
            .chain(state.cache.chunks.keys())
            .filter(|name| of(name))
            .cloned()
            .collect();
        all.into_iter().collect()
    }

    /// Resets cells of a grid chunk, if it exists; of `blocks`, or of all that it has.
    fn reset(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        blocks: Option<BTreeSet<u64>>,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        let known: BTreeSet<u64> = {
            let state = self.state.lock();
            let stored = match state.index.chunks.get(name) {
                Some(Stored::Grid { blocks, .. }) => blocks.keys().copied().collect(),
                _ => BTreeSet::new(),
            };
            let here = match state.cache.chunks.get(name).map(|cached| &cached.kind) {
                Some(Kind::Grid { here, .. }) => here.clone(),
                _ => BTreeSet::new(),
            };
            stored.union(&here).copied().collect()
        };
        let touched: BTreeSet<u64> = match blocks {
            Some(blocks) => known.intersection(&blocks).copied().collect(),
            None => known,
        };
        let exists = {
            let state = self.state.lock();
            state.index.chunks.contains_key(name) || state.cache.chunks.contains_key(name)
        };
        match exists {
            true => {
                let touch = Touch {
                    needed: touched.clone(),
                    may: touched.clone(),
                    end: 0,
                };
                self.change_locked(name, form, touch, || (touched, work()))
            }
            // It refuses wrong requests.
            false => work(),
        }
    }
}

/// The blocks of a slab, each with the bytes of it that are in the slab, and the end of its last byte. None of a slab that is
/// not valid, which the store below refuses.
fn coverage(form: &ChunkForm, slab: &Hyperslab) -> (BTreeMap<u64, u64>, u64) {
    let (mut blocks, mut end) = (BTreeMap::new(), 0);
    if slab.validate(&form.shape).is_err() {
        return (blocks, end);
    }
    let Some(bounds) = slab.bounds() else {
        return (blocks, end);
    };
    let mut shape = form.shape.clone();
    if let Some(first) = shape.first_mut() {
        *first = bounds.end(0);
    }
    let bytes = shape
        .iter()
        .try_fold(1u64, |bytes, axis| bytes.checked_mul(*axis));
    if bytes.is_none_or(|bytes| bytes > i64::MAX as u64 / 2) {
        return (blocks, end);
    }
    for_each_run(&shape, slab, &mut |at, len| {
        let (mut at, mut len) = (at as u64, len as u64);
        end = end.max(at + len);
        while len > 0 {
            let part = len.min(BLOCK - at % BLOCK);
            *blocks.entry(at / BLOCK).or_insert(0) += part;
            at += part;
            len -= part;
        }
    });
    (blocks, end)
}

/// Notes which blocks are changed.
struct Noting<'a> {
    patches: &'a mut dyn Patches,
    touched: BTreeSet<u64>,
}

impl Patches for Noting<'_> {
    fn next(&mut self) -> Option<Patch> {
        let patch = self.patches.next()?;
        if patch.from < patch.to {
            self.touched
                .extend(patch.from / BLOCK..=(patch.to - 1) / BLOCK);
        }
        Some(patch)
    }

    fn apply(&mut self, bytes: &mut [u8]) {
        self.patches.apply(bytes);
    }
}

fn len_of(data: &[IoSlice<'_>]) -> u64 {
    data.iter().map(|part| part.len() as u64).sum()
}
