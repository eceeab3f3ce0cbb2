//! Cuts a hyperslab by a box of packed indices.
//!
//! Where the box ends inside a block, the block's part is a separate piece: at most three an axis (the end of a first
//! block, complete blocks, the beginning of a last one).

use super::product::{Pieces, for_each_choice};
use super::{Axis, Hyperslab};
use crate::Region;
use smallvec::SmallVec;

/// The result of [`Hyperslab::parts`]: boxes of packed indices, each with its cells.
pub type Cut = SmallVec<[(Region, Hyperslab); 1]>;

impl Hyperslab {
    /// The cells whose packed indices lie in `packed`, as products of regular axes.
    ///
    /// Each part is a box of packed indices and its cells; together the boxes are the intersection of `packed` and
    /// [`Hyperslab::packed_shape`]. One part if no block is cut.
    pub fn parts(&self, packed: &Region) -> Cut {
        debug_assert_eq!(self.rank(), packed.rank(), "ranks");
        let axes: SmallVec<[Pieces<(u64, Axis)>; 4]> = (self.axes.iter().enumerate())
            .map(|(axis, slab)| cut_axis(slab, packed.offset[axis], packed.end(axis)))
            .collect();
        let mut parts = Cut::new();
        for_each_choice(&axes, |pieces| {
            let (mut region, mut slab) = (Region::default(), Hyperslab::default());
            for &(from, axis) in pieces {
                region.offset.push(from);
                region.shape.push(axis.len());
                slab.axes.push(axis);
            }
            parts.push((region, slab));
        });
        parts
    }
}

/// The packed indices `from..to` of one axis: pieces with their first packed index, in order.
pub(crate) fn cut_axis(axis: &Axis, from: u64, to: u64) -> Pieces<(u64, Axis)> {
    let axis = axis.normal();
    let to = to.min(axis.len());
    let mut pieces = Pieces::new();
    if from >= to {
        return pieces;
    }
    if axis.count == 1 {
        pieces.push((from, Axis::span(axis.start + from, to - from)));
        return pieces;
    }
    let block_start = |block: u64| axis.start + block * axis.stride;
    let (mut first, skipped) = (from / axis.block, from % axis.block);
    let (last, tail) = (to / axis.block, to % axis.block);
    if first == last {
        pieces.push((from, Axis::span(block_start(first) + skipped, to - from)));
        return pieces;
    }
    if skipped > 0 {
        pieces.push((
            from,
            Axis::span(block_start(first) + skipped, axis.block - skipped),
        ));
        first += 1;
    }
    if first < last {
        let full = Axis {
            start: block_start(first),
            count: last - first,
            ..axis
        };
        pieces.push((first * axis.block, full.normal()));
    }
    if tail > 0 {
        pieces.push((last * axis.block, Axis::span(block_start(last), tail)));
    }
    pieces
}
