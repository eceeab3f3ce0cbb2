//! Flat boxes: the lows of all axes, then the ends (exclusive) of all axes.
//!
//! The R-tree and the planning hold millions of boxes of a rank that is known at run time. Flat, they cost two
//! numbers an axis and nothing else, whereas a [`Region`] has a header of its own.

use crate::Region;
use smallvec::SmallVec;

/// One box; four axes fit without a heap allocation.
pub(super) type Flat = SmallVec<[u64; 8]>;

/// The flat form of a region; its ends saturate like those of the region.
pub(super) fn flat(region: &Region) -> Flat {
    let mut out = Flat::from_slice(&region.offset);
    out.extend((0..region.rank()).map(|axis| region.end(axis)));
    out
}

/// The region of a flat box.
pub(super) fn region(flat: &[u64]) -> Region {
    let (lows, ends) = flat.split_at(flat.len() / 2);
    Region {
        offset: lows.into(),
        shape: lows
            .iter()
            .zip(ends)
            .map(|(&low, &end)| end.saturating_sub(low))
            .collect(),
    }
}

/// Whether two boxes share a cell; both are not empty.
pub(super) fn overlaps(one: &[u64], other: &[u64]) -> bool {
    let rank = one.len() / 2;
    (0..rank).all(|axis| one[axis] < other[rank + axis] && other[axis] < one[rank + axis])
}

/// Whether all of `inner` lies in `outer`.
pub(super) fn contains(outer: &[u64], inner: &[u64]) -> bool {
    let rank = outer.len() / 2;
    (0..rank).all(|axis| outer[axis] <= inner[axis] && inner[rank + axis] <= outer[rank + axis])
}

/// The number of cells of a box, at most `u128::MAX`.
pub(super) fn volume(flat: &[u64]) -> u128 {
    let rank = flat.len() / 2;
    (0..rank).fold(1u128, |product, axis| {
        product.saturating_mul(u128::from(flat[rank + axis].saturating_sub(flat[axis])))
    })
}

/// Cuts `from` to its intersection with `with`; false if that is empty.
pub(super) fn clip(from: &mut [u64], with: &[u64]) -> bool {
    let rank = from.len() / 2;
    for axis in 0..rank {
        from[axis] = from[axis].max(with[axis]);
        from[rank + axis] = from[rank + axis].min(with[rank + axis]);
        if from[axis] >= from[rank + axis] {
            return false;
        }
    }
    true
}

/// Many boxes of one rank, stored consecutively.
#[derive(Debug, Clone)]
pub(super) struct Boxes {
    rank: usize,
    len: usize,
    values: SmallVec<[u64; 16]>,
}

impl Boxes {
    pub(super) fn new(rank: usize) -> Boxes {
        Boxes {
            rank,
            len: 0,
            values: SmallVec::new(),
        }
    }

    pub(super) fn with_capacity(rank: usize, boxes: usize) -> Boxes {
        Boxes {
            rank,
            len: 0,
            values: SmallVec::with_capacity(2 * rank * boxes),
        }
    }

    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn get(&self, index: usize) -> &[u64] {
        &self.values[2 * self.rank * index..2 * self.rank * (index + 1)]
    }

    pub(super) fn get_mut(&mut self, index: usize) -> &mut [u64] {
        &mut self.values[2 * self.rank * index..2 * self.rank * (index + 1)]
    }

    pub(super) fn push(&mut self, flat: &[u64]) {
        debug_assert_eq!(flat.len(), 2 * self.rank, "ranks");
        self.values.extend_from_slice(flat);
        self.len += 1;
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.len = 0;
    }

    /// Retains the boxes whose index `keep` accepts, in order.
    pub(super) fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        let (width, mut retained) = (2 * self.rank, 0);
        for index in (0..self.len).filter(|&index| keep(index)) {
            self.values
                .copy_within(index * width..(index + 1) * width, retained * width);
            retained += 1;
        }
        self.len = retained;
        self.values.truncate(retained * width);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u64]> {
        (0..self.len).map(|index| self.get(index))
    }

    /// Appends `from` without `cut`: disjoint boxes, at most two an axis.
    ///
    /// The slowest axes are cut first, so that the rest consists of complete rows.
    pub(super) fn push_difference(&mut self, from: &[u64], cut: &[u64]) {
        if !overlaps(from, cut) {
            self.push(from);
            return;
        }
        let rank = self.rank;
        let mut rest = Flat::from_slice(from);
        for axis in 0..rank {
            let end = rank + axis;
            if rest[axis] < cut[axis] {
                let keep = std::mem::replace(&mut rest[end], cut[axis]);
                self.push(&rest);
                rest[end] = keep;
                rest[axis] = cut[axis];
            }
            if cut[end] < rest[end] {
                let keep = std::mem::replace(&mut rest[axis], cut[end]);
                self.push(&rest);
                rest[axis] = keep;
                rest[end] = cut[end];
            }
        }
    }
}
