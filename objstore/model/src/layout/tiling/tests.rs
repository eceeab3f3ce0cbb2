//! Tests of the tiling against an array that is painted cell by cell.

use super::*;
use crate::naive::{cells, offset, region, slab};
use crate::{Axis, Coords, gather, scatter};
use proptest::prelude::*;

const FILL: u8 = 0xff;

/// Dims small enough to paint, some of rank 0 and some with an axis of length 0.
fn dims() -> impl Strategy<Value = Coords> {
    crate::naive::dims()
}

/// The byte of a chunk at a packed index.
fn byte(order: u64, index: usize) -> u8 {
    ((order * 31 + index as u64 * 7) % 251) as u8
}

fn chunk(record: &Record<()>) -> Vec<u8> {
    (0..record.slab.volume() as usize)
        .map(|index| byte(record.order, index))
        .collect()
}

fn shows(record: &Record<()>, point: &[u64]) -> bool {
    record
        .clip
        .as_ref()
        .is_none_or(|clip| clip.contains_point(point))
}

/// The array that these records make, painted oldest first.
fn paint<'a>(dims: &[u64], records: impl Iterator<Item = &'a Record<()>>) -> Vec<u8> {
    let mut array = vec![FILL; dims.iter().product::<u64>() as usize];
    for record in records {
        for (index, point) in cells(&record.slab).iter().enumerate() {
            if shows(record, point) {
                array[offset(dims, point)] = byte(record.order, index);
            }
        }
    }
    array
}

/// The result of a read of `want`: the holes filled, then the parts painted in order.
fn read(tiling: &Tiling<()>, want: &Hyperslab) -> Vec<u8> {
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    tiling.plan(want, &mut parts, &mut holes);
    let shape = want.packed_shape();
    let mut out = vec![0xfe; want.volume() as usize];
    for hole in &holes {
        assert!(!hole.is_empty());
        let fill = vec![FILL; hole.volume() as usize];
        scatter(&fill, &Hyperslab::from_region(hole), &mut out, &shape);
    }
    let (mut last, mut solid) = (None, vec![false; out.len()]);
    for part in &parts {
        assert!(last <= Some(part.record.order), "oldest first");
        last = Some(part.record.order);
        assert_eq!(part.want.packed_shape(), part.chunk.packed_shape());
        assert!(!part.want.is_empty());
        let mut bytes = vec![0; part.chunk.volume() as usize];
        gather(
            &chunk(part.record),
            &part.record.slab.packed_shape(),
            &part.chunk,
            &mut bytes,
        );
        scatter(&bytes, &part.want, &mut out, &shape);
        assert!(part.solid || !part.record.slab.is_box());
        if part.solid {
            for point in cells(&part.want) {
                let at = offset(&shape, &point);
                assert!(!solid[at], "solid parts overlap");
                solid[at] = true;
            }
        }
    }
    out
}

fn select(dims: &[u64], array: &[u8], want: &Hyperslab) -> Vec<u8> {
    let mut out = vec![0; want.volume() as usize];
    gather(array, dims, want, &mut out);
    out
}

fn boxes_or_lattices(dims: &[u64]) -> impl Strategy<Value = Hyperslab> + use<> {
    let boxes = region(dims).prop_map(|region| Hyperslab::from_region(&region));
    prop_oneof![boxes, slab(dims)]
}

fn records(dims: &[u64], most: usize) -> impl Strategy<Value = Vec<Record<()>>> + use<> {
    let one = (
        boxes_or_lattices(dims),
        prop::option::weighted(0.3, region(dims)),
    );
    prop::collection::vec(one, 0..most).prop_map(|records| {
        let numbered = records.into_iter().enumerate();
        numbered
            .map(|(at, (slab, clip))| Record {
                slab,
                clip,
                order: at as u64 * 3,
                value: (),
            })
            .collect()
    })
}

type Scene = (Coords, Vec<Record<()>>, Vec<Hyperslab>);

fn scene(most: usize) -> impl Strategy<Value = Scene> {
    dims().prop_flat_map(move |dims| {
        let wants = prop::collection::vec(boxes_or_lattices(&dims), 1..4);
        let records = records(&dims, most);
        (Just(dims), records, wants)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_plan_shows_the_newest((dims, records, wants) in scene(14), seed: u64) {
        let array = paint(&dims, records.iter());
        let mut shuffled = records.clone();
        shuffled.sort_by_key(|record| record.order.wrapping_mul(seed | 1));
        let bulk = Tiling::bulk(dims.len(), shuffled.clone()).unwrap();
        let mut tiling = Tiling::new(dims.len());
        for record in shuffled {
            tiling.insert(record).unwrap();
        }
        prop_assert!(bulk.iter().eq(&records));
        prop_assert!(tiling.iter().eq(&records));
        let full = Hyperslab::from_region(&Region::all(&dims));
        for want in wants.iter().chain([&full]).chain(records.iter().map(|record| &record.slab)) {
            let naive = select(&dims, &array, want);
            prop_assert_eq!(&read(&bulk, want), &naive);
            prop_assert_eq!(&read(&tiling, want), &naive);
        }
    }

    #[test]
    fn a_removed_record_is_not_visible((dims, mut records, wants) in scene(14), pick: Vec<bool>) {
        let mut tiling = Tiling::bulk(dims.len(), records.clone()).unwrap();
        for (record, &go) in records.iter().zip(&pick) {
            if go {
                prop_assert_eq!(tiling.remove(record.order), Some(record.clone()));
                prop_assert_eq!(tiling.remove(record.order), None);
            }
        }
        let mut pick = pick.into_iter();
        records.retain(|_| !pick.next().unwrap_or(false));
        prop_assert_eq!(tiling.len(), records.len());
        prop_assert_eq!(tiling.is_empty(), records.is_empty());
        prop_assert_eq!(tiling.newest(), records.last().map(|record| record.order));
        let array = paint(&dims, records.iter());
        for want in &wants {
            prop_assert_eq!(read(&tiling, want), select(&dims, &array, want));
        }
    }

    /// Records outside a window have no visible cell in it.
    #[test]
    fn a_window_has_all_visible_records((dims, records, wants) in scene(14), most in 0usize..16) {
        let tiling = Tiling::bulk(dims.len(), records).unwrap();
        for want in wants {
            let Some(bounds) = want.bounds() else { continue };
            let window = tiling.window(&bounds, &dims, most);
            prop_assert!(window.contains(&bounds));
            prop_assert!(window == bounds || tiling.has_at_most(most, &window));
            let orders = tiling.orders_within(&window);
            prop_assert_eq!(tiling.has_at_most(orders.len(), &window), true);
            if let Some(fewer) = orders.len().checked_sub(1) {
                prop_assert_eq!(tiling.has_at_most(fewer, &window), false);
            }
            prop_assert!(orders.is_sorted());
            let part = orders.iter().filter_map(|&order| tiling.get(order).cloned());
            let part = Tiling::bulk(dims.len(), part.collect()).unwrap();
            let inside = Hyperslab::from_region(&window);
            prop_assert_eq!(read(&part, &inside), read(&tiling, &inside));
        }
    }

    #[test]
    fn shadowed_records_can_be_removed((dims, records, _) in scene(14)) {
        let mut tiling = Tiling::new(dims.len());
        for (at, record) in records.iter().enumerate() {
            let hidden = tiling.shadowed_by(record);
            tiling.insert(record.clone()).unwrap();
            prop_assert_eq!(tiling.shadowed_by(record), hidden.clone(), "in already");
            for order in hidden {
                prop_assert!(tiling.remove(order).is_some());
            }
            let left = paint(&dims, tiling.iter());
            prop_assert_eq!(left, paint(&dims, records[..=at].iter()));
        }
    }

    #[test]
    fn no_hidden_box_stays(
        (dims, boxes) in dims().prop_flat_map(|dims| {
            let boxes = prop::collection::vec(region(&dims), 0..30);
            (Just(dims), boxes)
        })
    ) {
        let mut tiling = Tiling::new(dims.len());
        for (order, region) in boxes.iter().enumerate().filter(|(_, region)| !region.is_empty()) {
            let slab = Hyperslab::from_region(region);
            let record = Record { slab, clip: None, order: order as u64, value: () };
            for order in tiling.shadowed_by(&record) {
                tiling.remove(order).unwrap();
            }
            tiling.insert(record).unwrap();
            let all: Vec<_> = tiling.iter().collect();
            for (at, record) in all.iter().enumerate() {
                let hidden = cells(&record.slab).iter().all(|point| {
                    let over = |newer: &&Record<()>| newer.slab.as_region().unwrap().contains_point(point);
                    all[at + 1..].iter().any(over)
                });
                prop_assert!(!hidden, "{:?} is hidden", record.slab);
            }
        }
    }

    #[test]
    fn a_shrink_cuts_permanently(
        (dims, records, wants) in scene(14),
        (keep, later) in (any::<Vec<u8>>(), any::<usize>()),
    ) {
        let smaller: Coords = dims.iter().zip(keep.iter().chain(std::iter::repeat(&255)))
            .map(|(&dim, &keep)| dim.min(u64::from(keep) % 9)).collect();
        let later = later % (records.len() + 1);
        let mut tiling = Tiling::bulk(dims.len(), records[..later].to_vec()).unwrap();
        let (removed, clipped) = tiling.clip_to(&smaller);

        let inside = Region::all(&smaller);
        let mut naive: Vec<Record<()>> = records[..later].to_vec();
        let visible = |record: &Record<()>, within: &Region| cells(&record.slab).iter()
            .filter(|point| shows(record, point) && within.contains_point(point)).count();
        let everywhere = Region::all(&dims);
        let gone: Vec<_> = naive.iter()
            .filter(|record| visible(record, &everywhere) > 0 && visible(record, &inside) == 0)
            .cloned().collect();
        prop_assert_eq!(removed, gone);
        let cut: Vec<_> = naive.iter()
            .filter(|record| (1..visible(record, &everywhere)).contains(&visible(record, &inside)))
            .map(|record| record.order).collect();
        prop_assert_eq!(clipped, cut);

        // Grown again, and written to afterwards.
        for record in &mut naive {
            let clip = record.clip.clone().unwrap_or_else(|| Region::all(&dims));
            record.clip = Some(clip.intersect(&inside).unwrap_or(Region::new(
                &Coords::from_elem(0, dims.len()), &Coords::from_elem(0, dims.len()))));
        }
        naive.retain(|record| visible(record, &inside) > 0);
        for record in &records[later..] {
            tiling.insert(record.clone()).unwrap();
            naive.push(record.clone());
        }
        let array = paint(&dims, naive.iter());
        for want in &wants {
            prop_assert_eq!(read(&tiling, want), select(&dims, &array, want));
        }
    }
}

fn boxed(order: u64, offset: &[u64], shape: &[u64]) -> Record<()> {
    let slab = Hyperslab::from_region(&Region::new(offset, shape));
    Record {
        slab,
        clip: None,
        order,
        value: (),
    }
}

fn plan<'a>(tiling: &'a Tiling<()>, want: &Region) -> (Vec<Part<'a, ()>>, Vec<Region>) {
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    tiling.plan(&Hyperslab::from_region(want), &mut parts, &mut holes);
    (parts, holes)
}

#[test]
fn a_plan_of_many_records_uses_the_pyramid() {
    // 40 x 40 tiles of 3 x 5 with one in three missing, then every fifth column overwritten.
    let dims = [120, 200];
    let mut records = Vec::new();
    for (row, column) in (0..40).flat_map(|row| (0..40).map(move |column| (row, column))) {
        if (row + column) % 3 != 0 {
            records.push(boxed(row * 40 + column, &[row * 3, column * 5], &[3, 5]));
        }
    }
    for column in (0..200).step_by(7) {
        records.push(boxed(5000 + column, &[0, column], &[120, 2]));
    }
    let array = paint(&dims, records.iter());
    let tiling = Tiling::bulk(2, records).unwrap();
    let step = |start, count| Axis {
        start,
        stride: 3,
        count,
        block: 2,
    };
    for want in [
        Hyperslab::from_region(&Region::all(&dims)),
        Hyperslab::from_region(&Region::new(&[7, 3], &[100, 150])),
        Hyperslab {
            axes: [step(1, 30), step(4, 60)].into_iter().collect(),
        },
    ] {
        assert_eq!(read(&tiling, &want), select(&dims, &array, &want));
    }
}

#[test]
fn an_uncut_chunk_is_one_part() {
    let tiles = [[0, 0], [0, 10], [9, 0], [9, 10]].into_iter().enumerate();
    let records = tiles
        .map(|(order, at)| boxed(order as u64, &at, &[9, 10]))
        .collect();
    let tiling = Tiling::bulk(2, records).unwrap();
    let (parts, holes) = plan(&tiling, &Region::new(&[3, 3], &[10, 10]));
    assert_eq!((parts.len(), holes.len()), (4, 0));
    let (parts, holes) = plan(&tiling, &Region::new(&[3, 3], &[6, 7]));
    assert_eq!((parts.len(), holes.len()), (1, 0));
    let (parts, holes) = plan(&tiling, &Region::new(&[30, 3], &[6, 7]));
    assert_eq!(
        (parts.len(), holes),
        (0, vec![Region::new(&[0, 0], &[6, 7])])
    );
}

/// Rows of a large array: a window covers a full row, extends ahead, and a little back.
#[test]
fn a_window_grows_in_reading_direction() {
    let rows = (0..100_000).map(|row| boxed(row, &[row, 0], &[1, 8]));
    let tiling = Tiling::bulk(2, rows.collect()).unwrap();
    let cell = Region::new(&[500, 3], &[1, 1]);
    let window = tiling.window(&cell, &[100_000, 8], 256);
    assert_eq!((window.offset[1], window.shape[1]), (0, 8));
    assert!(
        window.offset[0] <= 500 && window.end(0) >= 600,
        "{window:?}"
    );
    assert!((128..=256).contains(&window.shape[0]), "{window:?}");
    let end = tiling.window(&Region::new(&[99_999, 0], &[1, 8]), &[100_000, 8], 256);
    assert!(end.end(0) == 100_000 && end.shape[0] > 100, "{end:?}");
    assert_eq!(tiling.after(99_000).count(), 999);
    let far = Region::new(&[u64::MAX, u64::MAX], &[u64::MAX, u64::MAX]);
    assert_eq!(tiling.window(&far, &[100_000, 8], 256).end(0), u64::MAX);
    assert!(tiling.orders_within(&Region::new(&[1], &[1])).is_empty());
}

#[test]
fn a_lattice_read_as_it_was_written_is_one_part_and_no_hole() {
    let axis = |count| Axis {
        start: 1,
        stride: 8,
        count,
        block: 4,
    };
    let slab = Hyperslab {
        axes: [Axis::every(0, 2, 50), axis(40)].into_iter().collect(),
    };
    let mut tiling = Tiling::new(2);
    tiling.insert(boxed(1, &[0, 0], &[100, 400])).unwrap();
    tiling
        .insert(Record {
            slab: slab.clone(),
            clip: None,
            order: 2,
            value: (),
        })
        .unwrap();
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    tiling.plan(&slab, &mut parts, &mut holes);
    assert_eq!((parts.len(), holes.len()), (1, 0));
    assert_eq!(parts[0].record.order, 2);
    let again = Record {
        slab,
        clip: None,
        order: 3,
        value: (),
    };
    assert_eq!(tiling.shadowed_by(&again), [2]);
}

#[test]
fn rows_over_columns_hide_all_columns() {
    let n = 60;
    let columns = (0..n).map(|at| boxed(at, &[0, at], &[n, 1])).collect();
    let mut tiling = Tiling::bulk(2, columns).unwrap();
    for at in 0..n {
        let row = boxed(n + at, &[at, 0], &[1, n]);
        let hidden = tiling.shadowed_by(&row);
        tiling.insert(row).unwrap();
        assert_eq!(hidden.len() as u64, if at + 1 == n { n } else { 0 });
    }
}

/// n columns overwritten by every second of n rows have as many visible parts as there are crossings; a plan lists no
/// more than the caller's limit.
#[test]
fn a_plan_is_bounded() {
    const N: u64 = 100;
    let mut tiling = Tiling::new(2);
    for n in 0..N {
        let column = boxed(n, &[0, n], &[2 * N, 1]);
        tiling.insert(column).unwrap();
    }
    for n in 0..N {
        let row = boxed(N + n, &[2 * n, 0], &[1, N]);
        tiling.insert(row).unwrap();
    }
    let want = Hyperslab::all(&[2 * N, N]);
    let all = (N * N + N) as usize;
    let plan = |most| {
        let (mut parts, mut holes) = (Vec::new(), Vec::new());
        let planned = tiling.plan_within(&want, most, &mut parts, &mut holes);
        assert!(planned.is_err() || holes.is_empty());
        (planned, parts.len())
    };
    assert_eq!(plan(all), (Ok(()), all));
    for most in [0, 1, 100, 5000, all - 1] {
        let (planned, parts) = plan(most);
        assert_eq!(planned, Err(TooMany));
        assert!(parts <= most + 1, "{parts} of {most}");
    }
}

#[test]
fn the_search_for_shadows_is_bounded() {
    // A big box under a checkerboard of single cells: 80000 of them, and it falls into pieces.
    let mut records = vec![boxed(0, &[0, 0], &[400, 400])];
    for at in (0..400u64 * 400).filter(|at| (at / 400 + at) % 2 == 0) {
        records.push(boxed(1 + at, &[at / 400, at % 400], &[1, 1]));
    }
    let tiling = Tiling::bulk(2, records).unwrap();
    assert_eq!(tiling.shadowed_by(&boxed(1 << 40, &[0, 0], &[1, 2])), [1]);
    let all: u64 = tiling
        .shadowed_by(&boxed(1 << 40, &[0, 0], &[400, 400]))
        .len() as u64;
    assert_eq!(
        all,
        tiling.len() as u64,
        "the budget does not bound what one box hides alone"
    );
}

#[test]
fn coordinates_at_the_end_of_64_bits() {
    let last = u64::MAX;
    let mut tiling = Tiling::new(2);
    tiling.insert(boxed(1, &[0, 0], &[last, last])).unwrap();
    tiling
        .insert(boxed(2, &[last - 1, last - 1], &[1, 1]))
        .unwrap();
    tiling.insert(boxed(3, &[last - 9, 0], &[9, 1])).unwrap();
    let (parts, holes) = plan(&tiling, &Region::new(&[last - 2, last - 2], &[2, 2]));
    assert_eq!(holes, []);
    assert_eq!(parts.iter().map(|part| part.want.volume()).sum::<u64>(), 4);
    let (parts, holes) = plan(&tiling, &Region::new(&[0, 0], &[last, last]));
    assert_eq!(holes, []);
    assert!(parts.len() > 2);
    let (removed, clipped) = tiling.clip_to(&[last - 5]);
    assert_eq!((removed.len(), clipped), (1, vec![1, 3]));
}

#[test]
fn wrong_records_are_refused() {
    let mut tiling = Tiling::new(2);
    tiling.insert(boxed(1, &[0, 0], &[1, 1])).unwrap();
    let taken = TilingError::OrderTaken { order: 1 };
    assert_eq!(
        tiling.insert(boxed(1, &[5, 5], &[1, 1])),
        Err(taken.clone())
    );
    let twice = vec![boxed(1, &[0, 0], &[1, 1]), boxed(1, &[0, 0], &[1, 1])];
    assert_eq!(Tiling::bulk(2, twice).unwrap_err(), taken);
    for wrong in [
        boxed(2, &[0], &[1]),
        boxed(2, &[0, 2], &[1, u64::MAX]),
        Record {
            clip: Some(Region::new(&[0], &[1])),
            ..boxed(2, &[0, 0], &[1, 1])
        },
    ] {
        let refused = tiling.insert(wrong.clone());
        assert!(
            matches!(refused, Err(TilingError::Geometry { order: 2, .. })),
            "{refused:?}"
        );
        assert!(Tiling::bulk(2, vec![wrong]).is_err());
    }
    assert!(
        Tiling::new(33)
            .insert(boxed(1, &[0; 33], &[1; 33]))
            .is_err()
    );
    assert_eq!(tiling.len(), 1);
    let (parts, holes) = plan(&tiling, &Region::new(&[1], &[4]));
    assert_eq!((parts.len(), holes), (0, vec![Region::new(&[0], &[4])]));
    assert!(tiling.shadowed_by(&boxed(9, &[0], &[4])).is_empty());
}
