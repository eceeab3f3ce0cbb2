//! Joins the boxes of a flush into few chunks: small boxes at equal steps become one lattice.
//!
//! A process that writes every n-th piece of an array leaves a box for each piece; each would be a chunk with its own
//! record. Boxes of one shape at equal steps along an axis are one hyperslab, and such hyperslabs at equal steps
//! along another axis are one again.
//!
//! Greedy, axis by axis from the fastest: slabs that are equal except for their position on the axis are examined in
//! order of that position, and joined as long as the step stays the same. If a third does not continue the step of
//! two, the second starts a new lattice with it. O(n · rank), by hashing. The result has the same cells, each once;
//! lattices of few boxes are returned as boxes.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::{Axis, Hyperslab, Region};

/// Limits for making lattices.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// Bytes of an element. A box that does not begin and end at an element on the last axis is not joined.
    pub elem: u64,
    /// Boxes of more bytes are not joined.
    pub small: u64,
    /// The fewest boxes of a lattice.
    pub least: u64,
    /// The most bytes of a lattice.
    pub most: u64,
}

/// All numbers of a slab except its position on one axis.
type Alike = SmallVec<[u64; 16]>;

/// A slab, and the number of boxes it was joined from.
#[derive(Debug)]
struct Joined {
    slab: Hyperslab,
    boxes: u64,
}

/// The last of the slabs with the same key, during the scan along an axis.
#[derive(Debug, Clone, Copy)]
struct Open {
    /// Its index in the output.
    at: usize,
    /// The position of its last part.
    last: u64,
}

/// The cells of these disjoint boxes as few hyperslabs. The result is best for boxes in canonical order of their
/// first cells, as [`coalesce`](super::coalesce()) returns them.
pub fn join_steps(boxes: &[Region], steps: &Steps) -> Vec<Hyperslab> {
    if (boxes.len() as u64) < steps.least {
        return boxes.iter().map(Hyperslab::from_region).collect();
    }
    let rank = boxes.first().map_or(0, Region::rank);
    let (mut out, mut joined) = (Vec::new(), Vec::new());
    for region in boxes {
        let slab = Hyperslab::from_region(region);
        let elements = slab.axes.last().is_some_and(|axis| {
            let elem = steps.elem.max(1);
            axis.start.is_multiple_of(elem) && axis.block.is_multiple_of(elem)
        });
        if elements && region.volume() <= steps.small {
            joined.push(Joined { slab, boxes: 1 });
        } else {
            out.push(slab);
        }
    }
    for axis in (0..rank).rev() {
        joined = join_along(axis, joined, steps.most);
    }
    for one in joined {
        if one.boxes >= steps.least || one.boxes == 1 {
            out.push(one.slab);
        } else {
            push_boxes(&one.slab, &mut out);
        }
    }
    out
}

fn join_along(axis: usize, slabs: Vec<Joined>, most: u64) -> Vec<Joined> {
    let mut out: Vec<Joined> = Vec::with_capacity(slabs.len());
    let mut open: HashMap<Alike, Open> = HashMap::new();
    for next in slabs {
        let start = next.slab.axes[axis].start;
        let Some(found) = open.get_mut(&alike(&next.slab, axis)) else {
            let key = alike(&next.slab, axis);
            open.insert(
                key,
                Open {
                    at: out.len(),
                    last: start,
                },
            );
            out.push(next);
            continue;
        };
        let before = &mut out[found.at];
        let along = &mut before.slab.axes[axis];
        let stride = start.saturating_sub(found.last);
        // Slabs with the same key have the same number of bytes.
        let fits = stride >= along.block.max(1) && next.slab.axes[axis].count == 1;
        let joins = |parts: u64| next.slab.volume().saturating_mul(parts) <= most;
        if fits && (along.count == 1 || along.stride == stride) && joins(along.count + 1) {
            along.stride = stride;
            along.count += 1;
            before.boxes += next.boxes;
            found.last = start;
        } else if fits && along.count == 2 && joins(2) {
            // The second of the two is joined with this one instead.
            *along = Axis::span(along.start, along.block);
            before.boxes -= next.boxes;
            let mut slab = next.slab;
            slab.axes[axis] = Axis {
                start: found.last,
                stride,
                count: 2,
                block: slab.axes[axis].block,
            };
            *found = Open {
                at: out.len(),
                last: start,
            };
            out.push(Joined {
                slab,
                boxes: 2 * next.boxes,
            });
        } else {
            *found = Open {
                at: out.len(),
                last: start,
            };
            out.push(next);
        }
    }
    for one in &mut out {
        one.slab.axes[axis] = one.slab.axes[axis].normal();
    }
    out
}

fn alike(slab: &Hyperslab, axis: usize) -> Alike {
    let mut key = Alike::new();
    for (at, other) in slab.axes.iter().enumerate() {
        let start = if at == axis { 0 } else { other.start };
        key.extend_from_slice(&[start, other.stride, other.count, other.block]);
    }
    key
}

/// Appends the boxes of a lattice.
fn push_boxes(slab: &Hyperslab, out: &mut Vec<Hyperslab>) {
    let mut parts = vec![Hyperslab::default()];
    for axis in &slab.axes {
        parts = parts
            .iter()
            .flat_map(|part| {
                (0..axis.count).map(|at| {
                    let mut part = part.clone();
                    let start = axis.start + at * axis.stride;
                    part.axes.push(Axis::span(start, axis.block));
                    part
                })
            })
            .collect();
    }
    out.append(&mut parts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Run, coalesce};
    use crate::naive;
    use proptest::prelude::*;

    const ALL: Steps = Steps {
        elem: 1,
        small: u64::MAX,
        least: 2,
        most: u64::MAX,
    };

    /// How many of the slabs have each cell of the object.
    fn painted(cells: &[u64], slabs: &[Hyperslab]) -> Vec<u8> {
        let mut bytes = vec![0; cells.iter().product::<u64>() as usize];
        for slab in slabs {
            assert!(slab.validate(cells).is_ok() && !slab.is_empty());
            for cell in naive::cells(slab) {
                bytes[naive::offset(cells, &cell)] += 1;
            }
        }
        bytes
    }

    fn boxes() -> impl Strategy<Value = (crate::Coords, Vec<Region>)> {
        // Steps repeat often, lengths nearly always.
        let gap = prop_oneof![6 => Just(3u64), 2 => Just(1u64), 1 => 0..9u64];
        let len = prop_oneof![8 => Just(2u64), 1 => 1..6u64];
        (naive::dims(), prop::collection::vec((gap, len), 0..60)).prop_map(|(cells, steps)| {
            let mut at = 0;
            let runs: Vec<Run> = steps
                .into_iter()
                .map(|(gap, len)| {
                    let offset = at + gap;
                    at = offset + len;
                    Run { offset, len }
                })
                .collect();
            let boxes = coalesce(&cells, &runs, u64::MAX);
            (cells, boxes)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn the_cells_stay_the_same(
            (cells, boxes) in boxes(), (elem, small) in (1..3u64, 0..20u64), least in 1..9u64, most in 1..60u64, seed: u64,
        ) {
            let single: Vec<Hyperslab> = boxes.iter().map(Hyperslab::from_region).collect();
            let steps = Steps { elem, small, least, most };
            for steps in [steps, ALL] {
                let joined = join_steps(&boxes, &steps);
                prop_assert_eq!(painted(&cells, &joined), painted(&cells, &single));
                prop_assert!(joined.len() <= single.len());
                for slab in joined.iter().filter(|slab| !slab.is_box()) {
                    let parts: u64 = slab.axes.iter().map(|axis| axis.count).product();
                    prop_assert!(parts >= steps.least && slab.volume() <= steps.most);
                    prop_assert!(slab.volume() / parts <= steps.small);
                    prop_assert_eq!(slab, &slab.normal());
                }
            }
            let mut shuffled = boxes;
            shuffled.sort_by_key(|region| region.offset.iter().sum::<u64>().wrapping_mul(seed | 1));
            let joined = join_steps(&shuffled, &ALL);
            prop_assert_eq!(painted(&cells, &joined), painted(&cells, &single));
        }
    }

    fn joined(cells: &[u64], runs: impl Iterator<Item = (u64, u64)>, least: u64) -> Vec<Hyperslab> {
        let runs: Vec<Run> = runs.map(|(offset, len)| Run { offset, len }).collect();
        join_steps(&coalesce(cells, &runs, u64::MAX), &Steps { least, ..ALL })
    }

    #[test]
    fn every_nth_piece_is_one_lattice() {
        let slabs = joined(&[1 << 20], (0..64).map(|n| (4096 + n * 16384, 4096)), 8);
        assert_eq!(slabs.len(), 1);
        assert_eq!(slabs[0].axes[0].count, 64);
        // A gap in the middle makes two.
        let gap = (0..64).filter(|n| *n != 30);
        let slabs = joined(&[1 << 20], gap.map(|n| (4096 + n * 16384, 4096)), 8);
        assert_eq!(slabs.len(), 2);
        // A first piece out of step does not spoil the rest.
        let odd = std::iter::once((0, 2)).chain((0..50).map(|n| (5 + 7 * n, 2)));
        assert_eq!(joined(&[400], odd, 8).len(), 2);
    }

    #[test]
    fn steps_on_two_axes_are_one_lattice() {
        let runs = (0..20).flat_map(|row| (0..4).map(move |n| (row * 192 + n * 16, 4)));
        let slabs = joined(&[60, 64], runs, 8);
        assert_eq!(slabs.len(), 1);
        assert_eq!((slabs[0].axes[0].count, slabs[0].axes[1].count), (20, 4));
        // Adjacent rows are boxes, and too few of them for a lattice.
        let runs = (0..20).flat_map(|row| (0..4).map(move |n| (row * 64 + n * 16, 4)));
        let slabs = joined(&[60, 64], runs, 8);
        assert_eq!(slabs.len(), 4);
        assert!(slabs.iter().all(Hyperslab::is_box));
    }

    #[test]
    fn boxes_out_of_step_are_not_joined() {
        let runs = [0u64, 3, 8, 15, 24, 35, 48, 63, 80].map(|at| (at, 1));
        let slabs = joined(&[100], runs.into_iter(), 3);
        assert_eq!(slabs.len(), 9);
        assert!(slabs.iter().all(Hyperslab::is_box));
    }
}
