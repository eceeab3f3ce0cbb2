//! The extent of an object: dims and element size, and the cells and bytes they make.
//!
//! Arithmetic is checked here once, so that offsets inside a valid space can be added and multiplied without further
//! checks: every cell index and every byte offset is below 2^63.

use crate::{Coords, format_dims};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The most axes an object may have.
pub const MAX_RANK: usize = 32;

/// The most bytes an object may have: file offsets are signed.
pub const MAX_BYTES: u64 = i64::MAX as u64;

/// The errors of a space, a region or a hyperslab.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GeometryError {
    /// More than [`MAX_RANK`] axes.
    #[error("{rank} axes are too many: an object has at most {MAX_RANK}")]
    RankTooHigh {
        /// The axes that were given.
        rank: usize,
    },
    /// Two arguments that belong together have different numbers of axes.
    #[error("{got} axes were given where {want} are needed")]
    RankMismatch {
        /// The axes that were given.
        got: usize,
        /// The axes that are needed.
        want: usize,
    },
    /// An element of zero bytes.
    #[error("an element must have at least one byte")]
    NoElement,
    /// More than [`MAX_BYTES`].
    #[error(
        "{dims} elements of {} exceed the limit of an array, 2^63-1 bytes (8 EiB); use smaller dims", if *elem == 1 { "1 byte".to_owned() } else { format!("{elem} bytes") }
    )]
    TooLarge {
        /// The dims, as text.
        dims: String,
        /// Bytes an element.
        elem: u64,
    },
    /// A part of a region lies beyond the limits it was checked against.
    #[error("axis {axis} would reach to {end}, beyond its limit {limit}")]
    Outside {
        /// The axis, counted from 0.
        axis: usize,
        /// One past the last index requested (2^64-1 if it is larger still).
        end: u64,
        /// The length of the axis.
        limit: u64,
    },
    /// A stride below the block, or another pattern that is not a hyperslab.
    #[error(
        "axis {axis} has stride {stride} with blocks of {block}: the stride must be at least the block, and the block at least 1"
    )]
    BadPattern {
        /// The axis, counted from 0.
        axis: usize,
        /// The stride that was given.
        stride: u64,
        /// The block that was given.
        block: u64,
    },
}

/// The extent of an object: its dims in elements, and the bytes of an element.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Space {
    /// Elements along each axis, slowest first; no axes for a scalar.
    pub dims: Coords,
    /// Bytes an element.
    pub elem: u64,
}

impl Space {
    /// A space of these dims and this element size; [`Space::bytes`] checks whether it is valid.
    pub fn new(dims: &[u64], elem: u64) -> Space {
        Space {
            dims: Coords::from_slice(dims),
            elem,
        }
    }

    /// The dims with the last axis counted in bytes; `[elem]` for a scalar.
    ///
    /// Fails if the object would exceed [`MAX_RANK`] or [`MAX_BYTES`].
    pub fn cells(&self) -> Result<Coords, GeometryError> {
        self.bytes()?;
        let mut cells = self.dims.clone();
        match cells.last_mut() {
            // `bytes` succeeded: no axis times the element size overflows.
            Some(last) => *last *= self.elem,
            None => cells.push(self.elem),
        }
        Ok(cells)
    }

    /// The bytes of the entire object in canonical order; 0 if an axis has length 0.
    ///
    /// Fails if the object would exceed [`MAX_RANK`] or [`MAX_BYTES`], or would do so with every empty axis one
    /// element long.
    pub fn bytes(&self) -> Result<u64, GeometryError> {
        if self.dims.len() > MAX_RANK {
            return Err(GeometryError::RankTooHigh {
                rank: self.dims.len(),
            });
        }
        if self.elem == 0 {
            return Err(GeometryError::NoElement);
        }
        let too_large = || GeometryError::TooLarge {
            dims: format_dims(&self.dims),
            elem: self.elem,
        };
        let mut total = Some(self.elem);
        for &dim in &self.dims {
            if dim
                .checked_mul(self.elem)
                .is_none_or(|bytes| bytes > MAX_BYTES)
            {
                return Err(too_large());
            }
            // An empty axis may grow: the other axes must make a valid size as well.
            total = total.and_then(|t| t.checked_mul(dim.max(1)));
        }
        let total = total.filter(|&t| t <= MAX_BYTES).ok_or_else(too_large)?;
        Ok(if self.dims.contains(&0) { 0 } else { total })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_count_the_last_axis_in_bytes() {
        assert_eq!(
            Space::new(&[16, 16], 4).cells().unwrap().as_slice(),
            &[16, 64]
        );
        assert_eq!(Space::new(&[], 8).cells().unwrap().as_slice(), &[8]);
        assert_eq!(Space::new(&[3, 0], 8).cells().unwrap().as_slice(), &[3, 0]);
        assert_eq!(Space::new(&[], 8).bytes().unwrap(), 8);
    }

    #[test]
    fn limits_are_errors() {
        assert_eq!(Space::new(&[MAX_BYTES], 1).bytes().unwrap(), MAX_BYTES);
        for dims in [
            &[u64::MAX][..],
            &[MAX_BYTES + 1],
            &[1 << 40, 1 << 40],
            &[1 << 62, 2],
        ] {
            assert!(matches!(
                Space::new(dims, 1).cells(),
                Err(GeometryError::TooLarge { .. })
            ));
        }
        assert!(matches!(
            Space::new(&[1 << 62], 4).bytes(),
            Err(GeometryError::TooLarge { .. })
        ));
        assert!(matches!(
            Space::new(&[0, u64::MAX], 2).bytes(),
            Err(GeometryError::TooLarge { .. })
        ));
        // It could not hold a single row.
        assert!(matches!(
            Space::new(&[0, 1 << 40, 1 << 40], 1).bytes(),
            Err(GeometryError::TooLarge { .. })
        ));
        assert_eq!(Space::new(&[0, 1 << 30, 1 << 30], 1).bytes().unwrap(), 0);
        assert_eq!(
            Space::new(&[1; 33], 1).bytes(),
            Err(GeometryError::RankTooHigh { rank: 33 })
        );
        assert_eq!(Space::new(&[1], 0).bytes(), Err(GeometryError::NoElement));
        assert_eq!(Space::new(&[1; 32], 4).bytes().unwrap(), 4);
    }
}
