//! Intersects two hyperslabs: the cells both select, in the packed coordinates of each.
//!
//! Two boxes give one pair. A box and a lattice give at most three pairs an axis, since a box cuts the lattice's
//! packed indices in one range ([`super::cut`]). Two lattices repeat together after the least common multiple of
//! their strides, and each pair of blocks that meets within one such period makes one pair for all periods; if the
//! period is longer than the lattices, the blocks of the one with fewer are matched one by one instead.

use super::cut::cut_axis;
use super::product::{Pieces, for_each_choice};
use super::{Axis, Hyperslab};
use smallvec::SmallVec;

/// The packed indices of the same cells, in one and in the other.
type Pair = (Axis, Axis);

/// Appends the cells that both select. Both sides of a pair have the same packed shape, the first in `want`'s packed
/// coordinates, the second in `have`'s. The pairs are disjoint and complete.
pub fn intersect(want: &Hyperslab, have: &Hyperslab, out: &mut Vec<(Hyperslab, Hyperslab)>) {
    debug_assert_eq!(want.rank(), have.rank(), "ranks");
    if want.is_box() && have.is_box() {
        out.extend(match_boxes(want, have));
        return;
    }
    let mut axes: SmallVec<[Pieces<Pair>; 4]> = SmallVec::new();
    for (want, have) in want.axes.iter().zip(&have.axes) {
        let pairs = match_axis(&want.normal(), &have.normal());
        if pairs.is_empty() {
            return;
        }
        axes.push(pairs);
    }
    for_each_choice(&axes, |pairs| {
        let (mut in_want, mut in_have) = (Hyperslab::default(), Hyperslab::default());
        for &(want, have) in pairs {
            in_want.axes.push(want);
            in_have.axes.push(have);
        }
        out.push((in_want, in_have));
    });
}

/// The common case, without pieces.
fn match_boxes(want: &Hyperslab, have: &Hyperslab) -> Option<(Hyperslab, Hyperslab)> {
    let (mut in_want, mut in_have) = (Hyperslab::default(), Hyperslab::default());
    for (want, have) in want.axes.iter().zip(&have.axes) {
        let (want, have) = match_spans(&want.normal(), &have.normal())?;
        in_want.axes.push(want);
        in_have.axes.push(have);
    }
    Some((in_want, in_have))
}

/// The common cells of two spans.
fn match_spans(want: &Axis, have: &Axis) -> Option<Pair> {
    let from = want.start.max(have.start);
    let len = want.end().min(have.end()).checked_sub(from)?;
    let common = |side: &Axis| Axis::span(from - side.start, len);
    (len > 0).then(|| (common(want), common(have)))
}

fn match_axis(want: &Axis, have: &Axis) -> Pieces<Pair> {
    let mut pairs = Pieces::new();
    if want.start.max(have.start) >= want.end().min(have.end()) {
        return pairs;
    }
    match (want.count, have.count) {
        (1, 1) => pairs.extend(match_spans(want, have)),
        (1, _) => span_with(want.start, want.end(), have, |in_span, in_lattice| {
            pairs.push((in_span, in_lattice));
        }),
        (_, 1) => span_with(have.start, have.end(), want, |in_span, in_lattice| {
            pairs.push((in_lattice, in_span));
        }),
        _ => match_lattices(want, have, &mut pairs),
    }
    pairs
}

/// Matches the cells `from..to` with a lattice; calls `give` with packed indices of the span and of the lattice.
fn span_with(from: u64, to: u64, lattice: &Axis, mut give: impl FnMut(Axis, Axis)) {
    let indices = lattice.index_range(from, to);
    for (first, cells) in cut_axis(lattice, indices.start, indices.end) {
        let in_span = Axis {
            start: cells.start - from,
            ..cells
        };
        give(in_span, Axis::span(first, cells.len()));
    }
}

fn match_lattices(want: &Axis, have: &Axis, pairs: &mut Pieces<Pair>) {
    let period = Period::of(want, have);
    let fewer = want.count.min(have.count);
    if period.pairs_at_most(want, have) <= u128::from(fewer) * 3 {
        period.match_all(want, have, pairs);
    } else if want.count <= have.count {
        for block in 0..want.count {
            let from = want.start + block * want.stride;
            span_with(from, from + want.block, have, |in_block, in_have| {
                let start = block * want.block + in_block.start;
                pairs.push((Axis { start, ..in_block }, in_have));
            });
        }
    } else {
        for block in 0..have.count {
            let from = have.start + block * have.stride;
            span_with(from, from + have.block, want, |in_block, in_want| {
                let start = block * have.block + in_block.start;
                pairs.push((in_want, Axis { start, ..in_block }));
            });
        }
    }
}

/// After these many blocks of each, two lattices repeat their relative position.
struct Period {
    want_blocks: u64,
    have_blocks: u64,
}

impl Period {
    fn of(want: &Axis, have: &Axis) -> Period {
        let common = gcd(want.stride, have.stride);
        Period {
            want_blocks: have.stride / common,
            have_blocks: want.stride / common,
        }
    }

    fn pairs_at_most(&self, want: &Axis, have: &Axis) -> u128 {
        let each = want.block / have.stride + 2;
        u128::from(self.want_blocks.min(want.count)) * u128::from(each)
    }

    /// Matches each block of `want` in the first period with the blocks it would meet if `have` were unlimited in
    /// both directions, then selects the periods in which both blocks exist.
    fn match_all(&self, want: &Axis, have: &Axis, pairs: &mut Pieces<Pair>) {
        // i128: block numbers of the extended lattice may be negative, and products exceed 64 bits.
        let wide = |value: u64| i128::from(value);
        let (have_start, have_stride) = (wide(have.start), wide(have.stride));
        for first in 0..self.want_blocks.min(want.count) {
            let from = wide(want.start) + wide(first) * wide(want.stride);
            let to = from + wide(want.block);
            // The first block of `have` that ends after `from`.
            let mut other = (from - have_start - wide(have.block)).div_euclid(have_stride) + 1;
            loop {
                let other_from = have_start + other * have_stride;
                if other_from >= to {
                    break;
                }
                let cut_from = from.max(other_from);
                let cut_to = to.min(other_from + wide(have.block));
                if let Some((skip, count)) = self.periods(first, other, want.count, have.count) {
                    let want_block = wide(first) + skip * wide(self.want_blocks);
                    let have_block = other + skip * wide(self.have_blocks);
                    let side = |block: i128, slab: &Axis, within: i128, blocks: u64| Axis {
                        start: (block * wide(slab.block) + within) as u64,
                        stride: blocks.saturating_mul(slab.block),
                        count: count as u64,
                        block: (cut_to - cut_from) as u64,
                    };
                    let in_want = side(want_block, want, cut_from - from, self.want_blocks);
                    let in_have = side(have_block, have, cut_from - other_from, self.have_blocks);
                    pairs.push((in_want.normal(), in_have.normal()));
                }
                other += 1;
            }
        }
    }

    /// The periods in which block `first` of one and block `other` of the other both exist: how many to skip, and how
    /// many there are.
    fn periods(&self, first: u64, other: i128, wants: u64, haves: u64) -> Option<(i128, i128)> {
        let have_blocks = i128::from(self.have_blocks);
        let want_last = i128::from((wants - 1 - first) / self.want_blocks);
        let skip = (-other).max(0).div_euclid(have_blocks)
            + i128::from((-other).max(0).rem_euclid(have_blocks) > 0);
        let have_last = (i128::from(haves) - 1 - other).div_euclid(have_blocks);
        let last = want_last.min(have_last);
        (skip <= last).then_some((skip, last - skip + 1))
    }
}

/// The greatest common divisor; the other number if one is 0.
pub(crate) fn gcd(mut one: u64, mut other: u64) -> u64 {
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}
