//! Tests of the boxes against the bytes of the runs they came from.

use super::*;
use crate::naive::{dims, offset, points};
use crate::region::volume;
use proptest::prelude::*;

/// How many boxes have each byte of the object.
fn painted(cells: &[u64], boxes: &[Region]) -> Vec<u8> {
    let mut bytes = vec![0; cells.iter().product::<u64>() as usize];
    for region in boxes {
        assert!(region.validate(cells).is_ok() && !region.is_empty());
        for point in points(region) {
            bytes[offset(cells, &point)] += 1;
        }
    }
    bytes
}

fn wanted(cells: &[u64], runs: &[Run]) -> Vec<u8> {
    let mut bytes = vec![0; cells.iter().product::<u64>() as usize];
    for run in runs {
        let from = (run.offset as usize).min(bytes.len());
        let to = (run.offset.saturating_add(run.len) as usize).min(bytes.len());
        bytes[from..to].fill(1);
    }
    bytes
}

/// Sorted disjoint runs, some of which touch; sometimes the last goes beyond the end.
fn runs() -> impl Strategy<Value = Vec<Run>> {
    prop::collection::vec((0..6u64, 0..12u64), 0..60).prop_map(|steps| {
        let mut at = 0;
        let next = |(gap, len)| {
            let run = Run {
                offset: at + gap,
                len,
            };
            at = run.offset + len;
            run
        };
        steps.into_iter().map(next).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn boxes_are_exactly_the_runs(cells in dims(), runs in runs(), max in 1..200u64) {
        let boxes = coalesce(&cells, &runs, max);
        prop_assert_eq!(painted(&cells, &boxes), wanted(&cells, &runs));
        prop_assert!(boxes.iter().all(|region| region.volume() <= max));
        let full = coalesce(&cells, &runs, u64::MAX);
        prop_assert_eq!(painted(&cells, &full), wanted(&cells, &runs));
        let mut single = Vec::new();
        runs.iter().for_each(|run| boxes_of_run(&cells, run.offset, run.len, &mut single));
        prop_assert!(full.len() <= single.len());
    }

    #[test]
    fn a_run_is_few_boxes(cells in dims(), from in 0..2500u64, len in 0..2500u64) {
        let mut boxes = Vec::new();
        boxes_of_run(&cells, from, len, &mut boxes);
        prop_assert_eq!(painted(&cells, &boxes), wanted(&cells, &[Run { offset: from, len }]));
        prop_assert!(boxes.len() < (2 * cells.len()).max(2));
        let first = |region: &Region| offset(&cells, &region.offset);
        prop_assert!(boxes.is_sorted_by_key(first));
    }

    #[test]
    fn the_runs_of_a_box_become_that_box((cells, region) in dims().prop_flat_map(|dims| {
        let region = crate::naive::region(&dims);
        (Just(dims), region)
    })) {
        let runs: Vec<Run> = points(&region).iter()
            .map(|point| Run { offset: offset(&cells, point) as u64, len: 1 }).collect();
        let expected = if region.is_empty() { vec![] } else { vec![region] };
        prop_assert_eq!(coalesce(&cells, &runs, u64::MAX), expected);
    }

    #[test]
    fn runs_may_come_in_any_order(
        cells in dims(),
        runs in prop::collection::vec((0..2500u64, 0..30u64), 0..30),
    ) {
        let runs: Vec<Run> = runs.into_iter().map(|(offset, len)| Run { offset, len }).collect();
        let boxes = coalesce(&cells, &runs, u64::MAX);
        prop_assert_eq!(painted(&cells, &boxes), wanted(&cells, &runs));
    }
}

fn rows(width: u64, rows: impl Iterator<Item = (u64, u64, u64)>) -> Vec<Run> {
    rows.map(|(row, from, to)| Run {
        offset: row * width + from,
        len: to - from,
    })
    .collect()
}

#[test]
fn ten_rows_of_nine_are_one_box() {
    let runs = rows(16, (3..13).map(|row| (row, 2, 11)));
    assert_eq!(
        coalesce(&[16, 16], &runs, u64::MAX),
        [Region::new(&[3, 2], &[10, 9])]
    );
}

#[test]
fn rows_of_elements_are_one_box_in_bytes() {
    // The document's first selection: 10 x 9 elements of 4 bytes.
    let runs = rows(64, (0..10).map(|row| (row, 0, 36)));
    assert_eq!(
        coalesce(&[16, 64], &runs, u64::MAX),
        [Region::new(&[0, 0], &[10, 36])]
    );
}

#[test]
fn uneven_rows_are_a_box_for_each_width() {
    let widths = [9, 9, 9, 5, 5, 9, 9];
    let runs = rows(
        16,
        widths.iter().zip(0..).map(|(&width, row)| (row, 0, width)),
    );
    let expected = [
        Region::new(&[0, 0], &[3, 9]),
        Region::new(&[3, 0], &[2, 5]),
        Region::new(&[5, 0], &[2, 9]),
    ];
    assert_eq!(coalesce(&[16, 16], &runs, u64::MAX), expected);
}

#[test]
fn adjacent_columns_stay_apart_and_planes_join() {
    let mut runs = Vec::new();
    for (plane, row) in (0..4).flat_map(|plane| (1..6).map(move |row| (plane, row))) {
        let row = plane * 8 + row;
        runs.extend([
            Run {
                offset: row * 10,
                len: 3,
            },
            Run {
                offset: row * 10 + 5,
                len: 2,
            },
        ]);
    }
    let expected = [
        Region::new(&[0, 1, 0], &[4, 5, 3]),
        Region::new(&[0, 1, 5], &[4, 5, 2]),
    ];
    assert_eq!(coalesce(&[6, 8, 10], &runs, u64::MAX), expected);
}

#[test]
fn large_boxes_are_cut_along_the_slowest_axis() {
    let all = [Run {
        offset: 0,
        len: 1000,
    }];
    let boxes = coalesce(&[10, 100], &all, 350);
    let shapes: Vec<_> = boxes.iter().map(|region| region.shape.to_vec()).collect();
    assert_eq!(shapes, [[3, 100], [3, 100], [3, 100], [1, 100]]);
    // Not even one row fits: each row is cut.
    let boxes = coalesce(&[10, 100], &all, 40);
    assert_eq!(boxes.len(), 30);
    assert_eq!(boxes[1], Region::new(&[0, 40], &[1, 40]));
    assert_eq!(coalesce(&[10, 100], &all, 0).len(), 1000);
}

#[test]
fn the_edge_of_64_bits() {
    let large = 1u64 << 62;
    let max = u64::MAX;
    assert_eq!(
        coalesce(
            &[large, 2],
            &[Run {
                offset: 2 * large - 3,
                len: 3
            }],
            max
        ),
        [
            Region::new(&[large - 2, 1], &[1, 1]),
            Region::new(&[large - 1, 0], &[1, 2])
        ]
    );
    assert_eq!(
        coalesce(
            &[max],
            &[
                Run {
                    offset: 5,
                    len: max
                },
                Run {
                    offset: max,
                    len: max
                }
            ],
            max
        ),
        [Region::new(&[5], &[max - 5])]
    );
    // More cells than 64 bits count: offsets reach only the first rows.
    let boxes = coalesce(
        &[max, max, max],
        &[Run {
            offset: 1,
            len: max,
        }],
        max,
    );
    assert_eq!(boxes, [Region::new(&[0, 0, 1], &[1, 1, max - 1])]);
    let mut boxes = Vec::new();
    boxes_of_run(&[0, max, max], 0, max, &mut boxes);
    boxes_of_run(&[4], max, max, &mut boxes);
    boxes_of_run(&[4], 3, 0, &mut boxes);
    assert_eq!(boxes, []);
    boxes_of_run(&[], 0, 7, &mut boxes);
    assert_eq!(boxes, [Region::new(&[], &[])]);
}

#[test]
fn a_million_scattered_cells_are_not_lost() {
    let cells = [4096u64, 4096];
    let mut state = 1u64;
    let mut at = 0;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        at += 1 + (state >> 33) % 31;
        Run { offset: at, len: 1 }
    };
    let runs: Vec<Run> = (0..1_000_000).map(|_| next()).collect();
    let boxes = coalesce(&cells, &runs, u64::MAX);
    assert_eq!(
        boxes
            .iter()
            .map(|region| volume(&region.shape))
            .sum::<u64>(),
        1_000_000
    );
}
