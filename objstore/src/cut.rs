//! Cuts a slab that is too large for one message, or for one read, into parts whose packed cells are runs of the
//! slab's packed cells.

use slabfs_model::Hyperslab;
use slabfs_model::layout::boxes_of_run;

use crate::error::{Result, StoreError};

/// A part of a slab, and the offset of its cells among the packed cells of the slab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slab: Hyperslab,
    pub(crate) from: u64,
    pub(crate) bytes: u64,
}

/// The parts of `slab`, none above `max` bytes, in packed order.
pub(crate) fn cut(slab: &Hyperslab, max: u64) -> Result<Vec<Part>> {
    let shape = slab.packed_shape();
    // The axis to cut: `below` it, one index has few enough cells. A row is all of its indices.
    let (mut row, mut below) = (1u64, 1);
    for &len in shape.iter().rev() {
        if row > max {
            break;
        }
        (below, row) = (row, row.checked_mul(len).ok_or_else(too_large)?);
    }
    let step = (max / below).max(1) * below;
    let all = shape
        .iter()
        .try_fold(1u64, |all, &len| all.checked_mul(len))
        .ok_or_else(too_large)?;
    let (mut parts, mut boxes) = (Vec::new(), Vec::new());
    let mut from = 0;
    while from < all {
        // Cells of one row that make up one box.
        let len = step.min(row - from % row);
        boxes.clear();
        boxes_of_run(&shape, from, len, &mut boxes);
        for (packed, slab) in boxes.iter().flat_map(|packed| slab.parts(packed)) {
            let bytes = packed.volume();
            parts.push(Part { slab, from, bytes });
            from += bytes;
        }
    }
    Ok(parts)
}

fn too_large() -> StoreError {
    StoreError::Invalid("a slab beyond 2^63 bytes".into())
}

#[cfg(test)]
mod tests {
    use slabfs_model::{Axis, Region, for_each_run};

    use super::*;

    fn cells(shape: &[u64], slab: &Hyperslab) -> Vec<usize> {
        let mut out = Vec::new();
        for_each_run(shape, slab, &mut |at, len| out.extend(at..at + len));
        out
    }

    #[test]
    fn parts_are_runs_of_the_packed_slab() {
        let shape = [5, 6, 7];
        let slabs = [
            Hyperslab::all(&shape),
            Hyperslab::from_region(&Region::new(&[1, 2, 3], &[3, 4, 4])),
            Hyperslab {
                axes: [
                    Axis::every(0, 2, 3),
                    Axis {
                        start: 0,
                        stride: 3,
                        count: 2,
                        block: 2,
                    },
                    Axis::every(1, 3, 2),
                ]
                .into_iter()
                .collect(),
            },
            Hyperslab {
                axes: [
                    Axis::span(2, 1),
                    Axis {
                        start: 0,
                        stride: 4,
                        count: 1,
                        block: 4,
                    },
                    Axis {
                        start: 0,
                        stride: 4,
                        count: 2,
                        block: 3,
                    },
                ]
                .into_iter()
                .collect(),
            },
        ];
        for slab in slabs {
            let full = cells(&shape, &slab);
            for max in [1, 2, 3, 5, 7, 10, 16, 40, 100, 1000] {
                let parts = cut(&slab, max).unwrap();
                let mut together = Vec::new();
                for part in &parts {
                    assert!(part.bytes <= max);
                    assert_eq!(part.from as usize, together.len());
                    let own = cells(&shape, &part.slab);
                    assert_eq!(own.len() as u64, part.bytes);
                    together.extend(own);
                }
                assert_eq!(together, full, "{slab:?} by {max}");
            }
        }
    }
}
