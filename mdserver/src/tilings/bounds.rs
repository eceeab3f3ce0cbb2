//! Bounding boxes of the records of a tiling, on disk, so that a part of a large tiling can be read without the rest.
//!
//! Orders are grouped in blocks: 128 orders on the first level, 128 of those blocks on the second. Each block with
//! records has one box around all of them. A reader of a region examines the boxes of the second level, under those
//! that overlap the region the boxes of the first level, and under those the records. Programs mostly write adjacent
//! regions one after the other, so these are few.
//!
//! Invariant: if a generation has the mark, each record lies within the box of its block on each level. A box may be
//! larger than necessary, because records are removed and clipped; the box of a block is removed with its last
//! record. A generation gets the mark with the first commit after which it has had more than [`FEW`] records; without
//! it all records are read.

use std::collections::{BTreeMap, HashMap, HashSet};

use slabfs_model::Region;
use slabfs_model::layout::tiling::{Record, Tiling};

use crate::api::{Ino, MdError, Stored, WantedPart};
use crate::core::Core;
use crate::keys;
use crate::kv::MetaKv;
use crate::records::{Tile, decode, encode};
use crate::txn::Txn;

/// Bits of an order, or of a block number, that give the position in its block.
const BITS: u32 = 7;
/// A generation in which at most this many orders were assigned has no boxes: all its records are read at once.
pub(super) const FEW: u64 = 512;
/// Levels of boxes.
const LEVELS: u8 = 2;
/// Most blocks of records that one request reads for its cells; if it needs more, all records are read.
const BLOCKS: usize = 64;

/// Whether the records of a generation have boxes.
fn are_complete(core: &Core, ino: Ino, generation: u32) -> Result<bool, MdError> {
    Ok(core.kv.get(&keys::bounds(ino, generation, 0, 0))?.is_some())
}

/// The block of an order.
fn block(level: u8, order: u64) -> u64 {
    order >> (BITS * u32::from(level))
}

/// A box around the cells of a record that may be visible.
fn around(record: &Record<Stored>) -> Option<Region> {
    let bounds = record.slab.bounds()?;
    match &record.clip {
        Some(clip) => bounds.intersect(clip),
        None => Some(bounds),
    }
}

/// Changes of the boxes of a generation: new boxes, and removed ones.
#[derive(Default)]
pub(super) struct Changes {
    /// The mark is written with them.
    mark: bool,
    boxes: BTreeMap<(u8, u64), Option<Region>>,
}

impl Changes {
    /// Changes for a commit that `added` and `dropped` these records; `tiling` is the state after it, and
    /// `next_order` is above all orders.
    pub(super) fn of<'a>(
        core: &Core,
        (ino, generation, next_order): (Ino, u32, u64),
        tiling: &Tiling<Stored>,
        added: impl IntoIterator<Item = &'a Record<Stored>>,
        dropped: impl IntoIterator<Item = &'a Record<Stored>>,
    ) -> Result<Changes, MdError> {
        if next_order <= FEW {
            return Ok(Changes::default());
        }
        if !are_complete(core, ino, generation)? {
            return Changes::fresh(tiling);
        }
        let mut changes = Changes::default();
        for record in added {
            changes.add(record, &mut |level, block| {
                read(core, &keys::bounds(ino, generation, level, block))
            })?;
        }
        for record in dropped {
            for level in 1..=LEVELS {
                let at = block(level, record.order);
                let first = at << (BITS * u32::from(level));
                let next = tiling.first_from(first);
                if next.is_none_or(|order| block(level, order) != at) {
                    changes.boxes.insert((level, at), None);
                }
            }
        }
        Ok(changes)
    }

    /// Boxes for a generation that has these records and no boxes yet.
    fn fresh(tiling: &Tiling<Stored>) -> Result<Changes, MdError> {
        let mut changes = Changes {
            mark: true,
            boxes: BTreeMap::new(),
        };
        for record in tiling.iter() {
            changes.add(record, &mut |_, _| Ok(None))?;
        }
        Ok(changes)
    }

    /// Extends the boxes of its blocks by a record; `before` returns the previous boxes.
    fn add(
        &mut self,
        record: &Record<Stored>,
        before: &mut dyn FnMut(u8, u64) -> Result<Option<Region>, MdError>,
    ) -> Result<(), MdError> {
        let Some(region) = around(record) else {
            return Ok(());
        };
        for level in 1..=LEVELS {
            let block = block(level, record.order);
            let known = match self.boxes.get_mut(&(level, block)) {
                Some(known) => known,
                None => {
                    let before = before(level, block)?;
                    self.boxes.entry((level, block)).or_insert(before)
                }
            };
            *known = Some(match known.take() {
                Some(known) => known.union_bounds(&region),
                None => region.clone(),
            });
        }
        Ok(())
    }

    /// Adds the changes to a transaction.
    pub(super) fn write(self, txn: &mut Txn<'_>, ino: Ino, generation: u32) -> Result<(), MdError> {
        if self.mark {
            txn.batch
                .put(keys::bounds(ino, generation, 0, 0), encode(&())?);
        }
        for ((level, block), region) in self.boxes {
            let key = keys::bounds(ino, generation, level, block);
            match region {
                Some(region) => txn.batch.put(key, encode(&region)?),
                None => txn.batch.delete(key),
            };
        }
        Ok(())
    }
}

fn read(core: &Core, key: &[u8]) -> Result<Option<Region>, MdError> {
    let value = core.kv.get(key)?;
    value.map(|value| decode(key, &value)).transpose()
}

/// The level on which a record lies outside the box of its block, if the generation has boxes. For a check of a
/// store: unreadable rows are reported elsewhere.
pub(crate) fn unboxed(
    kv: &dyn MetaKv,
    (ino, generation): (Ino, u32),
    record: &Record<Stored>,
) -> Option<u8> {
    let row = |level, block| {
        let key = keys::bounds(ino, generation, level, block);
        let value = kv.get(&key).ok()??;
        Some((key, value))
    };
    row(0, 0)?;
    let region = around(record)?;
    (1..=LEVELS).find(|&level| {
        let found = row(level, block(level, record.order));
        let bounds = found.map(|(key, value)| decode::<Region>(&key, &value));
        !matches!(bounds, Some(Ok(bounds)) if bounds.contains(&region))
    })
}

/// Records of a generation that were found by their boxes, all of one version of the tiling.
#[derive(Debug)]
pub(super) struct Found {
    of: (Ino, u32),
    /// The boxes of the second level.
    upper: Vec<(u64, Region)>,
    /// The boxes of the first level under those second-level boxes that were examined.
    lower: HashMap<u64, Vec<(u64, Region)>>,
    read: HashSet<u64>,
    /// The records of all blocks that were read, and no others.
    pub(super) tiling: Tiling<Stored>,
}

impl Found {
    /// Starts without records; `None` if the generation has no boxes. `next_order` is above all orders, and `rank`
    /// the number of axes.
    pub(super) fn begin(
        core: &Core,
        of: (Ino, u32),
        (next_order, rank): (u64, usize),
    ) -> Result<Option<Found>, MdError> {
        if !are_complete(core, of.0, of.1)? {
            return Ok(None);
        }
        Ok(Some(Found {
            of,
            upper: boxes(core, of, LEVELS, 0..block(LEVELS, next_order) + 1)?,
            lower: HashMap::new(),
            read: HashSet::new(),
            tiling: Tiling::new(rank),
        }))
    }

    /// The object and generation.
    pub(super) fn of(&self) -> (Ino, u32) {
        self.of
    }

    /// Reads the records in a box; false if there are so many that reading all records is better.
    pub(super) fn has_read(&mut self, core: &Core, region: &Region) -> Result<bool, MdError> {
        let most = self.read.len() + BLOCKS;
        self.reach(core, region, most)
    }

    /// As [`Self::has_read`]; false if more than `most` blocks would have been read in total.
    fn reach(&mut self, core: &Core, region: &Region, most: usize) -> Result<bool, MdError> {
        for at in 0..self.upper.len() {
            let (upper, bounds) = &self.upper[at];
            if !bounds.overlaps(region) {
                continue;
            }
            let upper = *upper;
            if !self.lower.contains_key(&upper) {
                let blocks = upper << BITS..(upper + 1) << BITS;
                let lower = boxes(core, self.of, 1, blocks)?;
                self.lower.insert(upper, lower);
            }
            let meets = self.lower[&upper]
                .iter()
                .filter(|(block, bounds)| !self.read.contains(block) && bounds.overlaps(region));
            let wanted: Vec<u64> = meets.map(|(block, _)| *block).collect();
            if self.read.len() + wanted.len() > most {
                return Ok(false);
            }
            for block in wanted {
                self.read_block(core, block)?;
            }
        }
        Ok(true)
    }

    fn read_block(&mut self, core: &Core, block: u64) -> Result<(), MdError> {
        let (ino, generation) = self.of;
        let from = keys::tile(ino, generation, block << BITS);
        let to = keys::tile(ino, generation, (block + 1) << BITS);
        for (key, value) in core.kv.scan(&from, &to, usize::MAX)? {
            let Some([_, _, order]) = keys::numbers(&key, [8, 4, 8]) else {
                continue;
            };
            let record = decode::<Tile>(&key, &value)?.record(order);
            self.tiling
                .insert(record)
                .map_err(|error| MdError::Io(format!("tiling of object {ino}: {error}")))?;
        }
        self.read.insert(block);
        Ok(())
    }

    /// As [`Tiling::window`] of the complete tiling, except that it does not grow where that requires much reading.
    pub(super) fn window(
        &mut self,
        core: &Core,
        wanted: &WantedPart,
        dims: &[u64],
        most: usize,
    ) -> Result<Region, MdError> {
        let blocks = self.read.len() + (most >> BITS) + 1;
        let mut failed = None;
        let window = slabfs_model::layout::tiling::window(
            &wanted.region,
            dims,
            most,
            &mut |most, region| match self.reach(core, region, blocks) {
                Ok(reached) => reached && self.tiling.has_at_most(most, region),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            },
        );
        failed.map_or(Ok(window), Err)
    }
}

/// The boxes of these blocks of a level.
fn boxes(
    core: &Core,
    (ino, generation): (Ino, u32),
    level: u8,
    blocks: std::ops::Range<u64>,
) -> Result<Vec<(u64, Region)>, MdError> {
    let from = keys::bounds(ino, generation, level, blocks.start);
    let to = keys::bounds(ino, generation, level, blocks.end);
    let mut found = Vec::new();
    for (key, value) in core.kv.scan(&from, &to, usize::MAX)? {
        if let Some([_, _, _, block]) = keys::numbers(&key, [8, 4, 1, 8]) {
            found.push((block, decode(&key, &value)?));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use slabfs_model::{Coords, Version};

    use super::*;
    use crate::api::{ResizeHow, op};
    use crate::client::Md;
    use crate::service::Service;
    use crate::tests::support::{array, commit_of, info, ready, slab, stored};

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (self.0 >> 33) % end
        }

        fn region(&mut self, dims: &[u64; 2]) -> Region {
            let offset = [self.below(dims[0]), self.below(dims[1])];
            let shape = [0, 1].map(|axis| 1 + self.below((dims[axis] - offset[axis]).min(9)));
            Region::new(&offset, &shape)
        }
    }

    fn all_records(md: &Md, ino: Ino) -> Tiling<Stored> {
        let mut tiling = Tiling::new(0);
        let reply = md.tiling(ino, Version(0)).expect("a tiling");
        reply.apply(&mut tiling).expect("applied");
        tiling
    }

    /// What is found by boxes equals the complete tiling.
    fn compare(service: &Service, md: &Md, ino: Ino, random: &mut Random, dims: &[u64; 2]) {
        let core = service.core();
        let (all, generation) = (
            all_records(md, ino),
            info(md.call(op::GetAttr { ino }).expect("attributes")).generation,
        );
        let next = all.newest().map_or(0, |order| order + 1);
        let marked = are_complete(core, ino, generation).expect("read");
        assert!(marked || next <= FEW + 6, "{next}");
        for _ in 0..if marked { 5 } else { 0 } {
            let region = random.region(dims);
            let found = Found::begin(core, (ino, generation), (next, 2));
            let mut found = found.expect("read").expect("boxes");
            assert!(found.has_read(core, &region).expect("read"), "few blocks");
            assert_eq!(
                found.tiling.orders_within(&region),
                all.orders_within(&region)
            );
            let wanted = WantedPart { region, most: 0 };
            let window = found
                .window(core, &wanted, dims, random.below(60) as usize)
                .expect("read");
            assert!(window.contains(&wanted.region));
            assert_eq!(
                found.tiling.orders_within(&window),
                all.orders_within(&window)
            );
        }
        let rows = core
            .kv
            .scan(
                &keys::bounds(ino, generation, 1, 0),
                &keys::bounds(ino, generation, 9, 0),
                usize::MAX,
            )
            .expect("read");
        let rows: BTreeSet<_> = rows
            .iter()
            .filter_map(|(key, _)| keys::numbers(key, [8, 4, 1, 8]))
            .map(|[_, _, level, block]| (level as u8, block))
            .collect();
        let blocks = all.iter().filter(|record| around(record).is_some());
        let blocks: BTreeSet<_> = blocks
            .flat_map(|record| (1..=LEVELS).map(|level| (level, block(level, record.order))))
            .collect();
        assert!(!marked || blocks.is_subset(&rows), "{blocks:?} of {rows:?}");
        let shown = all.iter().map(|record| block(1, record.order));
        let shown: BTreeSet<_> = shown.collect();
        assert!(
            rows.iter()
                .filter(|(level, _)| *level == 1)
                .all(|(_, block)| shown.contains(block))
        );
    }

    #[test]
    fn records_found_by_boxes_are_complete() {
        for seed in 0..6 {
            let (service, md) = ready();
            let mut random = Random(seed);
            let mut dims = [64, 64];
            let ino = array(&md, "a", &dims);
            for step in 0..500 {
                let count = 1 + random.below(6);
                let lease = md
                    .call(op::LeaseChunks {
                        count: count as u32,
                    })
                    .expect("chunks");
                let mut commit = commit_of(&md, ino);
                commit.records = (0..count)
                    .map(|at| {
                        let region = random.region(&dims);
                        (slab(&region.offset, &region.shape), stored(&lease, at))
                    })
                    .collect();
                md.call(commit).expect("committed");
                match random.below(60) {
                    0 => {
                        dims = [20 + random.below(45), 20 + random.below(45)];
                        md.resize(ino, Coords::from_slice(&dims), ResizeHow::SetDims)
                            .expect("resized");
                    }
                    1 if step > 300 => drop(md.call(op::Clear { ino }).expect("cleared")),
                    _ => {}
                }
                if step % 25 == 24 && !all_records(&md, ino).is_empty() {
                    compare(&service, &md, ino, &mut random, &dims);
                }
            }
        }
    }
}
