//! The split of an overfull node, as in the R*-tree.
//!
//! On each axis the entries are sorted by their lows and by their ends, and every cut that leaves both halves
//! [`LEAST`] entries is examined. The axis whose cuts have the smallest margins (sums of edge lengths) in all is
//! chosen, since it gives the most cube-like halves; on it the cut whose halves overlap least, then the one of least
//! volume.

use super::super::flat::{Boxes, Flat};
use super::{CAPACITY, LEAST};

/// The best cut found so far on one axis.
struct Cut {
    overlap: f64,
    volume: f64,
    first: Vec<usize>,
    second: Vec<usize>,
}

/// Divides the entries of an overfull node: returns the indices of each half.
pub(super) fn split(boxes: &Boxes) -> (Vec<usize>, Vec<usize>) {
    let mut best: Option<(f64, Cut)> = None;
    for axis in 0..boxes.rank() {
        if let Some((margin, cut)) = best_on_axis(boxes, axis)
            && best.as_ref().is_none_or(|(least, _)| margin < *least)
        {
            best = Some((margin, cut));
        }
    }
    match best {
        Some((_, cut)) => (cut.first, cut.second),
        // No axes: any division is equal.
        None => (
            (0..CAPACITY / 2).collect(),
            (CAPACITY / 2..boxes.len()).collect(),
        ),
    }
}

fn best_on_axis(boxes: &Boxes, axis: usize) -> Option<(f64, Cut)> {
    let (rank, len) = (boxes.rank(), boxes.len());
    let mut margins = 0.0;
    let mut best: Option<Cut> = None;
    for side in [axis, rank + axis] {
        let other = if side == axis { rank + axis } else { axis };
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_unstable_by_key(|&index| (boxes.get(index)[side], boxes.get(index)[other]));
        let heads = growing_bounds(boxes, order.iter());
        let tails = growing_bounds(boxes, order.iter().rev());
        for cut in LEAST..=len - LEAST {
            let (head, tail) = (heads.get(cut - 1), tails.get(len - cut - 1));
            margins += margin(head) + margin(tail);
            let (overlap, volume) = (overlap(head, tail), volume(head) + volume(tail));
            let better = best.as_ref().is_none_or(|best| {
                overlap < best.overlap || (overlap == best.overlap && volume < best.volume)
            });
            if better {
                let (first, second) = (order[..cut].to_vec(), order[cut..].to_vec());
                best = Some(Cut {
                    overlap,
                    volume,
                    first,
                    second,
                });
            }
        }
    }
    best.map(|cut| (margins, cut))
}

/// The boxes around the first one, the first two, the first three, and so on.
fn growing_bounds<'a>(boxes: &Boxes, order: impl Iterator<Item = &'a usize>) -> Boxes {
    let mut out = Boxes::with_capacity(boxes.rank(), boxes.len());
    let mut bounds = Flat::new();
    for &index in order {
        if bounds.is_empty() {
            bounds.extend_from_slice(boxes.get(index));
        } else {
            grow(&mut bounds, boxes.get(index));
        }
        out.push(&bounds);
    }
    out
}

/// Grows `bounds` to hold `flat`; returns whether that changed it.
pub(super) fn grow(bounds: &mut [u64], flat: &[u64]) -> bool {
    let rank = flat.len() / 2;
    let mut changed = false;
    for axis in 0..rank {
        changed |= flat[axis] < bounds[axis] || flat[rank + axis] > bounds[rank + axis];
        bounds[axis] = bounds[axis].min(flat[axis]);
        bounds[rank + axis] = bounds[rank + axis].max(flat[rank + axis]);
    }
    changed
}

fn edges(flat: &[u64]) -> impl Iterator<Item = f64> {
    let rank = flat.len() / 2;
    (0..rank).map(move |axis| (flat[rank + axis] - flat[axis]) as f64)
}

fn margin(flat: &[u64]) -> f64 {
    edges(flat).sum()
}

/// A float: it only chooses between places, and 2^64 on 32 axes fits no integer.
pub(super) fn volume(flat: &[u64]) -> f64 {
    edges(flat).product()
}

fn overlap(one: &[u64], other: &[u64]) -> f64 {
    let rank = one.len() / 2;
    let edge = |axis: usize| {
        let low = one[axis].max(other[axis]);
        one[rank + axis].min(other[rank + axis]).saturating_sub(low) as f64
    };
    (0..rank).map(edge).product()
}
