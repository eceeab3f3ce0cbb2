//! A granted right covers more than was requested, where nothing of others is in the way: so that the next request of the
//! session needs no further right.

use slabfs_model::{BoxSet, Region};

use crate::api::RightArea;

/// The boxes of an area, each extended along the slowest axis first until it meets a box of `others`; all cells if
/// `others` is empty.
///
/// Where a box already overlaps `others`, that overlap does not grow. The result contains the area and no further cell
/// of `others`. It is also returned in its wire form, whose boxes may overlap: as many as the area has.
pub(super) fn widened(area: &BoxSet, others: &[&BoxSet]) -> (BoxSet, RightArea) {
    let others = || others.iter().filter(|other| !other.is_empty());
    if others().next().is_none() {
        return (BoxSet::All, RightArea::All);
    }
    let BoxSet::Boxes(mine) = area else {
        return (BoxSet::All, RightArea::All);
    };
    if others().any(|other| **other == BoxSet::All || area.differs_in_rank(other)) {
        return (area.clone(), RightArea::Boxes(mine.clone()));
    }
    let obstacles: Vec<&Region> = others()
        .flat_map(|other| match other {
            BoxSet::All => &[],
            BoxSet::Boxes(boxes) => &boxes[..],
        })
        .collect();
    let mut out: Vec<Region> = Vec::new();
    for one in mine {
        if !out.iter().any(|wide| wide.contains(one)) {
            out.push(widened_box(one, &obstacles));
        }
    }
    match BoxSet::try_of(&out) {
        Ok(wide) => (wide, RightArea::Boxes(out)),
        // The wide boxes cut each other into too many; the requested ones do not.
        Err(_) => (area.clone(), RightArea::Boxes(mine.clone())),
    }
}

/// A box, extended as far as it touches none of the `obstacles` that it does not touch already.
fn widened_box(one: &Region, obstacles: &[&Region]) -> Region {
    let mut wide = one.clone();
    for axis in 0..one.rank() {
        let is_alongside = |other: &Region| {
            (0..wide.rank())
                .filter(|&at| at != axis)
                .all(|at| wide.offset[at].max(other.offset[at]) < wide.end(at).min(other.end(at)))
        };
        let (from, to) = (wide.offset[axis], wide.end(axis));
        let (mut least, mut most) = (0, u64::MAX);
        for other in obstacles.iter().filter(|other| is_alongside(other)) {
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

#[cfg(test)]
mod tests;
