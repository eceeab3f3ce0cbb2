//! Sets of cells of one object: all of it, or boxes that do not overlap.
//!
//! A set is exact: nothing is rounded to keep it small. How large it may get is the table's to say
//! ([`Area::len`]); but what would take very many boxes is not worked out ([`Unfit`]): slabs across each of 32
//! axes cut each other into 2^32. Boxes of a set have one rank. Sets of different ranks cannot be compared cell by cell
//! (somebody declared the object anew): where both hold anything they are taken to meet everywhere, and
//! taking one out of the other takes nothing.

use slabfs_model::{Coords, MAX_RANK, Region};

use crate::api::{MAX_RIGHT_BOXES, MdError, RightArea};

/// Boxes above which no set is worked out.
const TOO_MANY_BOXES: usize = 1 << 11;

/// A set of cells; see the module's head.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Area {
    /// All, of whatever rank.
    All,
    /// Boxes that hold something, disjoint, of one rank.
    Boxes(Vec<Region>),
}

impl Default for Area {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl Area {
    /// No cell.
    pub(super) const EMPTY: Self = Self::Boxes(Vec::new());

    /// An area off the wire.
    ///
    /// # Errors
    /// When its boxes have no rank, or several, or cut each other into too many.
    pub(super) fn from_wire(area: &RightArea) -> Result<Self, MdError> {
        let RightArea::Boxes(boxes) = area else {
            return Ok(Self::All);
        };
        let rank = boxes.first().map_or(1, Region::rank);
        let fits = |one: &Region| one.shape.len() == rank && one.offset.len() == rank;
        if rank == 0 || rank > MAX_RANK || boxes.len() > MAX_RIGHT_BOXES || !boxes.iter().all(fits)
        {
            return Err(MdError::Invalid(
                "the boxes of an area have one rank, from 1 on".into(),
            ));
        }
        Self::of(boxes).map_err(|Unfit| {
            MdError::Invalid("the boxes of an area cut each other into too many".into())
        })
    }

    /// The area of boxes of one rank.
    fn of(boxes: &[Region]) -> Result<Self, Unfit> {
        let mut out = Vec::new();
        for one in boxes {
            // An end that saturates is one that was said to be beyond every size.
            let mut one = one.clone();
            for axis in 0..one.rank() {
                one.shape[axis] = one.end(axis) - one.offset[axis];
            }
            add_box(&mut out, one)?;
        }
        Ok(Self::Boxes(out))
    }

    /// At least this area, in so few boxes that it travels as one.
    pub(super) fn bounded(self) -> Self {
        match self {
            Self::Boxes(boxes) if boxes.len() > MAX_RIGHT_BOXES => {
                let bounds = boxes.into_iter().reduce(|one, two| one.union_bounds(&two));
                Self::Boxes(bounds.into_iter().collect())
            }
            small => small,
        }
    }

    /// As it travels: as many areas as it takes, none if it is empty.
    pub(super) fn to_wire(&self) -> Vec<RightArea> {
        match self {
            Self::All => vec![RightArea::All],
            Self::Boxes(boxes) => boxes
                .chunks(MAX_RIGHT_BOXES)
                .map(|part| RightArea::Boxes(part.to_vec()))
                .collect(),
        }
    }

    /// Whether no cell is in it.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::Boxes(boxes) if boxes.is_empty())
    }

    /// How many boxes it takes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Boxes(boxes) => boxes.len(),
        }
    }

    /// The rank of its boxes, if it has any.
    pub(super) fn rank(&self) -> Option<usize> {
        match self {
            Self::All => None,
            Self::Boxes(boxes) => boxes.first().map(Region::rank),
        }
    }

    /// Whether both have boxes, and of different ranks.
    pub(super) fn differs_in_rank(&self, other: &Self) -> bool {
        matches!((self.rank(), other.rank()), (Some(one), Some(two)) if one != two)
    }

    /// Whether they have a cell in common.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, rest) | (rest, Self::All) => !rest.is_empty(),
            (Self::Boxes(mine), Self::Boxes(others)) => {
                self.differs_in_rank(other)
                    || mine
                        .iter()
                        .any(|one| others.iter().any(|other| one.overlaps(other)))
            }
        }
    }

    /// The cells of this one that are in the other; where the ranks differ, all.
    pub(super) fn within(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::All, _) => other.clone(),
            (_, Self::All) => self.clone(),
            _ if self.differs_in_rank(other) => self.clone(),
            (Self::Boxes(mine), Self::Boxes(others)) => {
                // Those of each side are disjoint, so what they have in common is too.
                let common = mine
                    .iter()
                    .flat_map(|one| others.iter().filter_map(|other| one.intersect(other)));
                Self::Boxes(common.collect())
            }
        }
    }

    /// Adds cells.
    ///
    /// # Errors
    /// `Unfit`; not all is added then.
    pub(super) fn add(&mut self, more: &Self) -> Result<(), Unfit> {
        if self.differs_in_rank(more) {
            return Err(Unfit);
        }
        match (&mut *self, more) {
            (Self::All, _) => {}
            (_, Self::All) => *self = Self::All,
            (Self::Boxes(mine), Self::Boxes(more)) => {
                for one in more {
                    add_box(mine, one.clone())?;
                }
            }
        }
        Ok(())
    }

    /// Takes cells out. Of boxes of another rank, none.
    ///
    /// # Errors
    /// `Unfit`; not all is taken out then, and nothing else.
    pub(super) fn subtract(&mut self, less: &Self) -> Result<(), Unfit> {
        let Self::Boxes(less_boxes) = less else {
            *self = Self::EMPTY;
            return Ok(());
        };
        if less.is_empty() || self.differs_in_rank(less) {
            return Ok(());
        }
        if let (Self::All, Some(rank)) = (&*self, less.rank()) {
            *self = Self::Boxes(vec![Region {
                offset: Coords::from_elem(0, rank),
                shape: Coords::from_elem(u64::MAX, rank),
            }]);
        }
        let Self::Boxes(mine) = self else {
            return Ok(());
        };
        for cut in less_boxes {
            if !mine.iter().any(|one| one.overlaps(cut)) {
                continue;
            }
            let (met, mut left): (Vec<_>, Vec<_>) =
                mine.iter().cloned().partition(|one| one.overlaps(cut));
            let mut parts = Vec::new();
            for one in met {
                one.subtract(cut, &mut parts);
                if left.len() + parts.len() > 2 * TOO_MANY_BOXES {
                    return Err(Unfit);
                }
            }
            for part in parts {
                join(&mut left, part);
            }
            if left.len() > TOO_MANY_BOXES {
                return Err(Unfit);
            }
            *mine = left;
        }
        Ok(())
    }

    /// Its boxes, each made wider on the slowest axis first until it meets one of `others`; all of it if
    /// there are none.
    ///
    /// A part of `others` that a box overlaps already stays as far in it as it is. What comes out holds all
    /// of the area and no other cell of `others`. Boxes that are [`Area::bounded`] stay so, as they travel,
    /// though they may overlap now.
    pub(super) fn widened(&self, others: &[&Self]) -> (Self, RightArea) {
        let others = || others.iter().filter(|other| !other.is_empty());
        if others().next().is_none() {
            return (Self::All, RightArea::All);
        }
        let Self::Boxes(mine) = self else {
            return (Self::All, RightArea::All);
        };
        if others().any(|other| **other == Self::All || self.differs_in_rank(other)) {
            return (self.clone(), RightArea::Boxes(mine.clone()));
        }
        let obstacles: Vec<&Region> = others()
            .flat_map(|other| match other {
                Self::All => &[],
                Self::Boxes(boxes) => &boxes[..],
            })
            .collect();
        let mut out: Vec<Region> = Vec::new();
        for one in mine {
            if !out.iter().any(|wide| wide.contains(one)) {
                out.push(widened(one, &obstacles));
            }
        }
        match Self::of(&out) {
            Ok(wide) => (wide, RightArea::Boxes(out)),
            // Wide boxes overlap; those that were asked for do not.
            Err(Unfit) => (self.clone(), RightArea::Boxes(mine.clone())),
        }
    }
}

/// Boxes of two ranks are not one area, and very many are none that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unfit;

/// A box, as wide as none of `obstacles` gets touched that it does not touch already.
fn widened(one: &Region, obstacles: &[&Region]) -> Region {
    let mut wide = one.clone();
    for axis in 0..one.rank() {
        let with_it = |other: &Region| {
            (0..wide.rank())
                .filter(|&at| at != axis)
                .all(|at| wide.offset[at].max(other.offset[at]) < wide.end(at).min(other.end(at)))
        };
        let (from, to) = (wide.offset[axis], wide.end(axis));
        let (mut least, mut most) = (0, u64::MAX);
        for other in obstacles.iter().filter(|other| with_it(other)) {
            if other.offset[axis] < from {
                least = least.max(other.end(axis).min(from));
            }
            if other.end(axis) > to {
                most = most.min(other.offset[axis].max(to));
            }
        }
        wide.offset[axis] = least;
        wide.shape[axis] = most - least;
    }
    wide
}

/// Adds a box to disjoint ones, which they stay.
fn add_box(boxes: &mut Vec<Region>, new: Region) -> Result<(), Unfit> {
    if new.is_empty() || boxes.iter().any(|one| one.contains(&new)) {
        return Ok(());
    }
    boxes.retain(|one| !new.contains(one));
    let mut parts = vec![new.clone()];
    for one in boxes.iter().filter(|one| one.overlaps(&new)) {
        parts = parts.drain(..).fold(Vec::new(), |mut left, part| {
            part.subtract(one, &mut left);
            left
        });
        if parts.is_empty() {
            return Ok(());
        }
        if boxes.len() + parts.len() > TOO_MANY_BOXES {
            return Err(Unfit);
        }
    }
    for part in parts {
        join(boxes, part);
    }
    Ok(())
}

/// Adds a box that overlaps none, joined with those that make one box with it.
fn join(boxes: &mut Vec<Region>, mut new: Region) {
    while let Some(at) = boxes.iter().position(|one| makes_one_box(one, &new)) {
        new = new.union_bounds(&boxes.swap_remove(at));
    }
    boxes.push(new);
}

/// Whether two disjoint boxes are one, cut in two.
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
mod tests;
