//! Properties of widened areas, against sets of cells of a small grid.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SIDE: u64 = 5;

type Cells = BTreeSet<(u64, u64)>;

/// A box whose ends are among the cells, or beyond every size.
fn any_box() -> impl Strategy<Value = Region> {
    let range = || {
        (0..=SIDE, 0..=SIDE, any::<bool>()).prop_map(|(one, two, open)| {
            let (from, to) = (one.min(two), one.max(two));
            (from, if open { u64::MAX - from } else { to - from })
        })
    };
    (range(), range()).prop_map(|(row, column)| Region::new(&[row.0, column.0], &[row.1, column.1]))
}

fn any_area() -> impl Strategy<Value = BoxSet> {
    prop_oneof![
        1 => Just(BoxSet::All),
        12 => prop::collection::vec(any_box(), 0..5).prop_map(BoxSet::of),
    ]
}

/// The cells of an area, including one row and one column beyond the grid.
fn cells(area: &BoxSet) -> Cells {
    let all = (0..=SIDE).flat_map(|row| (0..=SIDE).map(move |column| (row, column)));
    all.filter(|&(row, column)| area.covers(&BoxSet::of([Region::new(&[row, column], &[1, 1])])))
        .collect()
}

proptest! {
    #[test]
    fn a_widened_area_takes_no_more_of_others(one in any_area(), others in prop::collection::vec(any_area(), 0..3)) {
        let refs: Vec<&BoxSet> = others.iter().collect();
        let (wide, sent) = widened(&one, &refs);
        prop_assert_eq!(&sent.cells().unwrap(), &wide);
        let ours = cells(&one);
        prop_assert!(cells(&wide).is_superset(&ours));
        for other in &others {
            prop_assert!((&(&cells(&wide) - &ours) & &cells(other)).is_empty());
        }
        if others.iter().all(BoxSet::is_empty) {
            prop_assert_eq!(wide, BoxSet::All);
        }
    }

    #[test]
    fn the_wire_form_is_equal(one in any_area()) {
        let mut back = BoxSet::EMPTY;
        for part in RightArea::of(&one) {
            back.try_add(&part.cells().unwrap()).unwrap();
        }
        prop_assert_eq!(cells(&back), cells(&one));
    }
}

#[test]
fn a_box_grows_on_the_slowest_axis_first() {
    let one = BoxSet::of([Region::new(&[4, 10], &[2, 5])]);
    let other = BoxSet::of([
        Region::new(&[0, 0], &[2, 100]),
        Region::new(&[3, 20], &[50, 1]),
    ]);
    let wide = widened(&one, &[&other]);
    assert_eq!(
        wide.0,
        BoxSet::of([Region::new(&[2, 0], &[u64::MAX - 2, 20])])
    );
}

#[test]
fn boxes_that_cannot_be_compared_or_decoded() {
    let line = BoxSet::of([Region::new(&[0], &[1])]);
    let plane = BoxSet::of([Region::new(&[9, 9], &[1, 1])]);
    assert_eq!(widened(&line, &[&plane]).0, line);
    let mixed = RightArea::Boxes(vec![Region::new(&[0], &[1]), Region::new(&[0, 0], &[1, 1])]);
    assert!(mixed.cells().is_err());
    let odd = Region {
        offset: slabfs_model::Coords::from_slice(&[0]),
        shape: slabfs_model::Coords::from_slice(&[1, 1]),
    };
    assert!(RightArea::Boxes(vec![odd]).cells().is_err());
    assert!(
        RightArea::Boxes(vec![Region::new(&[], &[])])
            .cells()
            .is_err()
    );
}
