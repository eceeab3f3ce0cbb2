//! The in-memory index of a store: all chunk names, in order, and where each chunk is stored.

use std::collections::BTreeMap;
use std::ops::Bound;

use slabfs_model::{ChunkId, Coords, ObjectId};

use super::segment::Place;
use crate::name::ChunkName;

/// Where a chunk is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// A record in a segment.
    Small(Place),
    /// A file of its own.
    File,
}

type GridKey = (ObjectId, u32, Coords);

/// All chunks; free ones in a map of their own, because their keys are much smaller.
#[derive(Debug, Default)]
pub(super) struct Index {
    free: BTreeMap<ChunkId, Entry>,
    grid: BTreeMap<GridKey, Entry>,
}

fn key(object: ObjectId, generation: u32, at: &Coords) -> GridKey {
    (object, generation, at.clone())
}

fn name_of(key: &GridKey) -> ChunkName {
    ChunkName::Grid {
        object: key.0,
        generation: key.1,
        at: key.2.clone(),
    }
}

impl Index {
    pub(super) fn get(&self, name: &ChunkName) -> Option<Entry> {
        match name {
            ChunkName::Free(id) => self.free.get(id).copied(),
            ChunkName::Grid {
                object,
                generation,
                at,
            } => self.grid.get(&key(*object, *generation, at)).copied(),
        }
    }

    /// Sets where a chunk is stored; returns where it was stored before.
    pub(super) fn set(&mut self, name: &ChunkName, entry: Entry) -> Option<Entry> {
        match name {
            ChunkName::Free(id) => self.free.insert(*id, entry),
            ChunkName::Grid {
                object,
                generation,
                at,
            } => self.grid.insert(key(*object, *generation, at), entry),
        }
    }

    pub(super) fn remove(&mut self, name: &ChunkName) -> Option<Entry> {
        match name {
            ChunkName::Free(id) => self.free.remove(id),
            ChunkName::Grid {
                object,
                generation,
                at,
            } => self.grid.remove(&key(*object, *generation, at)),
        }
    }

    /// The grid chunks of an object, of all generations below `below`, or of all.
    pub(super) fn grid_of(&self, object: ObjectId, below: Option<u32>) -> Vec<ChunkName> {
        let first = (object, 0, Coords::new());
        let keys = self.grid.range(first..).map(|(key, _)| key);
        keys.take_while(|key| key.0 == object && below.is_none_or(|below| key.1 < below))
            .map(name_of)
            .collect()
    }

    /// All grid chunks that have files.
    pub(super) fn grid_files(&self) -> Vec<ChunkName> {
        let files = self.grid.iter().filter(|(_, entry)| **entry == Entry::File);
        files.map(|(key, _)| name_of(key)).collect()
    }

    /// All small chunks, and where their records are.
    pub(super) fn small(&self) -> Vec<(ChunkName, Place)> {
        let free = self
            .free
            .iter()
            .map(|(id, entry)| (ChunkName::Free(*id), *entry));
        let grid = self.grid.iter().map(|(key, entry)| (name_of(key), *entry));
        let place = |(name, entry)| match entry {
            Entry::Small(place) => Some((name, place)),
            Entry::File => None,
        };
        free.chain(grid).filter_map(place).collect()
    }

    /// Up to `limit` chunks after `after`.
    pub(super) fn after(&self, after: Option<&ChunkName>, limit: usize) -> Vec<(ChunkName, Entry)> {
        let mut out = Vec::new();
        let free = match after {
            None => Some(Bound::Unbounded),
            Some(ChunkName::Free(id)) => Some(Bound::Excluded(*id)),
            Some(ChunkName::Grid { .. }) => None,
        };
        if let Some(from) = free {
            let found = self.free.range((from, Bound::Unbounded)).take(limit);
            out.extend(found.map(|(id, entry)| (ChunkName::Free(*id), *entry)));
        }
        let from = match after {
            Some(ChunkName::Grid {
                object,
                generation,
                at,
            }) => Bound::Excluded(key(*object, *generation, at)),
            _ => Bound::Unbounded,
        };
        let found = self
            .grid
            .range((from, Bound::Unbounded))
            .take(limit - out.len());
        out.extend(found.map(|(key, entry)| (name_of(key), *entry)));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(object: u64, generation: u32, at: u64) -> ChunkName {
        ChunkName::Grid {
            object: ObjectId(object),
            generation,
            at: [at].into_iter().collect(),
        }
    }

    #[test]
    fn pages_list_all_names_in_order() {
        let mut names: Vec<_> = (0..10).map(|id| ChunkName::Free(ChunkId(id))).collect();
        for object in 0..4 {
            names.extend([grid(object, 0, 0), grid(object, 0, 9), grid(object, 3, 1)]);
        }
        let mut index = Index::default();
        for name in names.iter().rev() {
            assert_eq!(index.set(name, Entry::File), None);
        }
        for page in 1..30 {
            let mut seen = Vec::new();
            loop {
                let more = index.after(seen.last(), page);
                if more.is_empty() {
                    break;
                }
                seen.extend(more.into_iter().map(|(name, _)| name));
            }
            assert_eq!(seen, names);
        }
        assert_eq!(
            index.grid_of(ObjectId(2), Some(3)),
            [grid(2, 0, 0), grid(2, 0, 9)]
        );
        assert_eq!(index.grid_of(ObjectId(2), None).len(), 3);
        assert_eq!(index.remove(&names[0]), Some(Entry::File));
        assert_eq!(index.get(&names[0]), None);
    }
}
