//! The older records that a new one hides completely, found in bounded work.
//!
//! A record is garbage when newer ones have all of its visible cells. An exact search can cost much more than the
//! write that caused it, so there is a budget. Beyond it a record counts as visible: it stays, contributes no part to
//! plans, and is removed by a later search or by compaction.

use super::super::flat::{self, Boxes, Flat};
use super::image::{image_box, is_solid};
use super::plan::cut_all;
use super::{Record, Tiling, visible_bounds};

/// The most pieces of one older record before it counts as visible.
pub const SHADOW_FRAGMENTS: usize = 256;

/// The most boxes one call compares with such pieces, in all, before the remaining records count as visible.
pub const SHADOW_STEPS: usize = 1 << 16;

impl<T> Tiling<T> {
    /// The orders of older records, ascending, that have no visible cell once `new` is in (it may be in already):
    /// hidden by `new` alone, or by `new` and other newer boxes together.
    ///
    /// Bounded: the result omits records that newer ones cut into more than [`SHADOW_FRAGMENTS`] pieces, and, after
    /// [`SHADOW_STEPS`] are used up, those that `new` alone does not hide.
    pub fn shadowed_by(&self, new: &Record<T>) -> Vec<u64> {
        let mut hidden = Vec::new();
        if new.slab.rank() != self.rank {
            return hidden;
        }
        let Some(bounds) = visible_bounds(new) else {
            return hidden;
        };
        let mut steps = SHADOW_STEPS;
        self.tree.overlapping(&bounds, &mut |slot| {
            if let Some(old) = self.slot(slot)
                && old.order < new.order
                && self.is_hidden(old, new, &bounds, &mut steps)
            {
                hidden.push(old.order);
            }
            true
        });
        hidden.sort_unstable();
        hidden
    }

    /// Whether `new` and other records newer than `old` have all visible cells of `old`.
    fn is_hidden(
        &self,
        old: &Record<T>,
        new: &Record<T>,
        bounds: &[u64],
        steps: &mut usize,
    ) -> bool {
        let mut image = Flat::new();
        let Some(shown) = visible_bounds(old) else {
            return true;
        };
        // All in packed coordinates of the old record's slab, as if it were a selection.
        let mut packed = Flat::new();
        if !image_box(&old.slab, &shown, &mut packed)
            || !image_box(&old.slab, bounds, &mut image)
            || !is_solid(&old.slab, &image, &new.slab)
        {
            return false;
        }
        if flat::contains(&image, &packed) {
            return true;
        }
        if *steps == 0 {
            return false;
        }
        let (mut left, mut spare) = (Boxes::new(self.rank), Boxes::new(self.rank));
        left.push(&packed);
        cut_all(&mut left, &image, &mut spare);
        // Usually a corner of the remainder is visible, which is quickly found.
        let corners = [
            first_cell(old, left.get(0)),
            last_cell(old, left.get(left.len() - 1)),
        ];
        if corners
            .iter()
            .any(|cell| !self.is_over(cell, old.order, steps))
        {
            return false;
        }
        self.tree.overlapping(&shown, &mut |slot| {
            let Some(newer) = self.slot(slot).filter(|record| record.order > old.order) else {
                return true;
            };
            let cost = 1 + left.len();
            if *steps < cost {
                *steps = 0;
                return false;
            }
            *steps -= cost;
            if let Some(visible) = visible_bounds(newer)
                && image_box(&old.slab, &visible, &mut image)
                && is_solid(&old.slab, &image, &newer.slab)
            {
                cut_all(&mut left, &image, &mut spare);
            }
            !left.is_empty() && left.len() <= SHADOW_FRAGMENTS
        });
        left.is_empty()
    }

    /// Whether a record newer than `order` has this cell (given as a flat box).
    fn is_over(&self, cell: &[u64], order: u64, steps: &mut usize) -> bool {
        let mut found = false;
        self.tree.overlapping(cell, &mut |slot| {
            *steps = steps.saturating_sub(1);
            found |= self.slot(slot).is_some_and(|record| record.order > order);
            !found
        });
        found
    }
}

fn first_cell<T>(old: &Record<T>, packed: &[u64]) -> Flat {
    cell(old, &packed[..old.slab.rank()], 0)
}

fn last_cell<T>(old: &Record<T>, packed: &[u64]) -> Flat {
    cell(old, &packed[old.slab.rank()..], 1)
}

/// The cell with these packed indices minus `before`, as a flat box.
fn cell<T>(old: &Record<T>, packed: &[u64], before: u64) -> Flat {
    let cells = old
        .slab
        .axes
        .iter()
        .zip(packed)
        .map(|(axis, &index)| axis.cell(index - before));
    let mut out: Flat = cells.clone().collect();
    out.extend(cells.map(|cell| cell + 1));
    out
}
