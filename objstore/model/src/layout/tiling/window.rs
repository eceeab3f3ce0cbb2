//! Windows of a large tiling: the records in a box, and how far the box may grow before they are too many.
//!
//! A reader of a few chunks out of a million fetches only the records around them. It fetches a *window*: a box all
//! of whose records it then has. The window grows from the requested box, first along the fastest axes and then along
//! slower ones, since programs continue in that order.

use super::super::flat;
use super::Tiling;
use crate::Region;

impl<T> Tiling<T> {
    /// Whether at most `most` records overlap a box. Examines at most `most + 1` records.
    pub fn has_at_most(&self, most: usize, region: &Region) -> bool {
        let mut count = 0;
        if region.is_empty() || region.rank() != self.rank {
            return true;
        }
        self.tree.overlapping(&flat::flat(region), &mut |_| {
            count += 1;
            count <= most
        });
        count <= most
    }

    /// The orders of all records that overlap a box, ascending.
    pub fn orders_within(&self, region: &Region) -> Vec<u64> {
        let mut orders = Vec::new();
        if region.is_empty() || region.rank() != self.rank {
            return orders;
        }
        self.tree.overlapping(&flat::flat(region), &mut |slot| {
            orders.extend(self.slot(slot).map(|record| record.order));
            true
        });
        orders.sort_unstable();
        orders
    }

    /// The records after this order, ascending.
    pub fn after(&self, order: u64) -> impl Iterator<Item = &super::Record<T>> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.orders
            .range((Excluded(order), Unbounded))
            .filter_map(|(_, &slot)| self.slots[slot as usize].as_ref())
    }

    /// A box around `region` with at most `most` records; `region` itself if that has more. From the fastest axis on
    /// it grows to the full length of an axis of `dims` while that fits, and along the first axis that does not fit
    /// by doubling.
    pub fn window(&self, region: &Region, dims: &[u64], most: usize) -> Region {
        window(region, dims, most, &mut |most, region| {
            self.has_at_most(most, region)
        })
    }

    /// The first order from this one on.
    pub fn first_from(&self, order: u64) -> Option<u64> {
        self.orders.range(order..).next().map(|(order, _)| *order)
    }
}

/// As [`Tiling::window`], for records that `fits` counts: it returns whether at most this many overlap a box.
pub fn window(
    region: &Region,
    dims: &[u64],
    most: usize,
    fits: &mut dyn FnMut(usize, &Region) -> bool,
) -> Region {
    let mut window = region.clone();
    if !fits(most, &window) {
        return window;
    }
    for axis in (0..window.rank()).rev() {
        let end = dims.get(axis).copied().unwrap_or(0).max(region.end(axis));
        let mut full = window.clone();
        (full.offset[axis], full.shape[axis]) = (0, end);
        if fits(most, &full) {
            window = full;
            continue;
        }
        // The greater part of it lies ahead, where readers continue.
        grow(&mut window, axis, true, end, &mut |region| {
            fits(most - most / 4, region)
        });
        grow(&mut window, axis, false, end, &mut |region| {
            fits(most, region)
        });
        break;
    }
    window
}

/// Doubles the part ahead of a window, or before it, while the result fits.
fn grow(
    window: &mut Region,
    axis: usize,
    ahead: bool,
    end: u64,
    fits: &mut dyn FnMut(&Region) -> bool,
) {
    let mut step = window.shape[axis].max(1);
    loop {
        let mut more = window.clone();
        if ahead {
            let room = end - window.end(axis);
            more.shape[axis] = more.shape[axis].saturating_add(step.min(room));
        } else {
            let by = step.min(window.offset[axis]);
            more.offset[axis] -= by;
            more.shape[axis] = more.shape[axis].saturating_add(by);
        }
        if more == *window || !fits(&more) {
            return;
        }
        *window = more;
        step = step.saturating_mul(2);
    }
}
