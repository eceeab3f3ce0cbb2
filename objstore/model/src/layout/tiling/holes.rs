//! What of a box is not covered by disjoint boxes inside it.
//!
//! Divide and conquer: a box whose pieces add up to its volume has no hole; one with no piece is a
//! hole; few pieces are subtracted one by one; else the box is split at the boundary of a piece that
//! cuts fewest others, and each half sees only its own pieces. Full areas end at once.

use super::super::flat::{self, Boxes, Flat};
use super::plan::cut_all;
use crate::Region;

/// Pieces that are subtracted one by one.
const FEW: usize = 8;

/// Appends disjoint boxes that are together what `pieces` leave of `whole`. Neighbours may not be
/// joined. The pieces are disjoint and lie inside `whole`.
pub(super) fn uncovered(whole: &[u64], pieces: Boxes, holes: &mut Vec<Region>) {
    let covered = (pieces.iter()).fold(0u128, |sum, piece| sum.saturating_add(flat::volume(piece)));
    if covered == flat::volume(whole) && covered < u128::MAX {
        return;
    }
    if pieces.is_empty() {
        holes.push(flat::region(whole));
        return;
    }
    if pieces.len() <= FEW {
        subtract(whole, &pieces, holes);
        return;
    }
    let Some((axis, at)) = split(whole, &pieces) else {
        // No boundary inside: a piece is the whole, and it is the only one.
        subtract(whole, &pieces, holes);
        return;
    };
    let rank = pieces.rank();
    let (mut below, mut above) = (Flat::from_slice(whole), Flat::from_slice(whole));
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

fn subtract(whole: &[u64], pieces: &Boxes, holes: &mut Vec<Region>) {
    let (mut rest, mut spare) = (Boxes::new(pieces.rank()), Boxes::new(pieces.rank()));
    rest.push(whole);
    for piece in pieces.iter() {
        cut_all(&mut rest, piece, &mut spare);
    }
    holes.extend(rest.iter().map(flat::region));
}

/// The axis and the place to split at: the middle boundary of the axis where that leaves the larger
/// half with the fewest pieces.
fn split(whole: &[u64], pieces: &Boxes) -> Option<(usize, u64)> {
    let rank = pieces.rank();
    let mut best: Option<(usize, usize, u64)> = None;
    let mut boundaries = Vec::with_capacity(2 * pieces.len());
    for axis in 0..rank {
        let inside = whole[axis] + 1..whole[rank + axis];
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
