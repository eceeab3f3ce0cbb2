//! What of the chunks is in the cache, what of it is not in the bucket yet, and what was used last. Pure.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use slabfs_objstore::{ChunkForm, ChunkName};

use crate::segment::BLOCK;

/// A chunk in the cache.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) form: ChunkForm,
    pub(crate) kind: Kind,
    /// Bytes it takes, about.
    pub(crate) bytes: u64,
    /// Of a grid chunk: the end of what is known of it.
    end: u64,
    used: u64,
}

/// The number of a change. What was uploaded is clean if nothing has changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change(u64);

impl std::fmt::LowerHex for Change {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::LowerHex::fmt(&self.0, formatter)
    }
}

/// See [`Cached`].
#[derive(Debug)]
pub(crate) enum Kind {
    /// Complete, or a stream that is not sealed yet.
    Free { sealed: bool, dirty: Option<Change> },
    /// The blocks that are here, and the last change of those that the bucket does not have like that.
    Grid {
        here: BTreeSet<u64>,
        dirty: BTreeMap<u64, Change>,
        /// Those of the dirty ones that are on the local disk, where a sync waits for no more than that.
        synced: BTreeSet<u64>,
    },
}

impl Kind {
    /// A grid chunk of which nothing is here.
    pub(crate) fn grid() -> Kind {
        Kind::Grid {
            here: BTreeSet::new(),
            dirty: BTreeMap::new(),
            synced: BTreeSet::new(),
        }
    }
}

impl Cached {
    pub(crate) fn is_dirty(&self) -> bool {
        match &self.kind {
            Kind::Free { dirty, .. } => dirty.is_some(),
            Kind::Grid { dirty, .. } => !dirty.is_empty(),
        }
    }
}

/// The chunks in the cache.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    pub(crate) chunks: HashMap<ChunkName, Cached>,
    by_use: BTreeMap<u64, ChunkName>,
    clock: u64,
    pub(crate) bytes: u64,
}

impl Cache {
    /// The number of a change that was just made.
    pub(crate) fn change(&mut self) -> Change {
        self.clock += 1;
        Change(self.clock)
    }

    /// The chunk, marked as used now.
    pub(crate) fn used(&mut self, name: &ChunkName) -> Option<&mut Cached> {
        let cached = self.chunks.get_mut(name)?;
        self.by_use.remove(&cached.used);
        self.clock += 1;
        cached.used = self.clock;
        self.by_use.insert(self.clock, name.clone());
        Some(cached)
    }

    /// Puts a chunk in, or changes what is known of it.
    pub(crate) fn put(&mut self, name: &ChunkName, form: &ChunkForm, kind: Kind, bytes: u64) {
        self.remove(name);
        self.clock += 1;
        self.by_use.insert(self.clock, name.clone());
        self.bytes += bytes;
        let cached = Cached {
            form: form.clone(),
            kind,
            bytes,
            end: 0,
            used: self.clock,
        };
        self.chunks.insert(name.clone(), cached);
    }

    /// Notes that a grid chunk has bytes up to `end`, and counts those that are here: blocks, of which the last one may be short.
    pub(crate) fn measure(&mut self, name: &ChunkName, end: u64) {
        let Some(cached) = self.chunks.get_mut(name) else {
            return;
        };
        cached.end = cached.end.max(end);
        let Kind::Grid { here, .. } = &cached.kind else {
            return;
        };
        let last = here.last().map_or(0, |last| {
            cached.end.saturating_sub(last * BLOCK).clamp(1, BLOCK)
        });
        let bytes = (here.len() as u64).saturating_sub(1) * BLOCK + last;
        self.bytes = self.bytes - cached.bytes + bytes;
        cached.bytes = bytes;
    }

    /// Adds to the bytes of a chunk.
    pub(crate) fn grow(&mut self, name: &ChunkName, bytes: u64) {
        if let Some(cached) = self.chunks.get_mut(name) {
            cached.bytes += bytes;
            self.bytes += bytes;
        }
    }

    pub(crate) fn remove(&mut self, name: &ChunkName) -> Option<Cached> {
        let cached = self.chunks.remove(name)?;
        self.by_use.remove(&cached.used);
        self.bytes -= cached.bytes;
        Some(cached)
    }

    /// The chunks that were not used for the longest time, of those that the bucket has completely.
    pub(crate) fn oldest_clean(&self, most: usize) -> Vec<ChunkName> {
        let names = self.by_use.values();
        let clean = names.filter(|name| {
            let cached = self.chunks.get(*name);
            cached.is_some_and(|cached| {
                !cached.is_dirty() && !matches!(cached.kind, Kind::Free { sealed: false, .. })
            })
        });
        clean.take(most).cloned().collect()
    }

    /// The chunks that the bucket does not have completely.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = &ChunkName> {
        let dirty = self.chunks.iter().filter(|(_, cached)| cached.is_dirty());
        dirty.map(|(name, _)| name)
    }
}
