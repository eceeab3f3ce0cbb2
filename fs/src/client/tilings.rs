//! The tilings of `aligned` objects, as far as this mount knows them, open objects and closed ones.
//!
//! A tiling of one version never changes, so what is known of it stays true after the last close: the next open brings
//! the version of the moment, and what happened in between is asked for. Of a tiling with many records the metadata
//! service sends *windows*: boxes of which all records are known. A request that lies in none fetches one more.
//!
//! What holds: all records of the tiling's version that lie in a known window are here. All of them together have at most
//! so many bytes as the mount was given; beyond that the tiling that was used least recently is forgotten, of an open
//! object too, and fetched anew when it is needed. One request may need more than that; then it is forgotten after it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use slabfs_mdserver::api::{Ino, Stored, TilingReply, WantedPart};
use slabfs_model::layout::Tiling;
use slabfs_model::layout::tiling::{Record, TilingError};
use slabfs_model::{Region, Version};

/// Windows of a tiling beyond which one begins with none: each read looks through them.
const MOST_WINDOWS: usize = 256;
/// Records that come along with a window; twice as many with each that goes on where another ended, so often. Who
/// reads here and there would wait for what it never reads.
const FIRST_WINDOW: u32 = 32;
const DOUBLINGS: u32 = 9;
/// What a record costs: itself, and its places in the order and in the tree.
const RECORD_BYTES: usize = size_of::<Record<Stored>>() + 96;

/// Of which cells a request needs the chunks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Need<'a> {
    All,
    Within(&'a Region),
}

/// What is known of a tiling's records.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    All,
    /// Of these boxes, the one that was fetched last at the end.
    Within(Vec<Region>),
}

/// The committed chunks of an `aligned` object, as far as this mount knows them.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) version: Option<Version>,
    pub(super) tiling: Tiling<Stored>,
    known: Known,
    /// Windows in a row that each went on where another ended.
    going_on: u32,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks {
            version: None,
            tiling: Tiling::new(0),
            known: Known::All,
            going_on: 0,
        }
    }
}

impl Chunks {
    /// Whether all records that a request needs are here, if the version is the right one.
    pub(super) fn has(&self, need: Need<'_>) -> bool {
        match (&self.known, need) {
            (Known::All, _) => true,
            (Known::Within(_), Need::All) => false,
            (Known::Within(windows), Need::Within(region)) => {
                region.is_empty()
                    || windows
                        .iter()
                        .rev()
                        .any(|window| window.rank() == region.rank() && window.contains(region))
            }
        }
    }

    /// Whether all records of the tiling are here.
    pub(super) fn has_all(&self) -> bool {
        self.known == Known::All
    }

    /// What to ask the metadata service for: the version that is known, and where; of other records at most `most`.
    pub(super) fn question(
        &self,
        least: Version,
        rank: usize,
        need: Need<'_>,
        most: u32,
    ) -> (Version, Option<WantedPart>) {
        let wanted = match need {
            Need::All => None,
            Need::Within(region) => Some(WantedPart {
                region: region.clone(),
                most: most.min(FIRST_WINDOW << self.going_on.min(DOUBLINGS)),
            }),
        };
        let known = match self.version {
            Some(version) if version < least && self.tiling.rank() == rank => version,
            // Of this version, or of none, more is to be known.
            _ => Version(0),
        };
        (known, wanted)
    }

    /// Takes over an answer to [`Chunks::question`].
    pub(super) fn answered(
        &mut self,
        known: Version,
        rank: usize,
        reply: TilingReply,
    ) -> Result<(), TilingError> {
        let version = reply.version();
        match reply {
            TilingReply::Part {
                region, records, ..
            } => self.put_window(version, rank, region, records)?,
            reply @ TilingReply::Whole { .. } => {
                reply.apply(&mut self.tiling)?;
                self.known = Known::All;
            }
            reply => {
                if known == Version(0) {
                    // Since nothing: so it is everything.
                    self.tiling = Tiling::new(rank);
                    self.known = Known::All;
                }
                reply.apply(&mut self.tiling)?;
            }
        }
        self.version = Some(version);
        Ok(())
    }

    fn put_window(
        &mut self,
        version: Version,
        rank: usize,
        region: Region,
        records: Vec<Record<Stored>>,
    ) -> Result<(), TilingError> {
        let windows = match &mut self.known {
            Known::Within(windows)
                if self.version == Some(version) && windows.len() < MOST_WINDOWS =>
            {
                for record in records {
                    if self.tiling.get(record.order).is_none() {
                        self.tiling.insert(record)?;
                    }
                }
                windows
            }
            known => {
                self.tiling = Tiling::bulk(rank, records)?;
                *known = Known::Within(Vec::new());
                let Known::Within(windows) = known else {
                    return Ok(());
                };
                windows
            }
        };
        let mut region = region;
        let before = windows.len();
        // What goes on where another one ends is one with it.
        while let Some(at) = windows.iter().position(|window| joins(window, &region)) {
            region = around(&windows.remove(at), &region);
        }
        self.going_on = match windows.len() < before {
            true => self.going_on.saturating_add(1),
            false => 0,
        };
        windows.push(region);
        Ok(())
    }

    /// The bytes it takes.
    pub(super) fn weight(&self) -> usize {
        self.tiling.len() * RECORD_BYTES
    }
}

/// Whether two boxes are one box together: they differ along one axis at most, and meet there.
fn joins(one: &Region, other: &Region) -> bool {
    if one.rank() != other.rank() {
        return false;
    }
    let mut differ = (0..one.rank())
        .filter(|&axis| (one.offset[axis], one.end(axis)) != (other.offset[axis], other.end(axis)));
    match (differ.next(), differ.next()) {
        (None, _) => true,
        (Some(axis), None) => {
            one.offset[axis] <= other.end(axis) && other.offset[axis] <= one.end(axis)
        }
        _ => one.contains(other) || other.contains(one),
    }
}

/// The smallest box that holds two boxes of one rank.
pub(super) fn around(one: &Region, other: &Region) -> Region {
    let mut both = one.clone();
    for axis in 0..one.rank() {
        let end = one.end(axis).max(other.end(axis));
        both.offset[axis] = one.offset[axis].min(other.offset[axis]);
        both.shape[axis] = end - both.offset[axis];
    }
    both
}

/// The tiling of one object, shared by whoever has the object open and by what is kept of closed ones.
#[derive(Debug, Default)]
pub(super) struct Tiled {
    chunks: RwLock<Chunks>,
    /// When it was used last, by the clock of [`Tilings`].
    used: AtomicU64,
    /// What it counts for there.
    weight: AtomicUsize,
}

impl Tiled {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Chunks> {
        self.chunks.read()
    }

    pub(super) fn try_read(&self) -> Option<RwLockReadGuard<'_, Chunks>> {
        self.chunks.try_read()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Chunks> {
        self.chunks.write()
    }

    /// What is known is not to be used any more.
    pub(super) fn outdate(&self) {
        self.chunks.write().version = None;
    }
}

/// The tilings that have records here.
#[derive(Debug)]
pub(super) struct Tilings {
    held: Mutex<Cached>,
    clock: AtomicU64,
    epoch: AtomicU64,
    limit: usize,
}

#[derive(Debug, Default)]
struct Cached {
    by_ino: HashMap<Ino, Arc<Tiled>>,
    total: usize,
}

impl Tilings {
    /// None yet; all together have about `limit` bytes at most.
    pub(super) fn new(limit: u64) -> Tilings {
        Tilings {
            held: Mutex::default(),
            clock: AtomicU64::new(1),
            epoch: AtomicU64::new(0),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
        }
    }

    /// The tiling of an object that is being opened: what is known of it, or nothing yet.
    pub(super) fn of(&self, ino: Ino) -> Arc<Tiled> {
        self.held
            .lock()
            .by_ino
            .get(&ino)
            .cloned()
            .unwrap_or_default()
    }

    /// Notes that a tiling is used; not under its lock.
    pub(super) fn touch(&self, tiled: &Tiled) {
        tiled
            .used
            .store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// A tiling has other records than before, and weighs this now. Forgets others where all have too many; under none of
    /// their locks.
    pub(super) fn weigh(&self, ino: Ino, tiled: &Arc<Tiled>, weight: usize) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        tiled.used.store(now, Ordering::Relaxed);
        let mut held = self.held.lock();
        let Cached { by_ino, total } = &mut *held;
        let known = by_ino
            .get(&ino)
            .is_some_and(|there| Arc::ptr_eq(there, tiled));
        if !known {
            if let Some(other) = by_ino.remove(&ino) {
                *total -= other.weight.swap(0, Ordering::Relaxed);
            }
            if weight == 0 {
                return;
            }
            by_ino.insert(ino, tiled.clone());
        }
        *total = *total + weight - tiled.weight.swap(weight, Ordering::Relaxed);
        while *total > self.limit {
            let oldest = by_ino
                .iter()
                .min_by_key(|(_, tiled)| tiled.used.load(Ordering::Relaxed))
                .map(|(&ino, _)| ino);
            let Some(gone) = oldest.and_then(|ino| by_ino.remove(&ino)) else {
                return;
            };
            *total -= gone.weight.swap(0, Ordering::Relaxed);
            // Who has the lock may wait for the metadata service, and weighs it again when that has answered.
            if let Some(mut chunks) = gone.chunks.try_write() {
                *chunks = Chunks::default();
            }
        }
    }

    /// Records that may come along with a window: a fourth of what is kept.
    pub(super) fn most_along(&self) -> u32 {
        u32::try_from(self.limit / RECORD_BYTES / 4).unwrap_or(u32::MAX)
    }

    /// In which epoch what is asked for now is; see [`Tilings::clear`].
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Forgets all of closed objects: the metadata service may not be the one it was. Open ones are renewed one by one; an
    /// answer that belongs to an earlier epoch does not count.
    pub(super) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.lock();
        held.total = 0;
        for (_, tiled) in held.by_ino.drain() {
            tiled.weight.store(0, Ordering::Relaxed);
        }
    }

    /// Tilings with records, and their bytes.
    pub(super) fn gauges(&self) -> (usize, usize) {
        let held = self.held.lock();
        (held.by_ino.len(), held.total)
    }
}

#[cfg(test)]
mod tests;
