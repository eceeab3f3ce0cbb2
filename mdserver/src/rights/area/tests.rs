//! Areas against sets of cells of a small grid.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const SIDE: u64 = 5;

impl Area {
    fn without(mut self, less: &Self) -> Self {
        self.subtract(less).expect("few boxes");
        self
    }
}

type Cells = BTreeSet<(u64, u64)>;

/// A box with both ends among the cells, or beyond all.
fn any_box() -> impl Strategy<Value = Region> {
    let range = || {
        (0..=SIDE, 0..=SIDE, any::<bool>()).prop_map(|(one, two, open)| {
            let (from, to) = (one.min(two), one.max(two));
            if open {
                (from, u64::MAX - from)
            } else {
                (from, to - from)
            }
        })
    };
    (range(), range()).prop_map(|(row, column)| Region::new(&[row.0, column.0], &[row.1, column.1]))
}

fn any_area() -> impl Strategy<Value = Area> {
    prop_oneof![
        1 => Just(RightArea::All),
        12 => prop::collection::vec(any_box(), 0..5).prop_map(RightArea::Boxes),
    ]
    .prop_map(|area| Area::from_wire(&area).unwrap())
}

/// The cells of an area, one row and one column beyond the grid among them.
fn cells(area: &Area) -> Cells {
    let mut out = Cells::new();
    for row in 0..=SIDE {
        for column in 0..=SIDE {
            let times = match area {
                Area::All => 1,
                Area::Boxes(boxes) => boxes
                    .iter()
                    .filter(|one| one.contains_point(&[row, column]))
                    .count(),
            };
            assert!(times <= 1, "boxes overlap");
            if times == 1 {
                out.insert((row, column));
            }
        }
    }
    out
}

proptest! {
    #[test]
    fn areas_are_sets(one in any_area(), two in any_area()) {
        let (ours, theirs) = (cells(&one), cells(&two));
        prop_assert_eq!(one.overlaps(&two), !ours.is_disjoint(&theirs));
        prop_assert_eq!(one.is_empty(), ours.is_empty());
        prop_assert_eq!(cells(&one.within(&two)), &ours & &theirs);
        let mut sum = one.clone();
        sum.add(&two).unwrap();
        prop_assert_eq!(cells(&sum), &ours | &theirs);
        let rest = one.clone().without(&two);
        prop_assert_eq!(cells(&rest), &ours - &theirs);
        prop_assert!(!rest.overlaps(&two));
        let mut back = rest;
        back.add(&one.within(&two)).unwrap();
        prop_assert_eq!(cells(&back), ours);
    }

    #[test]
    fn a_widened_area_takes_no_more_of_others(one in any_area(), others in prop::collection::vec(any_area(), 0..3)) {
        let refs: Vec<&Area> = others.iter().collect();
        let (wide, sent) = one.widened(&refs);
        prop_assert_eq!(&Area::from_wire(&sent).unwrap(), &wide);
        let ours = cells(&one);
        prop_assert!(cells(&wide).is_superset(&ours));
        for other in &others {
            prop_assert!((&(&cells(&wide) - &ours) & &cells(other)).is_empty());
        }
        if others.iter().all(Area::is_empty) {
            prop_assert_eq!(wide, Area::All);
        }
    }

    #[test]
    fn what_travels_is_the_same(one in any_area()) {
        let mut back = Area::EMPTY;
        for part in one.to_wire() {
            back.add(&Area::from_wire(&part).unwrap()).unwrap();
        }
        prop_assert_eq!(cells(&back), cells(&one));
    }
}

#[test]
fn a_box_grows_on_the_slowest_axis_first() {
    let boxes = |all: &[Region]| Area::from_wire(&RightArea::Boxes(all.to_vec())).unwrap();
    let one = boxes(&[Region::new(&[4, 10], &[2, 5])]);
    let other = boxes(&[
        Region::new(&[0, 0], &[2, 100]),
        Region::new(&[3, 20], &[50, 1]),
    ]);
    let wide = one.widened(&[&other]);
    assert_eq!(wide.0, boxes(&[Region::new(&[2, 0], &[u64::MAX - 2, 20])]));
}

#[test]
fn boxes_of_different_ranks_meet_everywhere() {
    let line = Area::from_wire(&RightArea::Boxes(vec![Region::new(&[0], &[1])])).unwrap();
    let plane = Area::from_wire(&RightArea::Boxes(vec![Region::new(&[9, 9], &[1, 1])])).unwrap();
    assert!(line.overlaps(&plane) && !line.overlaps(&Area::EMPTY));
    assert_eq!(line.within(&plane), line);
    assert_eq!(line.clone().without(&plane), line);
    assert_eq!(line.clone().add(&plane), Err(Unfit));
    assert_eq!(line.widened(&[&plane]).0, line);
    let mixed = RightArea::Boxes(vec![Region::new(&[0], &[1]), Region::new(&[0, 0], &[1, 1])]);
    assert!(Area::from_wire(&mixed).is_err());
    let odd = Region {
        offset: Coords::from_slice(&[0]),
        shape: Coords::from_slice(&[1, 1]),
    };
    assert!(Area::from_wire(&RightArea::Boxes(vec![odd])).is_err());
    assert!(Area::from_wire(&RightArea::Boxes(vec![Region::new(&[], &[])])).is_err());
}

#[test]
fn neighbours_become_one_box() {
    let mut area = Area::EMPTY;
    for row in [0, 3, 1, 2] {
        let row = RightArea::Boxes(vec![Region::new(&[row, 0], &[1, 7])]);
        area.add(&Area::from_wire(&row).unwrap()).unwrap();
    }
    assert_eq!(area.len(), 1);
}

/// Slabs one cell thick, one across each axis: each cuts all before it in two.
fn crossing(rank: usize) -> RightArea {
    let slab = |axis| {
        let mut slab = Region::new(&vec![0; rank], &vec![u64::MAX; rank]);
        (slab.offset[axis], slab.shape[axis]) = (5, 1);
        slab
    };
    RightArea::Boxes((0..rank).map(slab).collect())
}

#[test]
fn few_boxes_off_the_wire_do_not_become_very_many() {
    assert_eq!(
        Area::from_wire(&crossing(8)).map(|area| area.len()),
        Ok(255)
    );
    assert!(Area::from_wire(&crossing(32)).is_err());
    let RightArea::Boxes(slabs) = crossing(32) else {
        panic!("boxes");
    };
    let mut left = Area::All;
    let mut cut = |slab: &Region| left.subtract(&Area::Boxes(vec![slab.clone()]));
    assert!(slabs.iter().any(|slab| cut(slab).is_err()));
    assert!(left.len() <= 2 * TOO_MANY_BOXES);
}
