//! Parts of a large tiling: which records lie in a box, and how far a box may grow before they are many.
//!
//! A reader of a few chunks of a million fetches only the records around them. What it fetches is a *window*:
//! a box of which it then knows all records. The window is grown from the box that was asked for, first along
//! the fastest axes and then along slower ones, since programs go on in that order.

use super::super::flat;
use super::Tiling;
use crate::Region;

impl<T> Tiling<T> {
    /// Whether at most `most` records lie in a box. Looks at `most + 1` records at the most.
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

    /// The orders of all records that lie in a box, or around it, by growing order.
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

    /// The records after this order, by growing order.
    pub fn after(&self, order: u64) -> impl Iterator<Item = &super::Record<T>> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.orders
            .range((Excluded(order), Unbounded))
            .filter_map(|(_, &slot)| self.slots[slot as usize].as_ref())
    }

    /// A box around `region` with at most `most` records; `region` itself if that has more. It grows to all of an
    /// axis of `dims` while that fits, from the fastest axis on, and along the first that does not by doubling.
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

/// As [`Tiling::window`], of records of which `fits` says whether at most so many lie in a box.
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
        let mut whole = window.clone();
        (whole.offset[axis], whole.shape[axis]) = (0, end);
        if fits(most, &whole) {
            window = whole;
            continue;
        }
        // Most of it lies ahead, where readers go.
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

/// Doubles what lies ahead of a window, or behind it, while the whole fits.
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
