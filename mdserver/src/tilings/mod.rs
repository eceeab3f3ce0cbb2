//! Tilings and everything else that changes what an object holds.
//!
//! A tiling is stored as one record per chunk, under object, generation and order. In memory it is built when needed
//! and evicted, least recently used first, when all tilings in memory have too many records. An operation that
//! changes an object's tiling, dims or declaration holds the lock of its [`Loaded`], does the geometry under that
//! lock alone, and then makes the change in one transaction.
//!
//! Invariants: `info.tiling` of the inode is the version of the records in the store, and of a [`Loaded`] whose lock
//! is not held and that has records. A record is in the store exactly if its order is in the tiling. A chunk id is in
//! at most one record of one object.

mod bounds;
mod clear;
mod closed;
mod commit;
mod declare;
mod purge;
mod read;
mod relocate;
mod reserve;
mod resize;
mod settle;
mod validate;
mod warm;

pub(crate) use bounds::unboxed;
pub(crate) use clear::clear;
pub(crate) use closed::{Closed, tidy};
pub(crate) use commit::commit;
pub(crate) use declare::{declare, spare_generation};
pub(crate) use purge::purge_some;
pub(crate) use read::{changes_since, tiling};
pub(crate) use relocate::relocate;
pub(crate) use reserve::reserve;
pub(crate) use resize::resize;
pub(crate) use settle::settle;
pub(crate) use warm::warm;

use parking_lot::Mutex;
use slabfs_model::Version;
use slabfs_model::layout::tiling::{Record, Tiling};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use crate::api::{Ino, MdError, Stored};
use crate::core::Core;
use crate::keys;
use crate::kv::pairs;
use crate::records::{Object, Tile, decode};

/// Commits remembered for readers that are slightly out of date.
const LOG: usize = 64;
/// Weight of a tiling in memory in addition to its records, in records.
const ENTRY: usize = 16;
/// Records read from the store at a time.
const PAGE: usize = 4096;

/// The tilings in memory.
#[derive(Debug)]
pub(crate) struct Tilings {
    slots: Mutex<Slots>,
    limit: usize,
    /// The object of which parts were read last because its tiling is not in memory.
    wanted: Mutex<Option<Ino>>,
}

#[derive(Debug, Default)]
struct Slots {
    by_ino: HashMap<Ino, Slot>,
    tick: u64,
    /// Sum of all weights.
    total: usize,
}

#[derive(Debug)]
struct Slot {
    loaded: Arc<Mutex<Loaded>>,
    used: u64,
    /// Its records when it was last unlocked, plus [`ENTRY`]; 0 if it was never unlocked.
    weight: usize,
}

/// One object's tiling, if it is in memory.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) generation: u32,
    pub(crate) version: Version,
    pub(crate) tiling: Option<Tiling<Stored>>,
    /// Parts of it at a version, if it was not read completely.
    found: Option<(Version, bounds::Found)>,
    /// The last commits, oldest first, without a gap.
    pub(crate) log: VecDeque<Step>,
}

/// The effect of one commit on a tiling.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    pub(crate) before: Version,
    pub(crate) added: Range<u64>,
    pub(crate) dropped: Vec<u64>,
}

impl Loaded {
    /// Removes and returns the tiling of the object, as it is in the store; reads it if it is not in memory. The
    /// caller holds this lock, has read `object` under it, and puts the tiling back with [`Loaded::put`] once the
    /// store has the changes. If the caller fails in between, nothing remains in memory that is not in the store.
    pub(crate) fn take(
        &mut self,
        core: &Core,
        ino: Ino,
        object: &Object,
    ) -> Result<Tiling<Stored>, MdError> {
        self.found = None;
        let info = &object.info;
        if self.generation == info.generation && self.version == info.tiling {
            if let Some(tiling) = self.tiling.take() {
                return Ok(tiling);
            }
        } else {
            self.forget();
        }
        self.generation = info.generation;
        self.version = info.tiling;
        let rank = info.cells()?.len();
        let records = records(core, ino, info.generation)?;
        Tiling::bulk(rank, records)
            .map_err(|error| MdError::Io(format!("tiling of object {ino}: {error}")))
    }

    /// Whether the tiling of the object, as it is in the store, is in memory.
    fn has(&self, object: &Object) -> bool {
        let info = &object.info;
        let is_current = self.generation == info.generation && self.version == info.tiling;
        is_current && self.tiling.is_some()
    }

    /// Puts the tiling back as it is in the store now.
    pub(crate) fn put(&mut self, tiling: Tiling<Stored>, version: Version) {
        self.tiling = Some(tiling);
        self.version = version;
    }

    /// Drops the records and the log of older versions.
    pub(crate) fn forget(&mut self) {
        self.tiling = None;
        self.found = None;
        self.log.clear();
    }

    /// Records a commit.
    pub(crate) fn note(&mut self, step: Step) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(step);
    }
}

/// All records of one generation of an object.
fn records(core: &Core, ino: Ino, generation: u32) -> Result<Vec<Record<Stored>>, MdError> {
    let mut records = Vec::new();
    for pair in pairs(&*core.kv, keys::tiles(ino, generation), PAGE) {
        let (key, value) = pair?;
        if let Some([_, _, order]) = keys::numbers(&key, [8, 4, 8]) {
            records.push(decode::<Tile>(&key, &value)?.record(order));
        }
    }
    Ok(records)
}

impl Tilings {
    /// No tilings yet; at most about `limit` records are cached.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: Mutex::default(),
            limit,
            wanted: Mutex::default(),
        }
    }

    /// Calls `work` under the lock of one object's tiling.
    pub(crate) fn with<T>(&self, ino: Ino, work: impl FnOnce(&mut Loaded) -> T) -> T {
        let loaded = self.take(ino);
        let mut guard = loaded.lock();
        let result = work(&mut guard);
        let found = guard.found.as_ref().map_or(0, |(_, it)| it.tiling.len());
        let weight = guard.tiling.as_ref().map_or(0, Tiling::len) + found;
        drop(guard);
        drop(loaded);
        self.give_back(ino, weight);
        result
    }

    fn take(&self, ino: Ino) -> Arc<Mutex<Loaded>> {
        let mut slots = self.slots.lock();
        slots.tick += 1;
        let tick = slots.tick;
        let slot = slots.by_ino.entry(ino).or_insert_with(|| Slot {
            loaded: Arc::default(),
            used: 0,
            weight: 0,
        });
        slot.used = tick;
        Arc::clone(&slot.loaded)
    }

    fn give_back(&self, ino: Ino, records: usize) {
        let mut slots = self.slots.lock();
        let Slots { by_ino, total, .. } = &mut *slots;
        // A thread that waits for the lock holds the Arc; it can be cloned only under this lock.
        let idle = |slot: &Slot| Arc::strong_count(&slot.loaded) == 1;
        let Some(slot) = by_ino.get_mut(&ino) else {
            return;
        };
        let weight = records + ENTRY;
        *total = *total + weight - slot.weight;
        slot.weight = weight;
        if records == 0 && idle(slot) {
            by_ino.remove(&ino);
            *total -= weight;
        }
        while *total > self.limit {
            let oldest = by_ino
                .iter()
                .filter(|(_, slot)| idle(slot))
                .min_by_key(|(_, slot)| slot.used);
            let Some(ino) = oldest.map(|(&ino, _)| ino) else {
                return;
            };
            if let Some(gone) = by_ino.remove(&ino) {
                *total -= gone.weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slabfs_model::ObjectId;

    fn with_records(tilings: &Tilings, ino: u64, records: u64) {
        tilings.with(ObjectId(ino), |loaded| {
            let slab = slabfs_model::Hyperslab::all(&[1]);
            let record = |order| Record {
                slab: slab.clone(),
                clip: None,
                order,
                value: Stored::Fill,
            };
            loaded.tiling = Tiling::bulk(1, (0..records).map(record).collect()).ok();
        });
    }

    #[test]
    fn the_least_recently_used_is_evicted() {
        let tilings = Tilings::new((ENTRY + 10) * 3);
        for ino in 1..=3 {
            with_records(&tilings, ino, 10);
        }
        tilings.with(ObjectId(1), |_| ());
        with_records(&tilings, 4, 10);
        let slots = tilings.slots.lock();
        let mut left: Vec<_> = slots.by_ino.keys().map(|ino| ino.0).collect();
        left.sort_unstable();
        assert_eq!(left, [1, 3, 4]);
        assert_eq!(slots.total, (ENTRY + 10) * 3);
    }

    #[test]
    fn without_records_nothing_is_cached() {
        let tilings = Tilings::new(100);
        with_records(&tilings, 1, 0);
        assert!(tilings.slots.lock().by_ino.is_empty());
        assert_eq!(tilings.slots.lock().total, 0);
    }
}
