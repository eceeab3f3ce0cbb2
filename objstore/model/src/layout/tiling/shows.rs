//! Tests whether a selection has any visible cell, in bounded work and without a plan.
//!
//! A plan of a box across a lattice may have three parts an axis, and one of two lattices a part for each pair of
//! their blocks: more than fits in memory, for a record of few bytes. Whether there is any part is decided one axis
//! at a time: the cells that a record and a selection share are a product, and a shared cell shows the newest record
//! that has it.

use super::super::flat;
use super::{Tiling, visible_bounds};
use crate::hyperslab::gcd;
use crate::{Axis, Hyperslab};

/// The most records and blocks of lattices that one call examines, in all, before it returns true.
pub const SHOWS_STEPS: usize = 1 << 16;

impl<T> Tiling<T> {
    /// Whether a [plan](Tiling::plan) of `want` would have a part.
    ///
    /// Ends at the first record that shares a cell with `want`. May return true without a part where lattices of
    /// different steps overlay each other so that [`SHOWS_STEPS`] are used up. Returns false for a selection of
    /// another rank.
    pub fn shows(&self, want: &Hyperslab) -> bool {
        let Some(bounds) = want.bounds().filter(|_| want.rank() == self.rank) else {
            return false;
        };
        let mut steps = SHOWS_STEPS;
        let mut found = false;
        self.tree.overlapping(&flat::flat(&bounds), &mut |slot| {
            if let Some(record) = self.slot(slot)
                && let Some(visible) = visible_bounds(record)
            {
                found = spend(&mut steps, 1).is_none()
                    || share(want, &record.slab, &visible, &mut steps);
            }
            !found
        });
        found
    }
}

/// Takes `cost` from the budget; `None` if it does not suffice.
fn spend(steps: &mut usize, cost: usize) -> Option<()> {
    *steps = steps.checked_sub(cost)?;
    Some(())
}

/// Whether both have a cell within `bounds`; true where the answer would cost more than `steps`.
fn share(want: &Hyperslab, have: &Hyperslab, bounds: &[u64], steps: &mut usize) -> bool {
    let rank = want.rank();
    (want.axes.iter().zip(&have.axes).enumerate()).all(|(axis, (want, have))| {
        axes_share(
            &want.normal(),
            &have.normal(),
            bounds[axis],
            bounds[rank + axis],
            steps,
        )
    })
}

/// Whether both axes, which are normal, have a cell in `from..to`.
fn axes_share(one: &Axis, other: &Axis, from: u64, to: u64, steps: &mut usize) -> bool {
    let from = from.max(one.start).max(other.start);
    let to = to.min(one.end()).min(other.end());
    if from >= to {
        return false;
    }
    match (one.count, other.count) {
        (1, 1) => true,
        (1, _) => !other.index_range(from, to).is_empty(),
        (_, 1) => !one.index_range(from, to).is_empty(),
        _ => may_meet(one, other) && blocks_share(one, other, from, to, steps),
    }
}

/// Whether some block of one would meet some block of the other if both were unlimited. The distance between a block
/// of one and a block of the other is fixed modulo the greatest common divisor of the strides.
fn may_meet(one: &Axis, other: &Axis) -> bool {
    let common = i128::from(gcd(one.stride, other.stride));
    let (block, other_block) = (i128::from(one.block), i128::from(other.block));
    // They meet at distances above -other_block and below block.
    let distance = i128::from(other.start) - i128::from(one.start);
    (distance + other_block - 1).rem_euclid(common) <= block + other_block - 2
}

/// Whether a block of one that lies in `from..to` meets a block of the other there: examines the blocks of the one
/// with fewer, as long as there are steps.
fn blocks_share(one: &Axis, other: &Axis, from: u64, to: u64, steps: &mut usize) -> bool {
    let within = |axis: &Axis| {
        let indices = axis.index_range(from, to);
        match indices.is_empty() {
            true => None,
            false => Some((indices.start / axis.block, (indices.end - 1) / axis.block)),
        }
    };
    let (Some(ones), Some(others)) = (within(one), within(other)) else {
        return false;
    };
    let (fewer, (first, last), more) = match ones.1 - ones.0 <= others.1 - others.0 {
        true => (one, ones, other),
        false => (other, others, one),
    };
    (first..=last).any(|block| {
        if spend(steps, 1).is_none() {
            return true;
        }
        let start = fewer.start + block * fewer.stride;
        let (low, high) = (start.max(from), (start + fewer.block).min(to));
        !more.index_range(low, high).is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;
    use crate::naive;
    use crate::{Coords, Region};
    use proptest::prelude::*;

    fn slab(axes: &[(u64, u64, u64, u64)]) -> Hyperslab {
        let axis = |&(start, stride, count, block)| Axis {
            start,
            stride,
            count,
            block,
        };
        Hyperslab {
            axes: axes.iter().map(axis).collect(),
        }
    }

    fn tiling(slabs: impl IntoIterator<Item = (Hyperslab, Option<Region>)>) -> Tiling<()> {
        let records: Vec<_> = slabs
            .into_iter()
            .enumerate()
            .map(|(order, (slab, clip))| Record {
                slab,
                clip,
                order: order as u64,
                value: (),
            })
            .collect();
        let rank = records.first().map_or(0, |record| record.slab.rank());
        Tiling::bulk(rank, records).unwrap()
    }

    type Scene = (Hyperslab, Vec<(Hyperslab, Option<Region>)>);

    fn scene() -> impl Strategy<Value = Scene> {
        naive::dims().prop_flat_map(|dims: Coords| {
            let clip = prop::option::weighted(0.3, naive::region(&dims));
            let records = prop::collection::vec((naive::slab(&dims), clip), 1..4);
            (naive::slab(&dims), records)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn it_agrees_with_a_plan((want, records) in scene()) {
            let tiling = tiling(records);
            let (mut parts, mut holes) = (Vec::new(), Vec::new());
            tiling.plan(&want, &mut parts, &mut holes);
            prop_assert_eq!(tiling.shows(&want), !parts.is_empty());
        }

        #[test]
        fn axes_share_iff_their_cells_do(
            (one, other) in (axis(), axis()), (from, len) in (0..80u64, 0..80u64),
        ) {
            let mut steps = SHOWS_STEPS;
            let shares = (from..from + len).any(|cell| {
                !one.index_range(cell, cell + 1).is_empty()
                    && !other.index_range(cell, cell + 1).is_empty()
            });
            prop_assert_eq!(axes_share(&one, &other, from, from + len, &mut steps), shares);
        }
    }

    fn axis() -> impl Strategy<Value = Axis> {
        (0u64..40, 1u64..5, 0u64..9, 1u64..9).prop_map(|(start, block, gap, count)| {
            Axis {
                start,
                stride: block + gap,
                count,
                block,
            }
            .normal()
        })
    }

    #[test]
    fn a_box_across_a_lattice_of_all_axes_costs_nothing() {
        // A plan of this would have 2^32 parts.
        let lattice = slab(&[(0, 3, 2, 2); 32]);
        let tiling = tiling([(lattice, None)]);
        assert!(tiling.shows(&slab(&[(1, 3, 1, 3); 32])));
        assert!(!tiling.shows(&slab(&[(2, 1, 1, 1); 32])));
    }

    #[test]
    fn long_lattices_are_distinguished_where_that_is_cheap() {
        const N: u64 = 1 << 30;
        let tiling = tiling([(slab(&[(0, N, N, 4)]), None)]);
        // They never meet, which is found at once.
        assert!(!tiling.shows(&slab(&[(4, N, N, N - 4)])));
        assert!(!tiling.shows(&slab(&[(4, N / 2, N, 4)])));
        assert!(tiling.shows(&slab(&[(3, N, N, 4)])));
        // They meet after many steps or never: too many to examine.
        assert!(tiling.shows(&slab(&[(N / 2, N - 1, N, 4)])));
        // Few blocks are examined, whatever the other lattice is.
        assert!(!tiling.shows(&slab(&[(N / 2, N - 1, 1000, 4)])));
    }
}
