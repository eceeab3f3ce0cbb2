//! One axis of a hyperslab, and the monotone map between its cells and its packed indices.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// One axis: `count` blocks of `block` cells, `stride` cells from the start of one to the next.
///
/// With one block the stride is ignored. Nothing is selected if `count` or `block` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Axis {
    /// The first cell of the first block.
    pub start: u64,
    /// The distance from the start of a block to the start of the next.
    pub stride: u64,
    /// The number of blocks.
    pub count: u64,
    /// The cells of a block.
    pub block: u64,
}

impl Axis {
    /// `len` cells from `start` on.
    pub fn span(start: u64, len: u64) -> Axis {
        Axis {
            start,
            stride: len.max(1),
            count: 1,
            block: len,
        }
    }

    /// Every `step`-th cell from `start` on, `count` of them; `step` is at least 1.
    pub fn every(start: u64, step: u64, count: u64) -> Axis {
        Axis {
            start,
            stride: step,
            count,
            block: 1,
        }
        .normal()
    }

    /// The same cells in normal form: equal axes compare equal, and blocks that touch are one block.
    pub fn normal(self) -> Axis {
        if self.is_empty() {
            Axis::span(self.start, 0)
        } else if self.count == 1 {
            Axis::span(self.start, self.block)
        } else if self.stride == self.block {
            Axis::span(self.start, self.len())
        } else {
            self
        }
    }

    /// The number of selected cells, at most `u64::MAX`.
    pub fn len(&self) -> u64 {
        self.count.saturating_mul(self.block)
    }

    /// Whether nothing is selected.
    pub fn is_empty(&self) -> bool {
        self.count == 0 || self.block == 0
    }

    /// Start and length, if the cells are contiguous.
    pub fn as_span(&self) -> Option<(u64, u64)> {
        let normal = self.normal();
        (normal.count == 1).then_some((normal.start, normal.block))
    }

    /// One past the last cell, at most `u64::MAX`; the start if nothing is selected.
    pub fn end(&self) -> u64 {
        self.checked_end().unwrap_or(u64::MAX)
    }

    pub(crate) fn checked_end(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(self.start);
        }
        let last = if self.count == 1 {
            0
        } else {
            (self.count - 1).checked_mul(self.stride)?
        };
        self.start.checked_add(last)?.checked_add(self.block)
    }

    /// The cell with this packed index, which is below [`Axis::len`].
    pub fn cell(&self, index: u64) -> u64 {
        debug_assert!(index < self.len(), "packed index {index} of {self:?}");
        if self.count == 1 {
            self.start + index
        } else {
            self.start + index / self.block * self.stride + index % self.block
        }
    }

    /// The packed indices of the cells in `lo..hi`; empty if there are none.
    pub fn index_range(&self, lo: u64, hi: u64) -> Range<u64> {
        let from = self.below(lo);
        from..self.below(hi).max(from)
    }

    /// The number of selected cells before `cell`.
    fn below(&self, cell: u64) -> u64 {
        let Some(distance) = cell.checked_sub(self.start) else {
            return 0;
        };
        if self.is_empty() {
            0
        } else if self.count == 1 {
            distance.min(self.block)
        } else if distance / self.stride >= self.count {
            self.len()
        } else {
            distance / self.stride * self.block + (distance % self.stride).min(self.block)
        }
    }
}
