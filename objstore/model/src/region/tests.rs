//! Tests of boxes against lists of their cells.

use super::*;
use crate::naive;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn set(region: &Region) -> BTreeSet<Coords> {
    naive::points(region).into_iter().collect()
}

proptest! {
    #[test]
    fn boxes_are_the_sets_of_their_cells((dims, one, two) in naive::two_regions()) {
        let (cells, others) = (set(&one), set(&two));
        prop_assert_eq!(one.volume(), cells.len() as u64);
        prop_assert_eq!(one.is_empty(), cells.is_empty());
        prop_assert_eq!(one.contains(&two), others.is_subset(&cells));
        prop_assert_eq!(one.overlaps(&two), !cells.is_disjoint(&others));
        prop_assert!(one.validate(&dims).is_ok());
        let both: BTreeSet<_> = cells.intersection(&others).cloned().collect();
        match one.intersect(&two) {
            Some(common) => prop_assert_eq!(set(&common), both),
            None => prop_assert!(both.is_empty()),
        }
        for point in naive::points(&Region::all(&dims)) {
            prop_assert_eq!(one.contains_point(&point), cells.contains(&point));
        }
        let bounds = one.union_bounds(&two);
        prop_assert!(bounds.contains(&one) && bounds.contains(&two));
        prop_assert!(Region::all(&dims).contains(&bounds));
    }

    #[test]
    fn subtract_leaves_the_rest_in_few_disjoint_boxes((_, one, two) in naive::two_regions()) {
        let mut rest = Vec::new();
        one.subtract(&two, &mut rest);
        prop_assert!(rest.len() <= 2 * one.rank().max(1));
        let mut left = BTreeSet::new();
        for piece in &rest {
            prop_assert!(!piece.is_empty());
            for point in naive::points(piece) {
                prop_assert!(left.insert(point), "pieces overlap");
            }
        }
        let expected: BTreeSet<_> = set(&one).difference(&set(&two)).cloned().collect();
        prop_assert_eq!(left, expected);
    }
}

#[test]
fn a_scalar_is_one_cell() {
    let scalar = Region::all(&[]);
    assert_eq!(
        (scalar.rank(), scalar.volume(), scalar.is_empty()),
        (0, 1, false)
    );
    assert!(scalar.contains(&scalar) && scalar.contains_point(&[]));
    let mut rest = Vec::new();
    scalar.subtract(&scalar, &mut rest);
    assert!(rest.is_empty());
}

#[test]
fn huge_regions_saturate() {
    let huge = Region::new(&[u64::MAX, 5], &[u64::MAX, u64::MAX]);
    assert_eq!(
        (huge.end(0), huge.end(1), huge.volume()),
        (u64::MAX, u64::MAX, u64::MAX)
    );
    assert_eq!(
        Region::new(&[0, 0, 0], &[u64::MAX, u64::MAX, 0]).volume(),
        0
    );
    let other = Region::new(&[0, 0], &[u64::MAX, u64::MAX]);
    assert_eq!(huge.intersect(&other), None);
    let mut rest = Vec::new();
    other.subtract(&huge, &mut rest);
    assert_eq!(rest, vec![other.clone()]);
    let _ = huge.union_bounds(&other);
    assert_eq!(
        huge.validate(&[u64::MAX, u64::MAX]),
        Err(GeometryError::Outside {
            axis: 0,
            end: u64::MAX,
            limit: u64::MAX
        })
    );
    assert_eq!(
        Region::new(&[3], &[4]).validate(&[6]),
        Err(GeometryError::Outside {
            axis: 0,
            end: 7,
            limit: 6
        })
    );
    assert_eq!(
        Region::all(&[3]).validate(&[3, 3]),
        Err(GeometryError::RankMismatch { got: 1, want: 2 })
    );
    assert_eq!(
        Region::all(&[1; 33]).validate(&[1; 33]),
        Err(GeometryError::RankTooHigh { rank: 33 })
    );
}

#[test]
fn regions_travel() {
    let region = Region::new(&[1, u64::MAX], &[0, 7]);
    let bytes = postcard::to_stdvec(&region).unwrap();
    assert_eq!(postcard::from_bytes::<Region>(&bytes).unwrap(), region);
}
