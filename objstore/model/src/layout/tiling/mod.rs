//! The `aligned` layout: one record for each chunk, any box or lattice, newest wins.
//!
//! A record has the cells that were written (`slab`), the box that later shrinks left visible (`clip`), and its age
//! (`order`). The visible pieces of a chunk are not stored: [`Tiling::plan`] derives them for the selected part of
//! the object, so n columns overwritten by n rows are 2n records and not n² pieces.
//!
//! Invariants: an order names one record; the R-tree holds the visible bounds of each record that has a visible cell,
//! under the number of its slot.
//!
//! Deliberately elsewhere: the location of a chunk. The metadata service and the client keep it in `T`, which the
//! geometry ignores.

mod crowd;
mod holes;
mod image;
mod overlay;
mod plan;
mod shadow;
mod shows;
mod window;

pub use shadow::{SHADOW_FRAGMENTS, SHADOW_STEPS};
pub use shows::SHOWS_STEPS;
pub use window::window;

use super::flat::{self, Boxes, Flat};
use super::rtree::RTree;
use crate::{Coords, GeometryError, Hyperslab, MAX_RANK, Region};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use thiserror::Error;

/// One chunk in a tiling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record<T> {
    /// The cells that were written; the chunk stores them packed.
    pub slab: Hyperslab,
    /// The box that remains after shrinks; `None` means all.
    pub clip: Option<Region>,
    /// The age: where records overlap, the greatest order is visible.
    pub order: u64,
    /// The value that the layer above attaches.
    pub value: T,
}

/// More parts of chunks are visible in a selection than the caller's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more parts of chunks are visible than the limit allows")]
pub struct TooMany;

/// A part of one chunk that a selection needs; both sides have the same packed shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a, T> {
    /// The record of the chunk.
    pub record: &'a Record<T>,
    /// The destination of the cells: packed coordinates of the selection.
    pub want: Hyperslab,
    /// The source of the cells: coordinates in the chunk, which are packed coordinates of its slab.
    pub chunk: Hyperslab,
    /// No other solid part of the plan has its cells. Parts of boxes are solid, and parts of lattices that are in
    /// step with the selection.
    pub solid: bool,
}

/// Why a record cannot go into a tiling.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TilingError {
    /// Its slab or its clip has another rank, is not a hyperslab or exceeds 64 bits.
    #[error("record {order} of the tiling: {source}")]
    Geometry {
        /// The order of the record.
        order: u64,
        /// What is wrong with it.
        source: GeometryError,
    },
    /// A record of this order exists already.
    #[error("the tiling has a record {order} already; each record needs an order of its own")]
    OrderTaken {
        /// The order that was given twice.
        order: u64,
    },
}

/// All records of one object, indexed by position and by order.
#[derive(Debug, Clone)]
pub struct Tiling<T> {
    rank: usize,
    slots: Vec<Option<Record<T>>>,
    free: Vec<u32>,
    orders: BTreeMap<u64, u32>,
    tree: RTree,
}

impl<T> Tiling<T> {
    /// An empty tiling for an object with `rank` axes of cells.
    pub fn new(rank: usize) -> Tiling<T> {
        Tiling {
            rank,
            slots: Vec::new(),
            free: Vec::new(),
            orders: BTreeMap::new(),
            tree: RTree::new(rank),
        }
    }

    /// A tiling of all these records at once, in O(n log n); faster to build and to query than one that was filled
    /// record by record. Fails as [`Tiling::insert`] does.
    pub fn bulk(rank: usize, records: Vec<Record<T>>) -> Result<Tiling<T>, TilingError> {
        let mut orders = Vec::with_capacity(records.len());
        for (slot, record) in records.iter().enumerate() {
            check(rank, record)?;
            orders.push((record.order, slot as u32));
        }
        orders.sort_unstable();
        if let Some(twice) = orders.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(TilingError::OrderTaken { order: twice[0].0 });
        }
        let slots: Vec<_> = records.into_iter().map(Some).collect();
        let tree = tree_of(rank, &slots);
        Ok(Tiling {
            rank,
            slots,
            free: Vec::new(),
            orders: orders.into_iter().collect(),
            tree,
        })
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.orders.is_empty()
    }

    /// All records, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record<T>> {
        self.orders
            .values()
            .filter_map(|&slot| self.slots[slot as usize].as_ref())
    }

    /// The record of this order.
    pub fn get(&self, order: u64) -> Option<&Record<T>> {
        self.orders
            .get(&order)
            .and_then(|&slot| self.slots[slot as usize].as_ref())
    }

    /// The greatest order in the tiling.
    pub fn newest(&self) -> Option<u64> {
        self.orders.last_key_value().map(|(&order, _)| order)
    }

    /// Adds a record, in O(log n). Older records that it hides stay; see [`Tiling::shadowed_by`].
    pub fn insert(&mut self, record: Record<T>) -> Result<(), TilingError> {
        check(self.rank, &record)?;
        if self.orders.contains_key(&record.order) {
            return Err(TilingError::OrderTaken {
                order: record.order,
            });
        }
        let bounds = visible_bounds(&record);
        let slot = self.put(record);
        if let Some(bounds) = bounds {
            self.tree.insert(&bounds, slot);
        }
        Ok(())
    }

    /// Removes the record of this order, in O(log n).
    pub fn remove(&mut self, order: u64) -> Option<Record<T>> {
        let (slot, record) = self.take(order)?;
        if let Some(bounds) = visible_bounds(&record) {
            let found = self.tree.remove(&bounds, slot);
            debug_assert!(found, "record {order} was not in the tree");
        }
        Some(record)
    }

    /// Shrinks the object to `dims` (cells): removes and returns the records of which nothing is left, and returns
    /// the orders of those that were cut, both oldest first. An axis that `dims` does not name is not cut. O(log n)
    /// for each record that reaches beyond.
    ///
    /// Cut cells stay cut: if the object grows again, the fill is visible there.
    pub fn clip_to(&mut self, dims: &[u64]) -> (Vec<Record<T>>, Vec<u64>) {
        let end = |axis: usize| dims.get(axis).copied().unwrap_or(u64::MAX);
        let mut inside = Flat::from_elem(0, self.rank);
        inside.extend((0..self.rank).map(end));
        let mut beyond = Vec::new();
        self.tree.not_inside(&inside, &mut |slot| {
            beyond.extend(self.slot(slot).map(|record| record.order));
        });
        beyond.sort_unstable();

        // Rebuilding the tree costs about a tenth of changing it for each record.
        let rebuild = beyond.len() > self.len() / 8;
        let (mut removed, mut clipped) = (Vec::new(), Vec::new());
        for order in beyond {
            let Some((slot, mut record)) = self.take(order) else {
                continue;
            };
            if !rebuild && let Some(bounds) = visible_bounds(&record) {
                self.tree.remove(&bounds, slot);
            }
            let clip = record
                .clip
                .as_ref()
                .map_or_else(|| record.slab.bounds(), |clip| Some(clip.clone()));
            let left = clip.and_then(|clip| clip.intersect(&flat::region(&inside)));
            let Some(left) = left else {
                removed.push(record);
                continue;
            };
            let before = record.clip.replace(left);
            let Some(bounds) = visible_bounds(&record) else {
                removed.push(Record {
                    clip: before,
                    ..record
                });
                continue;
            };
            let slot = self.put(record);
            clipped.push(order);
            if !rebuild {
                self.tree.insert(&bounds, slot);
            }
        }
        if rebuild {
            self.tree = tree_of(self.rank, &self.slots);
        }
        (removed, clipped)
    }

    /// Stores a record in a slot and maps its order to it. The tree is not updated.
    fn put(&mut self, record: Record<T>) -> u32 {
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        self.orders.insert(record.order, slot);
        match self.slots.get_mut(slot as usize) {
            Some(place) => *place = Some(record),
            None => self.slots.push(Some(record)),
        }
        slot
    }

    /// Removes a record and its order. The tree is not updated.
    fn take(&mut self, order: u64) -> Option<(u32, Record<T>)> {
        let slot = self.orders.remove(&order)?;
        let record = self.slots[slot as usize].take()?;
        self.free.push(slot);
        Some((slot, record))
    }

    fn slot(&self, slot: u32) -> Option<&Record<T>> {
        self.slots[slot as usize].as_ref()
    }
}

/// The tree of the visible bounds of the records in these slots.
fn tree_of<T>(rank: usize, slots: &[Option<Record<T>>]) -> RTree {
    let mut boxes = Boxes::with_capacity(rank, slots.len());
    let mut ids = Vec::with_capacity(slots.len());
    for (slot, record) in slots.iter().enumerate() {
        if let Some(bounds) = record.as_ref().and_then(visible_bounds) {
            boxes.push(&bounds);
            ids.push(slot as u32);
        }
    }
    RTree::bulk(boxes, ids)
}

fn check<T>(rank: usize, record: &Record<T>) -> Result<(), TilingError> {
    if rank > MAX_RANK {
        let source = GeometryError::RankTooHigh { rank };
        return Err(TilingError::Geometry {
            order: record.order,
            source,
        });
    }
    let limits = Coords::from_elem(u64::MAX, rank);
    let clip = record
        .clip
        .as_ref()
        .map_or(Ok(()), |clip| clip.validate(&limits));
    (record.slab.validate(&limits).and(clip)).map_err(|source| TilingError::Geometry {
        order: record.order,
        source,
    })
}

/// The smallest box around the visible cells of a record; `None` if there are none.
fn visible_bounds<T>(record: &Record<T>) -> Option<Flat> {
    let mut bounds = flat::flat(&record.slab.bounds()?);
    let Some(clip) = &record.clip else {
        return Some(bounds);
    };
    if !flat::clip(&mut bounds, &flat::flat(clip)) {
        return None;
    }
    let rank = record.slab.rank();
    for (axis, slab) in record.slab.axes.iter().enumerate() {
        let indices = slab.index_range(bounds[axis], bounds[rank + axis]);
        if indices.is_empty() {
            return None;
        }
        bounds[axis] = slab.cell(indices.start);
        bounds[rank + axis] = slab.cell(indices.end - 1) + 1;
    }
    Some(bounds)
}

#[cfg(test)]
mod tests;
