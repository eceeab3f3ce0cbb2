//! Counts lattices that overlap a new one without hiding or being hidden.
//!
//! A box hides everything under it; a lattice hides only lattices in step with it. Lattices of many different steps
//! over one area would accumulate, and every reader of that area would have to examine each. A writer that can choose
//! between a lattice and boxes therefore checks here first.

use super::super::flat;
use super::Tiling;
use crate::{Axis, Hyperslab};

impl<T> Tiling<T> {
    /// The number of lattices within the bounds of `slab` that may share cells with it and are out of step with it;
    /// stops counting at `enough`.
    ///
    /// Lattices of the same step that interleave with it (as the ranks of a program write them) do not count, nor do
    /// those that differ only in length.
    pub fn out_of_step(&self, slab: &Hyperslab, enough: usize) -> usize {
        let Some(bounds) = slab.bounds().filter(|_| slab.rank() == self.rank) else {
            return 0;
        };
        let mut found = 0;
        self.tree.overlapping(&flat::flat(&bounds), &mut |slot| {
            if let Some(record) = self.slot(slot)
                && !record.slab.is_box()
                && is_out_of_step(slab, &record.slab)
            {
                found += 1;
            }
            found < enough
        });
        found
    }
}

fn is_out_of_step(one: &Hyperslab, other: &Hyperslab) -> bool {
    let mut all_in_step = true;
    for (one, other) in one.axes.iter().zip(&other.axes) {
        let (one, other) = (one.normal(), other.normal());
        if one.count == 1 && other.count == 1 {
            continue;
        }
        if one.count == 1 || other.count == 1 || one.stride != other.stride {
            all_in_step = false;
            continue;
        }
        let phase = phase(&one, &other);
        if phase >= one.block && phase.saturating_add(other.block) <= one.stride {
            // They interleave and never meet.
            return false;
        }
        all_in_step &= phase == 0 && one.block == other.block;
    }
    !all_in_step
}

/// The distance from a start of `one` to the next start of `other`; both have the same stride.
fn phase(one: &Axis, other: &Axis) -> u64 {
    let (from, to) = (one.start % one.stride, other.start % one.stride);
    match to.checked_sub(from) {
        Some(phase) => phase,
        None => one.stride - (from - to),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Record;
    use super::*;
    use crate::naive;
    use proptest::prelude::*;

    fn line(start: u64, stride: u64, count: u64, block: u64) -> Hyperslab {
        Hyperslab {
            axes: [Axis {
                start,
                stride,
                count,
                block,
            }]
            .into_iter()
            .collect(),
        }
    }

    fn tiling(slabs: &[Hyperslab]) -> Tiling<()> {
        let records = slabs.iter().cloned().enumerate();
        let records = records.map(|(order, slab)| Record {
            slab,
            clip: None,
            order: order as u64,
            value: (),
        });
        Tiling::bulk(1, records.collect()).unwrap()
    }

    #[test]
    fn interleaved_ranks_do_not_count() {
        let ranks: Vec<Hyperslab> = (0..4).map(|rank| line(rank * 4, 16, 100, 4)).collect();
        let tiling = tiling(&ranks);
        for rank in &ranks {
            assert_eq!(tiling.out_of_step(rank, 9), 0);
        }
        // Longer lattices, and a part of one.
        assert_eq!(tiling.out_of_step(&line(4, 16, 120, 4), 9), 0);
        assert_eq!(tiling.out_of_step(&line(36, 16, 5, 4), 9), 0);
        // A shifted one, another step, and a box.
        assert_eq!(tiling.out_of_step(&line(2, 16, 100, 4), 9), 2);
        assert_eq!(tiling.out_of_step(&line(0, 24, 60, 4), 9), 4);
        assert_eq!(tiling.out_of_step(&line(0, 24, 60, 4), 3), 3);
        assert_eq!(tiling.out_of_step(&line(8, 1, 1, 400), 9), 4);
    }

    proptest! {
        #[test]
        fn a_lattice_that_shares_cells_in_step_is_solid((_, one, other) in naive::two_slabs()) {
            let (cells, others) = (naive::cells(&one), naive::cells(&other));
            let shares = cells.iter().any(|cell| others.contains(cell));
            if one.bounds().is_some() && other.bounds().is_some() && !other.is_box() {
                let counted = is_out_of_step(&one, &other);
                // Interleaved lattices share no cell; lattices in step are solid over it.
                if !counted && shares {
                    let bounds = flat::flat(&one.bounds().unwrap());
                    let mut image = flat::Flat::new();
                    if super::super::image::image_box(&other, &bounds, &mut image) {
                        prop_assert!(super::super::image::is_solid(&other, &image, &one));
                    }
                }
            }
        }
    }
}
