//! Sets of cells of an object: all of it, or disjoint boxes.
//!
//! Boxes of two ranks (somebody declared the object anew) cannot be compared cell by cell: they are taken to
//! overlap, never to cover each other, and taking one out of the other leaves nothing. A mount may always
//! believe to have less than the lock server believes. Pure.

use slabfs_mdserver::api::{MAX_RIGHT_BOXES, RightArea};
use slabfs_model::{Coords, Region};

/// A set of cells; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::client) enum Cells {
    /// Whatever there is, also beyond every size.
    All,
    /// Disjoint boxes of one rank.
    Boxes(Vec<Region>),
}

impl Default for Cells {
    fn default() -> Cells {
        Cells::Boxes(Vec::new())
    }
}

impl From<&RightArea> for Cells {
    fn from(area: &RightArea) -> Cells {
        match area {
            RightArea::All => Cells::All,
            RightArea::Boxes(boxes) => Cells::of(boxes.iter().cloned()),
        }
    }
}

impl Cells {
    /// The cells of boxes, which may overlap; more of them than one request can name become the box around.
    pub(in crate::client) fn of(boxes: impl IntoIterator<Item = Region>) -> Cells {
        let mut cells = Cells::default();
        for region in boxes {
            cells.add_box(region);
        }
        match cells {
            Cells::Boxes(boxes) if boxes.len() > MAX_RIGHT_BOXES => Cells::around(boxes),
            cells => cells,
        }
    }

    /// The box around boxes.
    fn around(boxes: Vec<Region>) -> Cells {
        let bounds = boxes
            .into_iter()
            .reduce(|one, two| match one.rank() == two.rank() {
                true => one.union_bounds(&two),
                false => one,
            });
        Cells::Boxes(bounds.into_iter().collect())
    }

    /// As it travels, in as many areas as it takes; none if it is empty.
    pub(super) fn to_wire(&self) -> Vec<RightArea> {
        match self {
            Cells::All => vec![RightArea::All],
            Cells::Boxes(boxes) => boxes
                .chunks(MAX_RIGHT_BOXES)
                .map(|some| RightArea::Boxes(some.to_vec()))
                .collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Cells::Boxes(boxes) if boxes.is_empty())
    }

    /// How many boxes it takes.
    pub(super) fn len(&self) -> usize {
        match self {
            Cells::All => 1,
            Cells::Boxes(boxes) => boxes.len(),
        }
    }

    fn rank(&self) -> Option<usize> {
        match self {
            Cells::All => None,
            Cells::Boxes(boxes) => boxes.first().map(Region::rank),
        }
    }

    fn differs_in_rank(&self, other: &Cells) -> bool {
        matches!((self.rank(), other.rank()), (Some(one), Some(two)) if one != two)
    }

    /// Whether they have a cell in common.
    pub(super) fn overlaps(&self, other: &Cells) -> bool {
        match (self, other) {
            (Cells::All, rest) | (rest, Cells::All) => !rest.is_empty(),
            (Cells::Boxes(mine), Cells::Boxes(others)) => {
                self.differs_in_rank(other)
                    || mine
                        .iter()
                        .any(|one| others.iter().any(|two| one.overlaps(two)))
            }
        }
    }

    /// Whether all cells of `other` are in this.
    pub(super) fn covers(&self, other: &Cells) -> bool {
        match (self, other) {
            (Cells::All, _) => true,
            (_, Cells::All) => false,
            (Cells::Boxes(mine), Cells::Boxes(others)) => {
                !self.differs_in_rank(other)
                    && others.iter().all(|one| {
                        mine.iter().any(|two| two.contains(one)) || left_of(one, mine).is_empty()
                    })
            }
        }
    }

    /// Adds cells; cells of another rank take the place of what was there.
    pub(super) fn add(&mut self, more: &Cells) {
        match (&mut *self, more) {
            (Cells::All, _) => {}
            (_, Cells::All) => *self = Cells::All,
            (_, Cells::Boxes(boxes)) => {
                if self.differs_in_rank(more) {
                    *self = Cells::default();
                }
                for region in boxes {
                    self.add_box(region.clone());
                }
            }
        }
    }

    fn add_box(&mut self, mut new: Region) {
        let Cells::Boxes(boxes) = self else { return };
        // An end beyond every size is told by one number.
        for axis in 0..new.rank() {
            new.shape[axis] = new.end(axis) - new.offset[axis];
        }
        if new.is_empty() {
            return;
        }
        if boxes.first().is_some_and(|one| one.rank() != new.rank()) {
            boxes.clear();
        }
        if boxes.is_empty() {
            // The usual case: what one request touches.
            return boxes.push(new);
        }
        boxes.retain(|one| !new.contains(one));
        for part in left_of(&new, boxes) {
            join(boxes, part);
        }
    }

    /// Takes cells out.
    pub(super) fn subtract(&mut self, less: &Cells) {
        let Cells::Boxes(cuts) = less else {
            *self = Cells::default();
            return;
        };
        if self.differs_in_rank(less) {
            *self = Cells::default();
            return;
        }
        if let (Cells::All, Some(rank)) = (&*self, less.rank()) {
            *self = Cells::Boxes(vec![Region {
                offset: Coords::from_elem(0, rank),
                shape: Coords::from_elem(u64::MAX, rank),
            }]);
        }
        let Cells::Boxes(mine) = self else { return };
        for cut in cuts {
            if !mine.iter().any(|one| one.overlaps(cut)) {
                continue;
            }
            let mut left = Vec::new();
            for one in mine.drain(..) {
                one.subtract(cut, &mut left);
            }
            *mine = left;
        }
    }

    /// Makes it one box if it takes more than `most`.
    pub(super) fn rounded(&mut self, most: usize) {
        if self.len() > most
            && let Cells::Boxes(boxes) = self
        {
            *self = Cells::around(std::mem::take(boxes));
        }
    }
}

/// What is left of a box without others.
fn left_of(one: &Region, without: &[Region]) -> Vec<Region> {
    let mut left = vec![one.clone()];
    for cut in without.iter().filter(|cut| cut.overlaps(one)) {
        let mut rest = Vec::new();
        for part in left {
            part.subtract(cut, &mut rest);
        }
        left = rest;
    }
    left
}

/// Adds a box that overlaps none, joined with those with which it makes one box.
fn join(boxes: &mut Vec<Region>, mut new: Region) {
    while let Some(at) = boxes.iter().position(|one| is_cut_box(one, &new)) {
        new = new.union_bounds(&boxes.swap_remove(at));
    }
    boxes.push(new);
}

/// Whether two disjoint boxes are one that was cut in two.
fn is_cut_box(one: &Region, two: &Region) -> bool {
    let mut apart = (0..one.rank())
        .filter(|&axis| one.offset[axis] != two.offset[axis] || one.shape[axis] != two.shape[axis]);
    match (apart.next(), apart.next()) {
        (Some(axis), None) => {
            one.end(axis) == two.offset[axis] || two.end(axis) == one.offset[axis]
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const SIDE: u64 = 7;

    fn region() -> impl Strategy<Value = Region> {
        (0..SIDE, 0..SIDE, 0..SIDE, 0..SIDE).prop_map(|(y, x, h, w)| Region::new(&[y, x], &[h, w]))
    }

    fn boxes() -> impl Strategy<Value = Vec<Region>> {
        prop::collection::vec(region(), 0..5)
    }

    fn naive(boxes: &[Region]) -> BTreeSet<(u64, u64)> {
        let inside = |at: (u64, u64)| boxes.iter().any(|one| one.contains_point(&[at.0, at.1]));
        let all = (0..2 * SIDE).flat_map(|y| (0..2 * SIDE).map(move |x| (y, x)));
        all.filter(|&at| inside(at)).collect()
    }

    fn points(cells: &Cells) -> BTreeSet<(u64, u64)> {
        match cells {
            Cells::All => naive(&[Region::new(&[0, 0], &[u64::MAX, u64::MAX])]),
            Cells::Boxes(boxes) => naive(boxes),
        }
    }

    proptest! {
        #[test]
        fn cells_are_sets_of_points(one in boxes(), two in boxes(), three in boxes()) {
            let (a, b, c) = (Cells::of(one.clone()), Cells::of(two), Cells::of(three));
            prop_assert_eq!(points(&a), naive(&one));
            let (pa, pb, pc) = (points(&a), points(&b), points(&c));
            prop_assert_eq!(a.overlaps(&b), !pa.is_disjoint(&pb));
            prop_assert_eq!(a.covers(&b), pa.is_superset(&pb));
            let mut sum = a.clone();
            sum.add(&b);
            prop_assert_eq!(points(&sum), &pa | &pb);
            let mut rest = sum.clone();
            rest.subtract(&c);
            prop_assert_eq!(points(&rest), &(&pa | &pb) - &pc);
            let mut most = Cells::All;
            most.subtract(&c);
            prop_assert_eq!(points(&most), &points(&Cells::All) - &pc);
            if let Cells::Boxes(boxes) = &rest {
                for (i, one) in boxes.iter().enumerate() {
                    prop_assert!(boxes[i + 1..].iter().all(|two| !one.overlaps(two)));
                }
            }
        }
    }

    #[test]
    fn other_ranks_are_strangers() {
        let flat = Cells::of([Region::new(&[3], &[5])]);
        let square = Cells::of([Region::new(&[3, 3], &[5, 5])]);
        assert!(flat.overlaps(&square) && !flat.covers(&square));
        let mut left = flat.clone();
        left.subtract(&square);
        assert!(left.is_empty());
        assert!(Cells::All.covers(&square) && !square.covers(&Cells::All));
        assert!(!Cells::All.overlaps(&Cells::default()));
    }

    #[test]
    fn writes_one_behind_the_other_are_one_box() {
        let mut cells = Cells::default();
        for at in 0..1000 {
            cells.add(&Cells::of([Region::new(&[at * 10], &[10])]));
        }
        assert_eq!(cells, Cells::of([Region::new(&[0], &[10_000])]));
    }
}
