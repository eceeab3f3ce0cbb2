//! Tests of hyperslabs against lists of their cells.

use super::*;
use crate::naive;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn axes(axes: &[(u64, u64, u64, u64)]) -> Hyperslab {
    let axis = |&(start, stride, count, block): &(u64, u64, u64, u64)| Axis {
        start,
        stride,
        count,
        block,
    };
    Hyperslab {
        axes: axes.iter().map(axis).collect(),
    }
}

/// A map from packed coordinates to cells.
fn packed_map(slab: &Hyperslab) -> BTreeMap<Coords, Coords> {
    let packed = naive::points(&Region::all(&slab.packed_shape()));
    let cells = naive::cells(slab);
    assert_eq!(packed.len(), cells.len());
    packed.into_iter().zip(cells).collect()
}

fn dims_slab_and_box() -> impl Strategy<Value = (Hyperslab, Region)> {
    naive::dims()
        .prop_flat_map(|dims| naive::slab(&dims))
        .prop_flat_map(|slab| {
            // One longer than the packed shape: the part outside is cut off.
            let room: Coords = slab.packed_shape().iter().map(|len| len + 1).collect();
            (Just(slab), naive::region(&room))
        })
}

proptest! {
    #[test]
    fn properties_follow_from_the_cells((dims, slab, _) in naive::two_slabs()) {
        let cells = naive::cells(&slab);
        prop_assert!(slab.validate(&dims).is_ok());
        prop_assert_eq!(slab.volume(), cells.len() as u64);
        prop_assert_eq!(slab.is_empty(), cells.is_empty());
        let normal = slab.normal();
        prop_assert_eq!(&naive::cells(&normal), &cells);
        prop_assert_eq!(normal.packed_shape(), slab.packed_shape());
        match slab.as_region() {
            Some(region) => {
                prop_assert_eq!(naive::points(&region), cells.clone());
                prop_assert_eq!(Hyperslab::from_region(&region), normal);
            }
            None => prop_assert!(!slab.is_box()),
        }
        match slab.bounds() {
            None => prop_assert!(cells.is_empty()),
            Some(bounds) => for axis in 0..dims.len() {
                let on_axis = || cells.iter().map(|cell| cell[axis]);
                prop_assert_eq!(Some(bounds.offset[axis]), on_axis().min());
                prop_assert_eq!(Some(bounds.end(axis) - 1), on_axis().max());
            },
        }
    }

    #[test]
    fn an_axis_maps_both_ways((dims, slab, _) in naive::two_slabs(), lo in 0..9u64, len in 0..9u64) {
        for (at, axis) in slab.axes.iter().enumerate() {
            let one = Hyperslab { axes: SmallVec::from_slice(&[*axis]) };
            let cells: Vec<u64> = naive::cells(&one).iter().map(|cell| cell[0]).collect();
            for (index, &cell) in cells.iter().enumerate() {
                prop_assert_eq!(axis.cell(index as u64), cell);
            }
            let hi = lo + len;
            let expected: Vec<u64> = (0..cells.len() as u64)
                .filter(|&index| (lo..hi).contains(&cells[index as usize]))
                .collect();
            prop_assert_eq!(slab.index_range(at, lo, hi).collect::<Vec<_>>(), expected);
            prop_assert!(axis.end() <= dims[at]);
        }
    }

    #[test]
    fn parts_are_the_cells_of_the_box((slab, packed) in dims_slab_and_box()) {
        let map = packed_map(&slab);
        let expected: BTreeMap<_, _> =
            map.into_iter().filter(|(index, _)| packed.contains_point(index)).collect();
        let mut found = BTreeMap::new();
        for (region, cells) in slab.parts(&packed) {
            prop_assert_eq!(&region.shape, &cells.packed_shape());
            prop_assert_eq!(&cells, &cells.normal());
            for (index, cell) in naive::points(&region).into_iter().zip(naive::cells(&cells)) {
                prop_assert!(found.insert(index, cell).is_none(), "parts overlap");
            }
        }
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn intersect_pairs_the_same_cells((_, want, have) in naive::two_slabs()) {
        let (in_want, in_have) = (packed_map(&want), packed_map(&have));
        let mut pairs = Vec::new();
        intersect(&want, &have, &mut pairs);
        if want.is_box() && have.is_box() {
            prop_assert!(pairs.len() <= 1);
        }
        let mut found = BTreeMap::new();
        for (one, two) in &pairs {
            prop_assert!(one.validate(&want.packed_shape()).is_ok());
            prop_assert!(two.validate(&have.packed_shape()).is_ok());
            prop_assert_eq!(one.packed_shape(), two.packed_shape());
            for (one, two) in naive::cells(one).into_iter().zip(naive::cells(two)) {
                let cell = &in_want[&one];
                prop_assert_eq!(cell, &in_have[&two]);
                prop_assert!(found.insert(cell.clone(), ()).is_none(), "pairs overlap");
            }
        }
        let wanted: BTreeMap<_, _> = in_want.values().map(|cell| (cell.clone(), ())).collect();
        let expected: BTreeMap<_, _> = in_have
            .values()
            .filter(|cell| wanted.contains_key(*cell))
            .map(|cell| (cell.clone(), ()))
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn two_lattices_on_one_axis_match(
        one in (0..40u64, 1..5u64, 0..9u64, 1..30u64),
        two in (0..40u64, 1..5u64, 0..9u64, 1..30u64),
    ) {
        let lattice = |(start, block, gap, count): (u64, u64, u64, u64)| {
            axes(&[(start, block + gap, count, block)])
        };
        let (want, have) = (lattice(one), lattice(two));
        let (in_want, in_have) = (naive::cells(&want), naive::cells(&have));
        let mut pairs = Vec::new();
        intersect(&want, &have, &mut pairs);
        let mut found = Vec::new();
        for (one, two) in &pairs {
            prop_assert_eq!(one.volume(), two.volume());
            for (one, two) in naive::cells(one).iter().zip(naive::cells(two)) {
                prop_assert_eq!(&in_want[one[0] as usize], &in_have[two[0] as usize]);
                found.push(in_want[one[0] as usize].clone());
            }
        }
        found.sort();
        let expected: Vec<_> =
            in_want.into_iter().filter(|cell| in_have.contains(cell)).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn to_cells_scales_the_last_axis((dims, slab, _) in naive::two_slabs(), elem in 1..5u64) {
        let cells = slab.to_cells(elem).unwrap();
        let space = crate::Space::new(&dims, elem).cells().unwrap();
        prop_assert!(cells.validate(&space).is_ok());
        let mut expected = Vec::new();
        for cell in naive::cells(&slab) {
            for byte in 0..elem {
                let mut cell = cell.clone();
                match cell.last_mut() {
                    Some(last) => *last = *last * elem + byte,
                    None => cell.push(byte),
                }
                expected.push(cell);
            }
        }
        prop_assert_eq!(naive::cells(&cells), expected);
    }

    #[test]
    fn wild_axes_are_refused_without_a_panic(
        start in wild(), stride in wild(), count in wild(), block in wild(), limit in wild(),
    ) {
        let slab = axes(&[(start, stride, count, block)]);
        let _ = (slab.volume(), slab.normal(), slab.bounds(), slab.is_box(), slab.packed_shape());
        let _ = slab.to_cells(16);
        if slab.validate(&[limit]).is_ok() {
            let last = u128::from(start)
                + u128::from(count.max(1) - 1) * u128::from(if count > 1 { stride } else { 0 })
                + u128::from(block);
            prop_assert!(count == 0 || block == 0 || last <= u128::from(limit));
            // An accepted slab can be used.
            let mut pairs = Vec::new();
            let edge = Hyperslab::from_region(&Region::new(&[limit / 2], &[limit - limit / 2]));
            intersect(&slab, &edge, &mut pairs);
            intersect(&edge, &slab, &mut pairs);
            let _ = slab.parts(&Region::new(&[1], &[u64::MAX]));
        }
    }
}

fn wild() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..4u64,
        (0..4u64).prop_map(|n| u64::MAX - n),
        (0..64u32).prop_map(|n| 1 << n),
        any::<u64>()
    ]
}

#[test]
fn equal_strides_match_in_two_pairs_at_most() {
    let want = axes(&[(0, 10, 1 << 40, 4)]);
    let mut pairs = Vec::new();
    intersect(&want, &want, &mut pairs);
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs[0].0.volume(), 4 << 40);
    pairs.clear();
    intersect(&want, &axes(&[(2, 10, 1 << 40, 9)]), &mut pairs);
    assert_eq!(pairs.len(), 2);
    pairs.clear();
    intersect(&want, &axes(&[(5, 10, 1 << 40, 5)]), &mut pairs);
    assert!(pairs.is_empty());
}

#[test]
fn a_box_cuts_a_lattice_in_three() {
    // Blocks of 4 at 0, 10, 20, 30; the box begins and ends inside blocks.
    let lattice = axes(&[(0, 10, 4, 4)]);
    let mut pairs = Vec::new();
    intersect(&axes(&[(2, 30, 1, 30)]), &lattice, &mut pairs);
    assert_eq!(
        pairs,
        vec![
            (axes(&[(0, 2, 1, 2)]), axes(&[(2, 2, 1, 2)])),
            (axes(&[(8, 10, 2, 4)]), axes(&[(4, 8, 1, 8)])),
            (axes(&[(28, 2, 1, 2)]), axes(&[(12, 2, 1, 2)])),
        ]
    );
}

#[test]
fn validate_says_what_is_wrong() {
    assert_eq!(
        axes(&[(0, 1, 2, 2)]).validate(&[9]),
        Err(GeometryError::BadPattern {
            axis: 0,
            stride: 1,
            block: 2
        })
    );
    assert_eq!(
        axes(&[(0, 5, 2, 2)]).validate(&[6]),
        Err(GeometryError::Outside {
            axis: 0,
            end: 7,
            limit: 6
        })
    );
    assert_eq!(
        axes(&[]).validate(&[6]),
        Err(GeometryError::RankMismatch { got: 0, want: 1 })
    );
    assert!(axes(&[(6, 0, 1, 0)]).validate(&[6]).is_ok());
    assert!(matches!(
        axes(&[(1 << 62, 1, 1, 1)]).to_cells(8),
        Err(GeometryError::Outside { axis: 0, .. })
    ));
}

#[test]
fn hyperslabs_travel() {
    let slab = axes(&[(1, 5, 3, 2), (0, 1, 1, 0)]);
    let bytes = postcard::to_stdvec(&slab).unwrap();
    assert_eq!(postcard::from_bytes::<Hyperslab>(&bytes).unwrap(), slab);
}
