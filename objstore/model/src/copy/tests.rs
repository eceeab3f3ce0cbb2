//! Tests of copies against arrays visited cell by cell.

use super::*;
use crate::{Axis, Coords, naive};
use proptest::prelude::*;

fn dense(shape: &[u64]) -> Vec<u8> {
    (0..region::volume(shape))
        .map(|at| (at % 251 + 1) as u8)
        .collect()
}

proptest! {
    #[test]
    fn gather_packs_the_cells((shape, slab, _) in naive::two_slabs()) {
        let src = dense(&shape);
        let expected: Vec<u8> =
            naive::cells(&slab).iter().map(|cell| src[naive::offset(&shape, cell)]).collect();
        let mut packed = vec![0; expected.len()];
        gather(&src, &shape, &slab, &mut packed);
        prop_assert_eq!(packed, expected);
    }

    #[test]
    fn scatter_puts_them_back((shape, slab, _) in naive::two_slabs()) {
        let mut dst = vec![0; dense(&shape).len()];
        let mut expected = dst.clone();
        let packed: Vec<u8> = (0..slab.volume()).map(|at| (at % 251 + 1) as u8).collect();
        for (cell, byte) in naive::cells(&slab).iter().zip(&packed) {
            expected[naive::offset(&shape, cell)] = *byte;
        }
        scatter(&packed, &slab, &mut dst, &shape);
        prop_assert_eq!(dst, expected);
    }

    #[test]
    fn runs_follow_packed_order((shape, slab, _) in naive::two_slabs()) {
        let mut offsets = Vec::new();
        for_each_run(&shape, &slab, &mut |from, len| {
            assert!(len > 0);
            offsets.extend(from..from + len);
        });
        let expected: Vec<usize> =
            naive::cells(&slab).iter().map(|cell| naive::offset(&shape, cell)).collect();
        prop_assert_eq!(offsets, expected);
    }

    #[test]
    fn fill_follows_the_phase_of_the_last_axis(
        (shape, slab, _) in naive::two_slabs(),
        first in 0..9u64,
        bytes in prop::collection::vec(0..3u8, 1..6),
    ) {
        let mut dst = vec![9; dense(&shape).len()];
        let mut expected = dst.clone();
        for cell in naive::cells(&slab) {
            let at = (cell.last().copied().unwrap_or(0) + first) % bytes.len() as u64;
            expected[naive::offset(&shape, &cell)] = bytes[at as usize];
        }
        fill_slab_at(&mut dst, &shape, &slab, &Fill::from_bytes(&bytes), first);
        prop_assert_eq!(dst, expected);
    }

    #[test]
    fn elements_of_each_width_are_copied(elem in 1..18u64, step in 1..4u64, rows in 1..6u64) {
        let shape = [rows, 10 * elem];
        let slab = Hyperslab {
            axes: [Axis::span(0, rows), Axis { start: elem, stride: step * elem, count: 3, block: elem }]
                .into_iter()
                .collect(),
        };
        let src = dense(&shape);
        let mut packed = vec![0; slab.volume() as usize];
        gather(&src, &shape, &slab, &mut packed);
        let mut back = vec![0; src.len()];
        scatter(&packed, &slab, &mut back, &shape);
        let mut again = vec![0; packed.len()];
        gather(&back, &shape, &slab, &mut again);
        prop_assert_eq!(&packed, &again);
        let expected: Vec<u8> =
            naive::cells(&slab).iter().map(|cell| src[naive::offset(&shape, cell)]).collect();
        prop_assert_eq!(packed, expected);
    }
}

fn runs(shape: &[u64], axes: &[Axis]) -> Vec<(usize, usize)> {
    let slab = Hyperslab {
        axes: axes.iter().copied().collect(),
    };
    let mut runs = Vec::new();
    for_each_run(shape, &slab, &mut |from, len| runs.push((from, len)));
    runs
}

#[test]
fn full_trailing_axes_are_one_run() {
    let span = Axis::span;
    assert_eq!(
        runs(&[4, 5, 6], &[span(0, 4), span(0, 5), span(0, 6)]),
        [(0, 120)]
    );
    assert_eq!(
        runs(&[4, 5, 6], &[span(1, 2), span(0, 5), span(0, 6)]),
        [(30, 60)]
    );
    assert_eq!(
        runs(&[4, 5, 6], &[span(1, 1), span(2, 3), span(0, 6)]),
        [(42, 18)]
    );
    assert_eq!(
        runs(&[4, 5, 6], &[span(1, 2), span(2, 1), span(0, 6)]),
        [(42, 6), (72, 6)]
    );
    assert_eq!(
        runs(&[4, 6], &[Axis::every(0, 2, 2), span(0, 6)]),
        [(0, 6), (12, 6)]
    );
    assert_eq!(
        runs(&[4, 6], &[span(0, 2), Axis::every(1, 3, 2)]),
        [(1, 1), (4, 1), (7, 1), (10, 1)]
    );
    assert_eq!(runs(&[], &[]), [(0, 1)]);
    assert!(runs(&[4, 0], &[span(0, 4), span(0, 0)]).is_empty());
    assert!(runs(&[1 << 40, 1 << 40], &[span(0, 1 << 40), span(7, 0)]).is_empty());
}

#[test]
fn rows_at_one_distance_are_visited_as_one() {
    // A column through two axes: 3 × 20 rows of 4 at distance 30 are one row of 60 runs.
    let slab = Hyperslab::from_region(&crate::Region::new(&[2, 0, 8], &[3, 20, 4]));
    let mut rows = Vec::new();
    walk(&[10, 20, 30], &slab, Merge::All, |row| {
        rows.push((row.base, row.step, row.count, row.len))
    });
    assert_eq!(rows, [(2 * 600 + 8, 30, 60, 4)]);
}

#[test]
fn a_narrow_row_is_not_merged_with_the_next() {
    let shape: Coords = [2, 5].into_iter().collect();
    let mut dst = [0u8; 10];
    let full = Hyperslab::all(&shape);
    fill_slab(&mut dst, &shape, &full, &Fill::from_bytes(&[1, 2, 3]));
    assert_eq!(dst, [1, 2, 3, 1, 2, 1, 2, 3, 1, 2]);
}

#[test]
#[should_panic(expected = "outside of its array")]
fn a_slab_outside_is_refused() {
    let slab = Hyperslab::from_region(&crate::Region::new(&[1], &[4]));
    gather(&[0; 4], &[4], &slab, &mut [0; 4]);
}

#[test]
#[should_panic(expected = "bytes of the packed buffer")]
fn a_short_buffer_is_refused() {
    scatter(&[0; 3], &Hyperslab::all(&[4]), &mut [0; 4], &[4]);
}
