//! Regular selections: on each axis, blocks of equal length at equal distances (HDF5's hyperslabs).
//!
//! The selected cells, counted in row-major order, form the *packed* array of shape
//! [`Hyperslab::packed_shape`]; on each axis the map between cells and packed indices is monotone.
//! A box is the hyperslab with one block an axis; one with more on some axis is a *lattice*.
//!
//! [`Hyperslab::parts`] cuts a hyperslab by a box of packed indices, [`intersect`] matches two.
//! Both work axis by axis, and the results are the products of the axes' pieces.

mod axis;
mod cut;
mod matching;
mod product;

pub use axis::Axis;
pub use cut::Cut;
pub(crate) use cut::cut_axis;
pub(crate) use matching::gcd;
pub use matching::intersect;
pub(crate) use product::{Pieces, for_each_choice};

use crate::{Coords, GeometryError, MAX_RANK, Region};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;

/// A selection of cells: the product of its axes. The stride is at least the block if there are several blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hyperslab {
    /// One for each axis, slowest first.
    pub axes: SmallVec<[Axis; 4]>,
}

impl Hyperslab {
    /// The cells of a box.
    pub fn from_region(region: &Region) -> Hyperslab {
        let axes = region.offset.iter().zip(&region.shape);
        Hyperslab {
            axes: axes.map(|(&start, &len)| Axis::span(start, len)).collect(),
        }
    }

    /// All cells of an array of these dims.
    pub fn all(dims: &[u64]) -> Hyperslab {
        Hyperslab {
            axes: dims.iter().map(|&len| Axis::span(0, len)).collect(),
        }
    }

    /// The box, if the cells form one.
    pub fn as_region(&self) -> Option<Region> {
        let mut region = Region::default();
        for axis in &self.axes {
            let (start, len) = axis.as_span()?;
            region.offset.push(start);
            region.shape.push(len);
        }
        Some(region)
    }

    /// Whether the cells form a box.
    pub fn is_box(&self) -> bool {
        self.axes.iter().all(|axis| axis.as_span().is_some())
    }

    /// The same cells in normal form: equal selections compare equal.
    pub fn normal(&self) -> Hyperslab {
        Hyperslab {
            axes: self.axes.iter().map(|axis| axis.normal()).collect(),
        }
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.axes.len()
    }

    /// The shape of the packed array.
    pub fn packed_shape(&self) -> Coords {
        self.axes.iter().map(Axis::len).collect()
    }

    /// The number of selected cells, at most `u64::MAX`.
    pub fn volume(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        self.axes
            .iter()
            .fold(1u64, |product, axis| product.saturating_mul(axis.len()))
    }

    /// Whether nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.axes.iter().any(Axis::is_empty)
    }

    /// The smallest box around the cells; `None` if none is selected.
    pub fn bounds(&self) -> Option<Region> {
        if self.is_empty() {
            return None;
        }
        Some(Region {
            offset: self.axes.iter().map(|axis| axis.start).collect(),
            shape: self
                .axes
                .iter()
                .map(|axis| axis.end() - axis.start)
                .collect(),
        })
    }

    /// The packed indices on `axis` of the cells that lie in `lo..hi`.
    pub fn index_range(&self, axis: usize, lo: u64, hi: u64) -> Range<u64> {
        self.axes[axis].index_range(lo, hi)
    }

    /// Checks that it is a hyperslab, has the rank of `limits` and ends within them on each axis.
    ///
    /// Hyperslabs from the wire or a disk are validated here before use.
    pub fn validate(&self, limits: &[u64]) -> Result<(), GeometryError> {
        if limits.len() > MAX_RANK {
            return Err(GeometryError::RankTooHigh { rank: limits.len() });
        }
        if self.rank() != limits.len() {
            return Err(GeometryError::RankMismatch {
                got: self.rank(),
                want: limits.len(),
            });
        }
        for (at, (axis, &limit)) in self.axes.iter().zip(limits).enumerate() {
            let Axis {
                stride,
                count,
                block,
                ..
            } = *axis;
            if count > 1 && (block == 0 || stride < block) {
                return Err(GeometryError::BadPattern {
                    axis: at,
                    stride,
                    block,
                });
            }
            let end = axis.checked_end();
            if end.is_none_or(|end| end > limit) {
                let end = end.unwrap_or(u64::MAX);
                return Err(GeometryError::Outside {
                    axis: at,
                    end,
                    limit,
                });
            }
        }
        Ok(())
    }

    /// Converts elements of `elem` bytes to cells: the last axis times `elem`; a scalar becomes one axis.
    ///
    /// Fails if the last axis would not fit a u64, which cannot happen for a selection of a valid space.
    pub fn to_cells(&self, elem: u64) -> Result<Hyperslab, GeometryError> {
        let mut cells = self.normal();
        let rank = cells.rank();
        let Some(last) = cells.axes.last_mut() else {
            return Ok(Hyperslab {
                axes: SmallVec::from_slice(&[Axis::span(0, elem)]),
            });
        };
        let outside = GeometryError::Outside {
            axis: rank - 1,
            end: u64::MAX,
            limit: crate::MAX_BYTES,
        };
        let scaled = |value: u64| value.checked_mul(elem).ok_or_else(|| outside.clone());
        let axis = Axis {
            start: scaled(last.start)?,
            stride: scaled(last.stride)?,
            count: last.count,
            block: scaled(last.block)?,
        };
        axis.checked_end().ok_or_else(|| outside.clone())?;
        *last = axis.normal();
        Ok(cells)
    }
}

impl From<&Region> for Hyperslab {
    fn from(region: &Region) -> Hyperslab {
        Hyperslab::from_region(region)
    }
}

#[cfg(test)]
mod tests;
