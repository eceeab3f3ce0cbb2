//! Changes of what the cache has: new chunks, blocks of grid chunks, deletions. Each is in the journal before it is acknowledged.

use std::collections::BTreeSet;

use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore};

use crate::cache::Kind;
use crate::fetch::Wanted;
use crate::index::Stored;
use crate::journal::Record;
use crate::store::{Result, S3Store};

/// What a change touches.
pub(crate) struct Touch {
    /// Blocks that have to be in the cache, since not all of them changes.
    pub(crate) needed: BTreeSet<u64>,
    /// Blocks that may change.
    pub(crate) may: BTreeSet<u64>,
    /// The end of the last byte that changes.
    pub(crate) end: u64,
}

impl S3Store {
    /// Notes that an immutable chunk was written to the cache.
    pub(crate) fn note_free(&self, name: &ChunkName, form: &ChunkForm, sealed: bool, bytes: u64) {
        let mut state = self.state.lock();
        if state.index.chunks.contains_key(name) {
            // It was sent again.
            return;
        }
        let change = state.cache.change();
        let kind = Kind::Free {
            sealed,
            dirty: sealed.then_some(change),
        };
        state.cache.put(name, form, kind, bytes);
        drop(state);
        self.journal.note(&Record::Free {
            name: name.clone(),
            form: form.clone(),
            sealed,
            dirty: sealed,
            bytes,
        });
        self.evict();
    }

    /// Changes blocks of a grid chunk in the cache, none but those that may be touched. `work` returns the blocks that it changed, or may
    /// have changed.
    pub(crate) fn change(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        touch: Touch,
        work: impl FnOnce() -> (BTreeSet<u64>, Result<()>),
    ) -> Result<()> {
        self.check()?;
        self.make_room()?;
        let _stripe = self.lock(name);
        self.change_locked(name, form, touch, work)
    }

    /// The same; the caller holds the stripe.
    pub(crate) fn change_locked(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        touch: Touch,
        work: impl FnOnce() -> (BTreeSet<u64>, Result<()>),
    ) -> Result<()> {
        self.bring(name, form, &Wanted::Blocks(touch.needed))?;
        let stored = self.stored_alike(name, &touch.may);
        self.journal.note(&Record::Changing {
            name: name.clone(),
            blocks: touch.may,
        });
        let (mut touched, done) = work();
        if done.is_err() {
            // Something of them may have changed. Of these the bucket has what counts, which is fetched again.
            touched.retain(|block| !stored.contains(block));
            let mut state = self.state.lock();
            let cached = state.cache.chunks.get_mut(name);
            if let Some(Kind::Grid { here, .. }) = cached.map(|cached| &mut cached.kind) {
                here.retain(|block| !stored.contains(block));
            }
            if touched.is_empty() {
                return done;
            }
        }
        {
            let mut state = self.state.lock();
            if !state.cache.chunks.contains_key(name) {
                state.cache.put(name, form, Kind::grid(), 0);
            }
            let change = state.cache.change();
            if let Some(cached) = state.cache.used(name) {
                cached.form = form.clone();
                if let Kind::Grid { here, dirty, .. } = &mut cached.kind {
                    here.extend(&touched);
                    dirty.extend(touched.iter().map(|block| (*block, change)));
                }
            }
            state.cache.measure(name, touch.end);
        }
        self.journal.note(&Record::Blocks {
            name: name.clone(),
            form: form.clone(),
            blocks: touched,
            dirty: true,
        });
        self.evict();
        done
    }

    /// Those of the blocks that the bucket has as they were last written.
    fn stored_alike(&self, name: &ChunkName, blocks: &BTreeSet<u64>) -> BTreeSet<u64> {
        let state = self.state.lock();
        let Some(Stored::Grid { blocks: stored, .. }) = state.index.chunks.get(name) else {
            return BTreeSet::new();
        };
        let dirty = match state.cache.chunks.get(name).map(|cached| &cached.kind) {
            Some(Kind::Grid { dirty, .. }) => Some(dirty),
            _ => None,
        };
        let alike = |block: &&u64| {
            stored.contains_key(*block) && !dirty.is_some_and(|dirty| dirty.contains_key(*block))
        };
        blocks.iter().filter(alike).copied().collect()
    }

    pub(crate) fn remove(&self, names: impl Iterator<Item = ChunkName>) -> Result<()> {
        let names: Vec<ChunkName> = names.collect();
        // A segment that names them again must not be under way.
        let _uploading = self.uploading.lock();
        for name in &names {
            let _stripe = self.lock(name);
            self.journal.note(&Record::Removed(name.clone()));
            let mut state = self.state.lock();
            state.cache.remove(name);
            // It is not there any more, although the bucket does not know that yet.
            if let Some(ahead) = self.ahead.lock().remove(name) {
                self.garbage.lock().push(ahead.key);
            }
            if let Some(stored) = state.index.remove(name) {
                let own = stored.own_objects();
                state.deleted.entry(name.clone()).or_default().extend(own);
            }
        }
        self.local.delete(&names)
    }
}
