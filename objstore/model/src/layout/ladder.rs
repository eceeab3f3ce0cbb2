//! Recognises reads at equal steps as one selection: the rows of a box, or every n-th piece, which a reader requests
//! one by one, can then be fetched at once.
//!
//! A *ladder* is a sequence of pieces of one length at equal distances, counted in canonical bytes. If the pieces
//! form one hyperslab of the object (rows of a box, blocks of a lattice, and both again on slower axes), its packed
//! order is the order of the pieces: piece n of length l begins at packed byte n · l.

use super::coalesce::boxes_of_run;
use crate::{Axis, Hyperslab};

/// The first pieces of a ladder as one hyperslab, and their number: at least two, at most `count`.
///
/// The first piece is `len` bytes at `offset` of an object with these cells, the next begins `step` bytes later.
/// `None` if the first two do not form a hyperslab: for example a piece that crosses the end of a row, or a step that
/// fits no axis. O(rank).
pub fn ladder(
    cells: &[u64],
    offset: u64,
    len: u64,
    step: u64,
    count: u64,
) -> Option<(Hyperslab, u64)> {
    let mut boxes = Vec::new();
    boxes_of_run(cells, offset, len, &mut boxes);
    let [first] = boxes.as_slice() else {
        return None;
    };
    if len == 0 || step < len || first.volume() != len {
        return None;
    }
    let mut slab = Hyperslab::from_region(first);
    let (mut pieces, mut step) = (1, step);
    // The bytes of one index of the axis; from the fastest to the slowest.
    let mut unit = 1u64;
    for axis in (0..cells.len()).rev() {
        let (start, block) = (first.offset[axis], first.shape[axis]);
        let stride = step / unit;
        if step.is_multiple_of(unit) && stride >= block {
            let fit = 1 + (cells[axis] - (start + block)) / stride;
            let here = fit.min(count / pieces);
            if here > 1 {
                slab.axes[axis] = Axis {
                    start,
                    stride,
                    count: here,
                    block,
                }
                .normal();
                pieces *= here;
            }
            if here < fit {
                break;
            }
            // The remainder must be a step on a slower axis.
            step = step.checked_mul(here)?;
        }
        unit = unit.checked_mul(cells[axis])?;
    }
    (pieces > 1).then_some((slab, pieces))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::naive;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn its_packed_order_is_that_of_the_pieces(
            cells in naive::dims(), offset in 0..80u64, len in 0..9u64, step in 0..60u64, count in 0..20u64,
        ) {
            if let Some((slab, pieces)) = ladder(&cells, offset, len, step, count) {
                prop_assert!(slab.validate(&cells).is_ok());
                prop_assert!(2 <= pieces && pieces <= count);
                let found: Vec<u64> = naive::cells(&slab)
                    .iter()
                    .map(|cell| naive::offset(&cells, cell) as u64)
                    .collect();
                let expected: Vec<u64> = (0..pieces)
                    .flat_map(|piece| offset + piece * step..offset + piece * step + len)
                    .collect();
                prop_assert_eq!(found, expected);
            }
        }
    }

    fn found(cells: &[u64], offset: u64, len: u64, step: u64, count: u64) -> Option<u64> {
        ladder(cells, offset, len, step, count).map(|(_, pieces)| pieces)
    }

    #[test]
    fn boxes_and_lattices_are_found() {
        // Rows of a box, to the end of the array.
        assert_eq!(found(&[100, 64], 10, 20, 64, 1000), Some(100));
        assert_eq!(found(&[100, 64], 64 * 90 + 10, 20, 64, 1000), Some(10));
        // Every other row, and blocks of a line.
        assert_eq!(found(&[100, 64], 10, 20, 128, 1000), Some(50));
        assert_eq!(found(&[1 << 20], 4096, 4096, 16384, 1000), Some(64));
        // Four pieces a row, of all rows; and the rest of one row.
        assert_eq!(found(&[100, 64], 4, 4, 16, 1000), Some(400));
        assert_eq!(found(&[100, 64], 4, 4, 16, 10), Some(8));
        assert_eq!(found(&[100, 64], 20, 4, 16, 1000), Some(3));
        // Rows of complete planes: a box of three axes.
        assert_eq!(found(&[10, 8, 64], 3, 5, 64, 1000), Some(80));
        // Across the end of a row, and a step that fits no axis.
        assert_eq!(found(&[100, 64], 60, 20, 64, 1000), None);
        assert_eq!(found(&[100, 64], 60, 4, 65, 1000), None);
    }
}
