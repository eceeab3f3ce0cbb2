//! The image of a record in a selection: a box of the selection's packed coordinates.
//!
//! The map from cells to packed indices is monotone on each axis, so the cells of a selection within a record's
//! bounds are always a box of packed indices. The image is *solid* if the record has every one of these cells: always
//! for boxes, and for a lattice that is in step with the selection (the same lattice again, a coarser one in phase, a
//! few cells inside one block). Solid images are cut out of older ones; others are painted over them.

use super::super::flat::Flat;
use crate::{Axis, Hyperslab};
use smallvec::SmallVec;

/// Computes into `out` the box of `want`'s packed indices whose cells lie in `bounds`; false if there are none.
pub(super) fn image_box(want: &Hyperslab, bounds: &[u64], out: &mut Flat) -> bool {
    let rank = want.rank();
    out.clear();
    let mut ends: SmallVec<[u64; 4]> = SmallVec::new();
    for (axis, slab) in want.axes.iter().enumerate() {
        let indices = slab.index_range(bounds[axis], bounds[rank + axis]);
        if indices.is_empty() {
            return false;
        }
        out.push(indices.start);
        ends.push(indices.end);
    }
    out.extend_from_slice(&ends);
    true
}

/// Whether `have` selects each cell of `want` with packed indices in `image`, which lies in the bounds of `have`. May
/// return false where a finer check would return true.
pub(super) fn is_solid(want: &Hyperslab, image: &[u64], have: &Hyperslab) -> bool {
    let rank = want.rank();
    (want.axes.iter().zip(&have.axes).enumerate())
        .all(|(axis, (want, have))| axis_is_solid(want, image[axis], image[rank + axis], have))
}

fn axis_is_solid(want: &Axis, from: u64, to: u64, have: &Axis) -> bool {
    let have = have.normal();
    if have.count == 1 {
        return true;
    }
    let want = want.normal();
    let (low, high) = (want.cell(from), want.cell(to - 1));
    if high - low == to - from - 1 {
        let found = have.index_range(low, high + 1);
        return found.end - found.start == to - from;
    }
    if !want.stride.is_multiple_of(have.stride) {
        return false;
    }
    let phase = (want.start % have.stride + have.stride - have.start % have.stride) % have.stride;
    phase + want.block <= have.block
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn axis() -> impl Strategy<Value = Axis> {
        (0u64..12, 1u64..5, 0u64..4, 1u64..5).prop_map(|(start, block, gap, count)| Axis {
            start,
            stride: block + gap,
            count,
            block,
        })
    }

    proptest! {
        #[test]
        fn solid_means_that_no_cell_is_missing(want in axis(), have in axis()) {
            let range = want.index_range(have.start, have.end());
            if !range.is_empty() {
                let has = |cell| !have.index_range(cell, cell + 1).is_empty();
                let all = range.clone().all(|index| has(want.cell(index)));
                if axis_is_solid(&want, range.start, range.end, &have) {
                    prop_assert!(all);
                }
                if want == have {
                    prop_assert!(axis_is_solid(&want, range.start, range.end, &have));
                }
            }
        }
    }
}
