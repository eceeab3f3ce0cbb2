//! What a call needs of a chunk comes into the cache, and what was not used for long leaves it.

use std::collections::BTreeSet;
use std::io::IoSlice;

use bytes::Bytes;
use parking_lot::RwLockWriteGuard;
use slabfs_objstore::store::{Patch, Patches};
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

use crate::cache::Kind;
use crate::index::{Object, Span, Stored};
use crate::journal::Record;
use crate::segment::{BLOCK, check};
use crate::store::{Result, S3Store, State};

/// Chunks that are looked at for one eviction.
const CANDIDATES: usize = 32;

impl S3Store {
    /// The bytes of a span.
    pub(crate) fn fetch(&self, name: &ChunkName, span: &Span) -> Result<Bytes> {
        if span.len == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self
            .bucket
            .get(&self.key_of(span), Some(span.at..span.at + span.len))?;
        check(name, span.crc, &bytes)?;
        Ok(bytes)
    }

    fn key_of(&self, span: &Span) -> String {
        match &span.object {
            Object::Segment(number) => self.segment_key(*number),
            Object::Own(key) => key.clone(),
        }
    }

    /// The bytes of blocks, fetched at the same time.
    fn fetch_blocks(&self, name: &ChunkName, blocks: &[(u64, Span)]) -> Result<Vec<(u64, Bytes)>> {
        let parts = blocks
            .iter()
            .map(|(_, span)| (self.key_of(span), span.at..span.at + span.len));
        let fetched = self.bucket.get_all(parts.collect())?;
        let both = blocks.iter().zip(fetched);
        both.map(|((block, span), bytes)| {
            check(name, span.crc, &bytes)?;
            Ok((*block, bytes))
        })
        .collect()
    }

    /// Brings the blocks of a slab, or all of a chunk, into the cache. The caller holds the stripe. Returns false if there is
    /// no such chunk.
    pub(crate) fn bring(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        blocks: &Wanted,
    ) -> Result<bool> {
        loop {
            let before = self.state.lock().index.chunks.get(name).cloned();
            let brought = self.try_bring(name, form, blocks);
            // An upload may have put it elsewhere, and the index may have been stored: what was there is deleted then.
            let moved = || self.state.lock().index.chunks.get(name) != before.as_ref();
            if brought.is_ok() || !moved() {
                return brought;
            }
        }
    }

    pub(crate) fn try_bring(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        blocks: &Wanted,
    ) -> Result<bool> {
        let stored = {
            let mut state = self.state.lock();
            let there = state.cache.used(name).is_some();
            match state.index.chunks.get(name) {
                // All that there is of it is in the cache.
                None => return Ok(there),
                Some(Stored::Chunk { .. }) if there => return Ok(true),
                Some(stored) => stored.clone(),
            }
        };
        match stored {
            Stored::Chunk {
                form,
                encoded,
                span,
            } => {
                let bytes = self.fetch(name, &span)?;
                let slices = [IoSlice::new(&bytes)];
                match encoded {
                    true => self.local.put_encoded(name, &form, &slices)?,
                    false => self.local.put(name, &form, &slices)?,
                }
                self.journal.note(&Record::Free {
                    name: name.clone(),
                    form: form.clone(),
                    sealed: true,
                    dirty: false,
                    bytes: span.len,
                });
                let kind = Kind::Free {
                    sealed: true,
                    dirty: None,
                };
                let mut state = self.state.lock();
                state.cache.put(name, &form, kind, span.len);
            }
            Stored::Grid { blocks: all, .. } => {
                let missing: Vec<(u64, Span)> = {
                    let state = self.state.lock();
                    let here = match state.cache.chunks.get(name).map(|cached| &cached.kind) {
                        Some(Kind::Grid { here, .. }) => Some(here),
                        _ => None,
                    };
                    let wanted = all.into_iter().filter(|(block, _)| {
                        blocks.contains(*block) && !here.is_some_and(|here| here.contains(block))
                    });
                    wanted.collect()
                };
                if missing.is_empty() && self.state.lock().cache.chunks.contains_key(name) {
                    return Ok(true);
                }
                let fetched = self.fetch_blocks(name, &missing)?;
                let end = fetched
                    .iter()
                    .map(|(block, bytes)| block * BLOCK + bytes.len() as u64)
                    .max();
                let mut patches = Bring {
                    rest: fetched.iter().collect(),
                    now: None,
                    // A chunk of fill has to exist in the cache, too.
                    touch: end.is_none(),
                };
                self.local
                    .patch(name, form, end.unwrap_or(1), &mut patches)?;
                self.journal.note(&Record::Blocks {
                    name: name.clone(),
                    form: form.clone(),
                    blocks: missing.iter().map(|(block, _)| *block).collect(),
                    dirty: false,
                });
                let mut state = self.state.lock();
                if !state.cache.chunks.contains_key(name) {
                    state.cache.put(name, form, Kind::grid(), 0);
                }
                if let Some(Kind::Grid { here, .. }) = state
                    .cache
                    .chunks
                    .get_mut(name)
                    .map(|cached| &mut cached.kind)
                {
                    here.extend(missing.iter().map(|(block, _)| *block));
                }
                state.cache.measure(name, end.unwrap_or(0));
            }
        }
        self.evict();
        Ok(true)
    }

    /// Removes chunks from the cache until it has its size again. The caller may hold a stripe.
    pub(crate) fn evict(&self) {
        let candidates = {
            let state = self.state.lock();
            match state.cache.bytes > self.options.cache_bytes {
                true => state.cache.oldest_clean(CANDIDATES),
                false => return,
            }
        };
        for name in candidates {
            // One that is being read, or about to be used by the caller, stays.
            let Some(_stripe) = self.stripe(&name).try_write() else {
                continue;
            };
            {
                let mut state = self.state.lock();
                if state.cache.bytes <= self.options.cache_bytes {
                    return;
                }
                let clean = state.cache.chunks.get(&name);
                if clean.is_none_or(|cached| cached.is_dirty()) {
                    continue;
                }
                state.cache.remove(&name);
            }
            self.journal.note(&Record::Removed(name.clone()));
            if let Err(error) = self.local.delete(std::slice::from_ref(&name)) {
                tracing::warn!("{name} stays in the cache: {error}");
            }
        }
    }

    /// Makes room in the cache by uploading what is dirty.
    pub(crate) fn make_room(&self) -> Result<()> {
        let full = {
            let state = self.state.lock();
            state.cache.bytes > self.options.cache_bytes && state.cache.oldest_clean(1).is_empty()
        };
        if full {
            self.upload_all()?;
        }
        Ok(())
    }

    /// Forgets what the cache has of a chunk and the bucket has, too, so that it is fetched again. Returns whether there was something.
    /// The caller holds the stripe.
    fn forget_clean(&self, name: &ChunkName) -> bool {
        let mut state = self.state.lock();
        if !state.index.chunks.contains_key(name) {
            return false;
        }
        let Some(cached) = state.cache.chunks.get_mut(name) else {
            return false;
        };
        let clean: BTreeSet<u64> = match &mut cached.kind {
            Kind::Free { dirty: Some(_), .. } => return false,
            Kind::Free { .. } => {
                state.cache.remove(name);
                drop(state);
                self.journal.note(&Record::Removed(name.clone()));
                if let Err(error) = self.local.delete(std::slice::from_ref(name)) {
                    tracing::warn!("{name} stays in the cache: {error}");
                }
                return true;
            }
            Kind::Grid { here, dirty, .. } => {
                let clean = here.iter().filter(|block| !dirty.contains_key(block));
                let clean = clean.copied().collect();
                here.retain(|block| dirty.contains_key(block));
                clean
            }
        };
        state.cache.measure(name, 0);
        drop(state);
        let some = !clean.is_empty();
        self.journal.note(&Record::Changing {
            name: name.clone(),
            blocks: clean,
        });
        some
    }

    /// Runs `work` on a chunk of which what `wanted` names is in the cache.
    pub(crate) fn with<T>(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        wanted: &Wanted,
        work: &mut dyn FnMut() -> Result<T>,
    ) -> Result<T> {
        self.check()?;
        {
            let _shared = self.stripe(name).read();
            if self.has(name, wanted) {
                match work() {
                    Err(StoreError::Damaged { .. }) => {}
                    done => return done,
                }
            }
        }
        let stripe = self.lock(name);
        if !self.bring(name, form, wanted)? {
            return Err(StoreError::Missing(name.clone()));
        }
        let error = match work() {
            Err(error @ StoreError::Damaged { .. }) => error,
            done => return done,
        };
        // The disk of the cache: the bucket may have it undamaged.
        if !self.forget_clean(name) {
            return Err(error);
        }
        tracing::warn!("{name} is fetched again: what the cache has of it is damaged: {error}");
        self.bring(name, form, wanted)?;
        let _shared = RwLockWriteGuard::downgrade(stripe);
        work()
    }

    /// Whether the cache has what is wanted of a chunk.
    pub(crate) fn has(&self, name: &ChunkName, wanted: &Wanted) -> bool {
        let mut state = self.state.lock();
        let State { index, cache, .. } = &mut *state;
        let Some(cached) = cache.used(name) else {
            return false;
        };
        match (&cached.kind, index.chunks.get(name)) {
            (Kind::Grid { here, .. }, Some(Stored::Grid { blocks, .. })) => match wanted {
                Wanted::Everything => blocks.keys().all(|block| here.contains(block)),
                Wanted::Blocks(wanted) => wanted
                    .iter()
                    .all(|block| here.contains(block) || !blocks.contains_key(block)),
            },
            _ => true,
        }
    }
}

/// The blocks that a call needs.
pub(crate) enum Wanted {
    Everything,
    Blocks(BTreeSet<u64>),
}

impl Wanted {
    fn contains(&self, block: u64) -> bool {
        match self {
            Wanted::Everything => true,
            Wanted::Blocks(blocks) => blocks.contains(&block),
        }
    }
}

/// Writes fetched blocks to the cache.
struct Bring<'a> {
    rest: Vec<&'a (u64, Bytes)>,
    now: Option<&'a Bytes>,
    touch: bool,
}

impl Patches for Bring<'_> {
    fn next(&mut self) -> Option<Patch> {
        if std::mem::take(&mut self.touch) {
            self.now = None;
            return Some(Patch {
                from: 0,
                to: 1,
                is_complete: false,
            });
        }
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let (block, bytes) = self.rest.remove(0);
            if bytes.is_empty() {
                continue;
            }
            self.now = Some(bytes);
            return Some(Patch {
                from: block * BLOCK,
                to: block * BLOCK + bytes.len() as u64,
                is_complete: true,
            });
        }
    }

    fn apply(&mut self, bytes: &mut [u8]) {
        if let Some(fetched) = self.now {
            bytes.copy_from_slice(fetched);
        }
    }
}
