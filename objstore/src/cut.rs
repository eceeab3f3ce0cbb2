//! Cuts a slab that is too large for one message, or for one read, into parts whose packed cells are runs of the
//! slab's packed cells.

use slabfs_model::{Hyperslab, Region};

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
    let rank = shape.len();
    // below[i]: packed cells of one index of axis i.
    let mut below = vec![1u64; rank];
    for i in (0..rank.saturating_sub(1)).rev() {
        below[i] = shape[i + 1]
            .checked_mul(below[i + 1])
            .ok_or_else(too_large)?;
    }
    let Some(axis) = (0..rank).find(|&i| below[i] <= max) else {
        return Err(too_large());
    };
    let step = (max / below[axis]).max(1);
    let mut parts = Vec::new();
    let mut region = Region::all(&shape);
    for i in 0..axis {
        region.shape[i] = shape[i].min(1);
    }
    if region.is_empty() {
        return Ok(parts);
    }
    loop {
        let mut at = 0;
        while at < shape[axis] {
            let len = step.min(shape[axis] - at);
            region.offset[axis] = at;
            region.shape[axis] = len;
            for (packed, slab) in slab.parts(&region) {
                let from = packed.offset.iter().zip(&below).map(|(x, n)| x * n).sum();
                parts.push(Part {
                    slab,
                    from,
                    bytes: packed.volume(),
                });
            }
            at += len;
        }
        // The next index of the slower axes, the last of them fastest.
        let Some(i) = (0..axis).rev().find(|&i| region.offset[i] + 1 < shape[i]) else {
            break;
        };
        region.offset[i] += 1;
        for offset in &mut region.offset[i + 1..] {
            *offset = 0;
        }
    }
    parts.sort_by_key(|p| p.from);
    Ok(parts)
}

fn too_large() -> StoreError {
    StoreError::Invalid("a slab beyond 2^63 bytes".into())
}

#[cfg(test)]
mod tests {
    use slabfs_model::{Axis, for_each_run};

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
