//! Sets of cells: all cells, or disjoint boxes of one rank.
//!
//! A set is exact: nothing is rounded to keep it small, except by [`BoxSet::bounded`]. An operation on boxes from outside
//! may produce very many of them (slabs across each of 32 axes cut each other into 2^32): the operations whose names begin
//! with `try` fail before that.
//!
//! Boxes of different ranks (an object was declared again) cannot be compared cell by cell. Two such sets, if not empty, are
//! taken to overlap everywhere, and neither covers the other. What [`BoxSet::add`] and [`BoxSet::subtract`] do with them is
//! safe for a holder of rights, which may believe to hold less than it does; what the `try` operations do is safe for the
//! side that grants them.

use crate::{Coords, Region};

/// Most boxes that a `try` operation may produce.
const MOST_BOXES: usize = 1 << 11;

/// A set of cells; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum BoxSet {
    /// All cells, of any rank, also beyond every size.
    All,
    /// Non-empty, disjoint boxes of one rank.
    Boxes(Vec<Region>),
}

/// The operation failed: the boxes have different ranks, or there would be too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("boxes of different ranks, or boxes that cut each other into too many")]
pub struct Unfit;

impl Default for BoxSet {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl BoxSet {
    /// The empty set.
    pub const EMPTY: Self = Self::Boxes(Vec::new());

    /// The cells of boxes, which may overlap; of boxes of several ranks those of the last rank.
    pub fn of(boxes: impl IntoIterator<Item = Region>) -> Self {
        let mut set = Self::EMPTY;
        for one in boxes {
            set.add_box(one);
        }
        set
    }

    /// The cells of boxes of one rank, which may overlap.
    ///
    /// # Errors
    /// If the ranks differ or the boxes cut each other into too many.
    pub fn try_of(boxes: &[Region]) -> Result<Self, Unfit> {
        let mut out: Vec<Region> = Vec::new();
        for one in boxes {
            if out.first().is_some_and(|first| first.rank() != one.rank()) {
                return Err(Unfit);
            }
            insert(&mut out, normal(one.clone()), MOST_BOXES)?;
        }
        Ok(Self::Boxes(out))
    }

    /// A superset in at most `most` boxes: itself, or the bounding box.
    pub fn bounded(self, most: usize) -> Self {
        match self {
            Self::Boxes(boxes) if boxes.len() > most => {
                let bounds = boxes.into_iter().reduce(|one, two| one.union_bounds(&two));
                Self::Boxes(bounds.into_iter().collect())
            }
            small => small,
        }
    }

    /// Whether it has no cell.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Boxes(boxes) if boxes.is_empty())
    }

    /// The number of boxes.
    pub fn len(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Boxes(boxes) => boxes.len(),
        }
    }

    /// The rank of its boxes, if it has any.
    pub fn rank(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Boxes(boxes) => boxes.first().map(Region::rank),
        }
    }

    /// Whether both have boxes, of different ranks.
    pub fn differs_in_rank(&self, other: &Self) -> bool {
        matches!((self.rank(), other.rank()), (Some(one), Some(two)) if one != two)
    }

    /// Whether the two have a cell in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, rest) | (rest, Self::All) => !rest.is_empty(),
            (Self::Boxes(mine), Self::Boxes(others)) => {
                self.differs_in_rank(other)
                    || mine
                        .iter()
                        .any(|one| others.iter().any(|two| one.overlaps(two)))
            }
        }
    }

    /// Whether this contains all cells of `other`.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (_, Self::All) => false,
            (Self::Boxes(mine), Self::Boxes(others)) => {
                !self.differs_in_rank(other)
                    && others.iter().all(|one| {
                        mine.iter().any(|two| two.contains(one))
                            || left_of(one, mine, usize::MAX).is_ok_and(|left| left.is_empty())
                    })
            }
        }
    }

    /// The cells of this set that are also in the other; all of this set if the ranks differ.
    pub fn within(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, _) => other.clone(),
            (_, Self::All) => self.clone(),
            _ if self.differs_in_rank(other) => self.clone(),
            (Self::Boxes(mine), Self::Boxes(others)) => {
                // The boxes of each side are disjoint, so their intersections are disjoint too.
                let common = mine
                    .iter()
                    .flat_map(|one| others.iter().filter_map(|two| one.intersect(two)));
                Self::Boxes(common.collect())
            }
        }
    }

    /// Adds cells; cells of another rank replace the earlier ones.
    pub fn add(&mut self, more: &Self) {
        match (&mut *self, more) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (_, Self::Boxes(boxes)) => {
                for one in boxes {
                    self.add_box(one.clone());
                }
            }
        }
    }

    fn add_box(&mut self, new: Region) {
        let Self::Boxes(boxes) = self else { return };
        let new = normal(new);
        if !new.is_empty() && boxes.first().is_some_and(|one| one.rank() != new.rank()) {
            boxes.clear();
        }
        // It cannot fail without a limit.
        let _ = insert(boxes, new, usize::MAX);
    }

    /// Adds cells.
    ///
    /// # Errors
    /// `Unfit`; then only part of the cells is added.
    pub fn try_add(&mut self, more: &Self) -> Result<(), Unfit> {
        if self.differs_in_rank(more) {
            return Err(Unfit);
        }
        match (&mut *self, more) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (Self::Boxes(mine), Self::Boxes(more)) => {
                for one in more {
                    insert(mine, one.clone(), MOST_BOXES)?;
                }
            }
        }
        Ok(())
    }

    /// Removes cells; cells of another rank remove everything.
    pub fn subtract(&mut self, less: &Self) {
        if self.differs_in_rank(less) {
            *self = Self::EMPTY;
            return;
        }
        // It cannot fail without a limit.
        let _ = self.cut(less, usize::MAX);
    }

    /// Removes cells; cells of another rank remove nothing.
    ///
    /// # Errors
    /// `Unfit`; then only part of the cells is removed, and no other cell.
    pub fn try_subtract(&mut self, less: &Self) -> Result<(), Unfit> {
        match self.differs_in_rank(less) {
            true => Ok(()),
            false => self.cut(less, MOST_BOXES),
        }
    }

    fn cut(&mut self, less: &Self, most: usize) -> Result<(), Unfit> {
        let Self::Boxes(cuts) = less else {
            *self = Self::EMPTY;
            return Ok(());
        };
        if let (Self::All, Some(rank)) = (&*self, less.rank()) {
            *self = Self::Boxes(vec![Region {
                offset: Coords::from_elem(0, rank),
                shape: Coords::from_elem(u64::MAX, rank),
            }]);
        }
        let Self::Boxes(mine) = self else {
            return Ok(());
        };
        for cut in cuts {
            if !mine.iter().any(|one| one.overlaps(cut)) {
                continue;
            }
            let (met, mut left): (Vec<_>, Vec<_>) =
                mine.iter().cloned().partition(|one| one.overlaps(cut));
            let mut parts = Vec::new();
            for one in met {
                one.subtract(cut, &mut parts);
                if left.len() + parts.len() > most.saturating_mul(2) {
                    return Err(Unfit);
                }
            }
            for part in parts {
                join(&mut left, part);
            }
            if left.len() > most {
                return Err(Unfit);
            }
            *mine = left;
        }
        Ok(())
    }
}

/// A box whose ends beyond every size have one form.
fn normal(mut one: Region) -> Region {
    for axis in 0..one.rank() {
        one.shape[axis] = one.end(axis) - one.offset[axis];
    }
    one
}

/// Adds a box to disjoint boxes; they stay disjoint.
fn insert(boxes: &mut Vec<Region>, new: Region, most: usize) -> Result<(), Unfit> {
    if new.is_empty() || boxes.iter().any(|one| one.contains(&new)) {
        return Ok(());
    }
    if boxes.is_empty() {
        // The usual case: the cells of one request.
        boxes.push(new);
        return Ok(());
    }
    boxes.retain(|one| !new.contains(one));
    let room = most.saturating_sub(boxes.len());
    for part in left_of(&new, boxes, room)? {
        join(boxes, part);
    }
    Ok(())
}

/// A box without others, as at most `most` boxes.
fn left_of(one: &Region, without: &[Region], most: usize) -> Result<Vec<Region>, Unfit> {
    let mut left = vec![one.clone()];
    for cut in without.iter().filter(|cut| cut.overlaps(one)) {
        let mut rest = Vec::new();
        for part in left {
            part.subtract(cut, &mut rest);
        }
        left = rest;
        if left.len() > most {
            return Err(Unfit);
        }
    }
    Ok(left)
}

/// Adds a box that overlaps none, merged with neighbours where the union is a box.
fn join(boxes: &mut Vec<Region>, mut new: Region) {
    while let Some(at) = boxes.iter().position(|one| makes_one_box(one, &new)) {
        new = new.union_bounds(&boxes.swap_remove(at));
    }
    boxes.push(new);
}

/// Whether the union of two disjoint boxes is a box.
fn makes_one_box(one: &Region, two: &Region) -> bool {
    let mut apart = (0..one.rank())
        .filter(|&axis| (one.offset[axis], one.shape[axis]) != (two.offset[axis], two.shape[axis]));
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

    const SIDE: u64 = 5;

    type Points = BTreeSet<(u64, u64)>;

    /// A box whose ends are among the cells, or beyond every size.
    fn any_box() -> impl Strategy<Value = Region> {
        let range = || {
            (0..=SIDE, 0..=SIDE, any::<bool>()).prop_map(|(one, two, open)| {
                let (from, to) = (one.min(two), one.max(two));
                (from, if open { u64::MAX - from } else { to - from })
            })
        };
        (range(), range())
            .prop_map(|(row, column)| Region::new(&[row.0, column.0], &[row.1, column.1]))
    }

    fn boxes() -> impl Strategy<Value = Vec<Region>> {
        prop::collection::vec(any_box(), 0..5)
    }

    fn any_set() -> impl Strategy<Value = BoxSet> {
        prop_oneof![
            1 => Just(BoxSet::All),
            12 => boxes().prop_map(BoxSet::of),
        ]
    }

    /// The cells of a set, including one row and one column beyond the grid; no cell may be in two boxes.
    fn points(set: &BoxSet) -> Points {
        let all = (0..=SIDE).flat_map(|row| (0..=SIDE).map(move |column| (row, column)));
        let times = |(row, column): (u64, u64)| match set {
            BoxSet::All => 1,
            BoxSet::Boxes(boxes) => {
                let inside = boxes
                    .iter()
                    .filter(|one| one.contains_point(&[row, column]));
                inside.count()
            }
        };
        all.filter(|&at| {
            assert!(times(at) <= 1, "boxes overlap");
            times(at) == 1
        })
        .collect()
    }

    fn naive(boxes: &[Region]) -> Points {
        boxes
            .iter()
            .flat_map(|one| points(&BoxSet::Boxes(vec![one.clone()])))
            .collect()
    }

    proptest! {
        #[test]
        fn sets_are_sets_of_points(list in boxes(), one in any_set(), two in any_set()) {
            prop_assert_eq!(points(&BoxSet::of(list.clone())), naive(&list));
            prop_assert_eq!(points(&BoxSet::try_of(&list).unwrap()), naive(&list));
            let (ours, theirs) = (points(&one), points(&two));
            prop_assert_eq!(one.overlaps(&two), !ours.is_disjoint(&theirs));
            prop_assert_eq!(one.covers(&two), ours.is_superset(&theirs) && (two != BoxSet::All || one == BoxSet::All));
            prop_assert_eq!(one.is_empty(), ours.is_empty());
            prop_assert_eq!(points(&one.within(&two)), &ours & &theirs);
            let (mut sum, mut tried) = (one.clone(), one.clone());
            sum.add(&two);
            tried.try_add(&two).unwrap();
            prop_assert_eq!(points(&sum), &ours | &theirs);
            prop_assert_eq!(points(&tried), &ours | &theirs);
            let (mut rest, mut tried) = (one.clone(), one.clone());
            rest.subtract(&two);
            tried.try_subtract(&two).unwrap();
            prop_assert_eq!(points(&rest), &ours - &theirs);
            prop_assert_eq!(points(&tried), &ours - &theirs);
            prop_assert!(!rest.overlaps(&two));
            rest.try_add(&one.within(&two)).unwrap();
            prop_assert_eq!(points(&rest), ours);
            prop_assert!(points(&two.clone().bounded(1)).is_superset(&theirs));
            prop_assert!(two.bounded(1).len() <= 1);
        }
    }

    #[test]
    fn boxes_of_different_ranks_overlap_and_never_cover() {
        let line = BoxSet::of([Region::new(&[3], &[5])]);
        let plane = BoxSet::of([Region::new(&[3, 3], &[5, 5])]);
        assert!(line.overlaps(&plane) && !line.covers(&plane));
        assert!(!line.overlaps(&BoxSet::EMPTY) && !BoxSet::All.overlaps(&BoxSet::EMPTY));
        assert_eq!(line.within(&plane), line);
        let mut left = line.clone();
        left.try_subtract(&plane).unwrap();
        assert_eq!(left, line);
        left.subtract(&plane);
        assert!(left.is_empty());
        let mut sum = line.clone();
        assert_eq!(sum.try_add(&plane), Err(Unfit));
        sum.add(&plane);
        assert_eq!(sum, plane);
        let mixed = [Region::new(&[0], &[1]), Region::new(&[0, 0], &[1, 1])];
        assert_eq!(BoxSet::try_of(&mixed), Err(Unfit));
        assert!(BoxSet::All.covers(&plane) && !plane.covers(&BoxSet::All));
    }

    #[test]
    fn consecutive_boxes_become_one() {
        let mut set = BoxSet::EMPTY;
        for at in 0..1000 {
            set.add(&BoxSet::of([Region::new(&[at * 10], &[10])]));
        }
        assert_eq!(set, BoxSet::of([Region::new(&[0], &[10_000])]));
        let rows = [0, 3, 1, 2].map(|row| Region::new(&[row, 0], &[1, 7]));
        assert_eq!(BoxSet::of(rows).len(), 1);
    }

    /// Slabs one cell thick, one across each axis: each cuts all earlier ones in two.
    fn crossing(rank: usize) -> Vec<Region> {
        let slab = |axis| {
            let mut slab = Region::new(&vec![0; rank], &vec![u64::MAX; rank]);
            (slab.offset[axis], slab.shape[axis]) = (5, 1);
            slab
        };
        (0..rank).map(slab).collect()
    }

    #[test]
    fn few_boxes_do_not_become_very_many() {
        assert_eq!(BoxSet::try_of(&crossing(8)).map(|set| set.len()), Ok(255));
        assert_eq!(BoxSet::try_of(&crossing(32)), Err(Unfit));
        let mut left = BoxSet::All;
        let mut cut = |slab: Region| left.try_subtract(&BoxSet::Boxes(vec![slab]));
        assert!(crossing(32).into_iter().any(|slab| cut(slab).is_err()));
        assert!(left.len() <= 2 * MOST_BOXES);
    }
}
