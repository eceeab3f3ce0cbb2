//! The cached tilings of `aligned` objects, open and closed ones.
//!
//! A tiling of one version never changes, so a cached one stays valid after the last close: the next open brings the
//! current version, and the changes in between are fetched. Of a tiling with many records the metadata service sends
//! *windows*: boxes of which all records are known. A request that lies in none fetches one more.
//!
//! Invariants: all records of the tiling's version that lie in a known window are cached. All tilings together use at
//! most the bytes that the mount was given; beyond that the least recently used tiling is dropped, even of an open
//! object, and fetched again when it is needed. One request may need more than that; then its tiling is dropped after
//! it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use slabfs_mdserver::api::{Ino, Stored, TilingReply, WantedPart};
use slabfs_model::layout::Tiling;
use slabfs_model::layout::tiling::{Record, TilingError};
use slabfs_model::{Region, Version};

/// Windows of a tiling at which the list starts again from none: each read scans them.
const MOST_WINDOWS: usize = 256;
/// Records that are sent along with a window. The number doubles with each window that adjoins the previous one, up
/// to `DOUBLINGS` times. Random reads would wait for records that they never use.
const FIRST_WINDOW: u32 = 32;
const DOUBLINGS: u32 = 9;
/// The cost of a record: itself, and its entries in the order and in the tree.
const RECORD_BYTES: usize = size_of::<Record<Stored>>() + 96;

/// The cells whose chunks a request needs.
#[derive(Debug, Clone, Copy)]
pub(in crate::client) enum Need<'a> {
    All,
    Within(&'a Region),
}

/// The part of a tiling's records that is cached.
#[derive(Debug, PartialEq, Eq)]
enum Known {
    All,
    /// The records of these boxes; the box fetched last is at the end.
    Within(Vec<Region>),
}

/// The committed chunks of an `aligned` object, as cached by this mount.
#[derive(Debug)]
pub(in crate::client) struct Chunks {
    pub(in crate::client) version: Option<Version>,
    pub(in crate::client) tiling: Tiling<Stored>,
    known: Known,
    /// Consecutive windows that each adjoined the previous one.
    sequential: u32,
}

impl Default for Chunks {
    fn default() -> Chunks {
        Chunks {
            version: None,
            tiling: Tiling::new(0),
            known: Known::All,
            sequential: 0,
        }
    }
}

impl Chunks {
    /// Whether all records that a request needs are cached, if the version is current.
    pub(in crate::client) fn has(&self, need: Need<'_>) -> bool {
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

    /// Whether all records of the tiling are cached.
    pub(in crate::client) fn has_all(&self) -> bool {
        self.known == Known::All
    }

    /// The request to the metadata service: the known version, and the wanted box, with at most `most` other records.
    pub(in crate::client) fn question(
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
                most: most.min(FIRST_WINDOW << self.sequential.min(DOUBLINGS)),
            }),
        };
        let known = match self.version {
            Some(version) if version < least && self.tiling.rank() == rank => version,
            // More records of this version are wanted, or there is none.
            _ => Version(0),
        };
        (known, wanted)
    }

    /// Adopts a reply to [`Chunks::question`].
    pub(in crate::client) fn answered(
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
            reply @ TilingReply::All { .. } => {
                reply.apply(&mut self.tiling)?;
                self.known = Known::All;
            }
            reply => {
                if known == Version(0) {
                    // Changes since version 0: so it is everything.
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
        // Adjoining windows are merged.
        while let Some(at) = windows.iter().position(|window| joins(window, &region)) {
            region = around(&windows.remove(at), &region);
        }
        self.sequential = match windows.len() < before {
            true => self.sequential.saturating_add(1),
            false => 0,
        };
        windows.push(region);
        Ok(())
    }

    /// Its memory in bytes.
    pub(in crate::client) fn weight(&self) -> usize {
        self.tiling.len() * RECORD_BYTES
    }
}

/// Whether the union of two boxes is a box: they differ along one axis at most, and meet there.
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

/// The bounding box of two boxes of one rank.
pub(in crate::client) fn around(one: &Region, other: &Region) -> Region {
    let mut both = one.clone();
    for axis in 0..one.rank() {
        let end = one.end(axis).max(other.end(axis));
        both.offset[axis] = one.offset[axis].min(other.offset[axis]);
        both.shape[axis] = end - both.offset[axis];
    }
    both
}

/// The tiling of one object, shared by its `Object` and the cache of tilings.
#[derive(Debug, Default)]
pub(in crate::client) struct Tiled {
    chunks: RwLock<Chunks>,
    /// When it was used last, by the clock of [`Tilings`].
    used: AtomicU64,
    /// Its weight there.
    weight: AtomicUsize,
}

impl Tiled {
    pub(in crate::client) fn read(&self) -> RwLockReadGuard<'_, Chunks> {
        self.chunks.read()
    }

    pub(in crate::client) fn try_read(&self) -> Option<RwLockReadGuard<'_, Chunks>> {
        self.chunks.try_read()
    }

    pub(in crate::client) fn write(&self) -> RwLockWriteGuard<'_, Chunks> {
        self.chunks.write()
    }

    /// Marks the cached tiling as outdated.
    pub(in crate::client) fn outdate(&self) {
        self.chunks.write().version = None;
    }
}

/// The cache of tilings that have records.
#[derive(Debug)]
pub(in crate::client) struct Tilings {
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
    /// An empty cache, for about `limit` bytes.
    pub(in crate::client) fn new(limit: u64) -> Tilings {
        Tilings {
            held: Mutex::default(),
            clock: AtomicU64::new(1),
            epoch: AtomicU64::new(0),
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
        }
    }

    /// The tiling of an object that is being opened: the cached one, or an empty one.
    pub(in crate::client) fn of(&self, ino: Ino) -> Arc<Tiled> {
        self.held
            .lock()
            .by_ino
            .get(&ino)
            .cloned()
            .unwrap_or_default()
    }

    /// Records that a tiling is used; not under its lock.
    pub(in crate::client) fn touch(&self, tiled: &Tiled) {
        tiled
            .used
            .store(self.clock.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Updates the weight of a tiling whose records have changed. Drops others when the total exceeds the limit; the
    /// caller holds none of their locks.
    pub(in crate::client) fn weigh(&self, ino: Ino, tiled: &Arc<Tiled>, weight: usize) {
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
            // The holder of the lock may be waiting for the metadata service, and weighs it again after the reply.
            if let Some(mut chunks) = gone.chunks.try_write() {
                *chunks = Chunks::default();
            }
        }
    }

    /// Records that may be sent along with a window: a fourth of the cache.
    pub(in crate::client) fn most_along(&self) -> u32 {
        u32::try_from(self.limit / RECORD_BYTES / 4).unwrap_or(u32::MAX)
    }

    /// The current epoch of requests; see [`Tilings::clear`].
    pub(in crate::client) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Drops all tilings of closed objects: the metadata service may be another one. Those of open objects are
    /// refreshed one by one; a reply to a request of an earlier epoch does not count.
    pub(in crate::client) fn clear(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.lock();
        held.total = 0;
        for (_, tiled) in held.by_ino.drain() {
            tiled.weight.store(0, Ordering::Relaxed);
        }
    }

    /// The number of tilings with records, and their bytes.
    pub(in crate::client) fn gauges(&self) -> (usize, usize) {
        let held = self.held.lock();
        (held.by_ino.len(), held.total)
    }
}

#[cfg(test)]
mod tests;
