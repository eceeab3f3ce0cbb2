//! The part of a box that is not covered by disjoint boxes inside it.
//!
//! Divide and conquer: a box whose pieces add up to its volume has no hole; one with no piece is a hole; few pieces
//! are subtracted one by one; otherwise the box is split at the boundary of a piece that cuts the fewest others, and
//! each half gets only its own pieces. Fully covered areas end the recursion at once.

use super::super::flat::{self, Boxes, Flat};
use super::plan::cut_all;
use crate::Region;

/// The most pieces that are subtracted one by one.
const FEW: usize = 8;

/// Appends disjoint boxes that make up `full` without `pieces`. Neighbours may not be joined. The pieces are disjoint
/// and lie inside `full`.
pub(super) fn uncovered(full: &[u64], pieces: Boxes, holes: &mut Vec<Region>) {
    let covered = (pieces.iter()).fold(0u128, |sum, piece| sum.saturating_add(flat::volume(piece)));
    if covered == flat::volume(full) && covered < u128::MAX {
        return;
    }
    if pieces.is_empty() {
        holes.push(flat::region(full));
        return;
    }
    if pieces.len() <= FEW {
        subtract(full, &pieces, holes);
        return;
    }
    let Some((axis, at)) = split(full, &pieces) else {
        // No boundary inside: one piece covers the entire box and is the only one.
        subtract(full, &pieces, holes);
        return;
    };
    let rank = pieces.rank();
    let (mut below, mut above) = (Flat::from_slice(full), Flat::from_slice(full));
    below[rank + axis] = at;
    above[axis] = at;
    let within = |half: &[u64]| {
        let mut inside = Boxes::new(rank);
        let mut part = Flat::new();
        for piece in pieces.iter() {
            part.clear();
            part.extend_from_slice(piece);
            if flat::clip(&mut part, half) {
                inside.push(&part);
            }
        }
        inside
    };
    let (in_below, in_above) = (within(&below), within(&above));
    drop(pieces);
    uncovered(&below, in_below, holes);
    uncovered(&above, in_above, holes);
}

fn subtract(full: &[u64], pieces: &Boxes, holes: &mut Vec<Region>) {
    let (mut rest, mut spare) = (Boxes::new(pieces.rank()), Boxes::new(pieces.rank()));
    rest.push(full);
    for piece in pieces.iter() {
        cut_all(&mut rest, piece, &mut spare);
    }
    holes.extend(rest.iter().map(flat::region));
}

/// The axis and the position to split at: the middle boundary of the axis where that leaves the larger half with the
/// fewest pieces.
fn split(full: &[u64], pieces: &Boxes) -> Option<(usize, u64)> {
    let rank = pieces.rank();
    let mut best: Option<(usize, usize, u64)> = None;
    let mut boundaries = Vec::with_capacity(2 * pieces.len());
    for axis in 0..rank {
        let inside = full[axis] + 1..full[rank + axis];
        boundaries.clear();
        let both = pieces
            .iter()
            .flat_map(|piece| [piece[axis], piece[rank + axis]]);
        boundaries.extend(both.filter(|at| inside.contains(at)));
        if boundaries.is_empty() {
            continue;
        }
        let middle = boundaries.len() / 2;
        let at = *boundaries.select_nth_unstable(middle).1;
        let below = pieces.iter().filter(|piece| piece[axis] < at).count();
        let above = pieces
            .iter()
            .filter(|piece| piece[rank + axis] > at)
            .count();
        let cost = below.max(above);
        if best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, axis, at));
        }
    }
    best.map(|(_, axis, at)| (axis, at))
}
