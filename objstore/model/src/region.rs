//! A box in an array: offset and shape.
//!
//! Functions of two regions expect equal ranks. Ends saturate, so that a region from the wire cannot overflow;
//! [`Region::validate`] checks that it lies within limits.

use crate::{Coords, GeometryError, MAX_RANK};
use serde::{Deserialize, Serialize};

/// A box: `shape` cells (or elements) from `offset` on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// The first index on each axis.
    pub offset: Coords,
    /// The length of each axis; the box is empty if one is 0.
    pub shape: Coords,
}

impl Region {
    /// A box from its offset and shape, which must have the same rank.
    pub fn new(offset: &[u64], shape: &[u64]) -> Region {
        debug_assert_eq!(offset.len(), shape.len(), "ranks of offset and shape");
        Region {
            offset: Coords::from_slice(offset),
            shape: Coords::from_slice(shape),
        }
    }

    /// The box that covers an array of these dims.
    pub fn all(dims: &[u64]) -> Region {
        Region {
            offset: Coords::from_elem(0, dims.len()),
            shape: Coords::from_slice(dims),
        }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The number of cells, at most `u64::MAX`.
    pub fn volume(&self) -> u64 {
        volume(&self.shape)
    }

    /// Whether an axis has length 0.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// One past the last index on `axis`, at most `u64::MAX`.
    pub fn end(&self, axis: usize) -> u64 {
        self.offset[axis].saturating_add(self.shape[axis])
    }

    /// This region counted from the start of `base`, which contains it.
    pub fn within(&self, base: &Region) -> Region {
        let offsets = self.offset.iter().zip(&base.offset);
        Region {
            offset: offsets.map(|(offset, start)| offset - start).collect(),
            shape: self.shape.clone(),
        }
    }

    /// The intersection, or `None`.
    pub fn intersect(&self, other: &Region) -> Option<Region> {
        debug_assert_eq!(self.rank(), other.rank(), "ranks");
        let mut out = Region::default();
        for axis in 0..self.rank() {
            let from = self.offset[axis].max(other.offset[axis]);
            let to = self.end(axis).min(other.end(axis));
            if from >= to {
                return None;
            }
            out.offset.push(from);
            out.shape.push(to - from);
        }
        Some(out)
    }

    /// Whether they have a cell in common.
    pub fn overlaps(&self, other: &Region) -> bool {
        debug_assert_eq!(self.rank(), other.rank(), "ranks");
        (0..self.rank()).all(|axis| {
            self.offset[axis].max(other.offset[axis]) < self.end(axis).min(other.end(axis))
        })
    }

    /// Whether every cell of `other` lies in this one; an empty region lies in every one.
    pub fn contains(&self, other: &Region) -> bool {
        debug_assert_eq!(self.rank(), other.rank(), "ranks");
        other.is_empty()
            || (0..self.rank()).all(|axis| {
                self.offset[axis] <= other.offset[axis] && other.end(axis) <= self.end(axis)
            })
    }

    /// Whether this cell lies in it.
    pub fn contains_point(&self, point: &[u64]) -> bool {
        debug_assert_eq!(self.rank(), point.len(), "ranks");
        point
            .iter()
            .enumerate()
            .all(|(axis, &at)| self.offset[axis] <= at && at < self.end(axis))
    }

    /// Appends this region without `cut`: disjoint boxes, at most two an axis.
    ///
    /// The slowest axes are cut first, so that the rest consists of complete rows.
    pub fn subtract(&self, cut: &Region, out: &mut Vec<Region>) {
        if self.is_empty() {
            return;
        }
        let Some(cut) = self.intersect(cut) else {
            out.push(self.clone());
            return;
        };
        let mut rest = self.clone();
        for axis in 0..self.rank() {
            let (from, to) = (rest.offset[axis], rest.end(axis));
            let (cut_from, cut_to) = (cut.offset[axis], cut.end(axis));
            if from < cut_from {
                let mut below = rest.clone();
                below.shape[axis] = cut_from - from;
                out.push(below);
            }
            if cut_to < to {
                let mut above = rest.clone();
                above.offset[axis] = cut_to;
                above.shape[axis] = to - cut_to;
                out.push(above);
            }
            rest.offset[axis] = cut_from;
            rest.shape[axis] = cut_to - cut_from;
        }
    }

    /// The smallest box that holds both; an empty region adds nothing.
    pub fn union_bounds(&self, other: &Region) -> Region {
        debug_assert_eq!(self.rank(), other.rank(), "ranks");
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        let mut out = self.clone();
        for axis in 0..self.rank() {
            out.offset[axis] = self.offset[axis].min(other.offset[axis]);
            out.shape[axis] = self.end(axis).max(other.end(axis)) - out.offset[axis];
        }
        out
    }

    /// Checks that it has the rank of `limits` and ends within them on each axis.
    pub fn validate(&self, limits: &[u64]) -> Result<(), GeometryError> {
        if limits.len() > MAX_RANK {
            return Err(GeometryError::RankTooHigh { rank: limits.len() });
        }
        for rank in [self.offset.len(), self.shape.len()] {
            if rank != limits.len() {
                return Err(GeometryError::RankMismatch {
                    got: rank,
                    want: limits.len(),
                });
            }
        }
        for (axis, &limit) in limits.iter().enumerate() {
            let end = self.offset[axis].checked_add(self.shape[axis]);
            if end.is_none_or(|end| end > limit) {
                let end = end.unwrap_or(u64::MAX);
                return Err(GeometryError::Outside { axis, end, limit });
            }
        }
        Ok(())
    }
}

/// The product of a shape, at most `u64::MAX`; 0 if an axis is empty.
pub(crate) fn volume(shape: &[u64]) -> u64 {
    if shape.contains(&0) {
        return 0;
    }
    shape
        .iter()
        .fold(1u64, |product, &len| product.saturating_mul(len))
}

#[cfg(test)]
mod tests;
