//! Plans: the parts of chunks that are visible in a selection, newest wins.
//!
//! 1. The R-tree gives the records whose bounds meet the selection's. Each has an *image*, a box in the selection's
//!    packed coordinates ([`super::image`]).
//! 2. The newer solid images are cut out of each image ([`super::overlay`] finds them); the remaining pieces are not
//!    hidden by a newer box. Newer lattices are not cut out: they have gaps.
//! 3. Each piece becomes one part, or a few where it cuts blocks of a lattice.
//! 4. The cells that no solid piece covers are holes ([`super::holes`]).
//!
//! The order of painting is therefore: holes first, then the parts in order, oldest first.

use super::super::flat::{self, Boxes, Flat};
use super::holes;
use super::image::{image_box, is_solid};
use super::overlay::{Hit, Overlay};
use super::{Part, Record, Tiling, TooMany, visible_bounds};
use crate::{Axis, Hyperslab, Region, intersect};

impl<T> Tiling<T> {
    /// The parts of chunks that are visible in `want`, and the holes that no chunk covers.
    ///
    /// `parts` are oldest first and have to be painted in that order; solid ones do not overlap, the others paint
    /// over older ones. `holes` are boxes of `want`'s packed coordinates, to be filled before any part is painted:
    /// cells that only lattices have count as holes. Appends to both. A selection of another rank is one hole.
    ///
    /// Costs O(log n) and, for each hit, O(log hits) and its overlaps.
    pub fn plan<'a>(
        &'a self,
        want: &Hyperslab,
        parts: &mut Vec<Part<'a, T>>,
        holes: &mut Vec<Region>,
    ) {
        // There is no limit to exceed.
        let _ = self.plan_within(want, usize::MAX, parts, holes);
    }

    /// As [`Tiling::plan`], with at most `most` parts and `most` holes.
    ///
    /// # Errors
    /// [`TooMany`] as soon as there are more: n columns overwritten by n rows have n² visible parts.
    pub fn plan_within<'a>(
        &'a self,
        want: &Hyperslab,
        most: usize,
        parts: &mut Vec<Part<'a, T>>,
        holes: &mut Vec<Region>,
    ) -> Result<(), TooMany> {
        let Some(bounds) = want.bounds() else {
            return Ok(());
        };
        let mut full = Flat::from_elem(0, want.rank());
        full.extend(want.axes.iter().map(Axis::len));
        if want.rank() != self.rank {
            holes.push(flat::region(&full));
            return Ok(());
        }
        let overlay = self.hits(want, &flat::flat(&bounds));
        if let [hit] = overlay.hits.as_slice()
            && hit.solid
            && overlay.images.get(0) == full.as_slice()
            && let Some(record) = self.slot(hit.slot)
        {
            // The usual case: everything in one chunk.
            push_parts(record, true, want, &full, parts);
            return match parts.len() > most {
                true => Err(TooMany),
                false => Ok(()),
            };
        }

        let mut oldest_first: Vec<u32> = (0..overlay.hits.len() as u32).collect();
        oldest_first.sort_unstable_by_key(|&index| overlay.hits[index as usize].order);
        let mut solid = Boxes::new(self.rank);
        let (mut pieces, mut spare) = (Boxes::new(self.rank), Boxes::new(self.rank));
        for index in oldest_first {
            let index = index as usize;
            let hit = overlay.hits[index];
            let Some(record) = self.slot(hit.slot) else {
                continue;
            };
            visible_pieces(&overlay, index, most, &mut pieces, &mut spare);
            if pieces.len() > most {
                return Err(TooMany);
            }
            for piece in pieces.iter() {
                push_parts(record, hit.solid, want, piece, parts);
                if hit.solid {
                    solid.push(piece);
                }
                if parts.len() > most {
                    return Err(TooMany);
                }
            }
        }
        holes::uncovered(&full, solid, holes);
        match holes.len() > most {
            true => Err(TooMany),
            false => Ok(()),
        }
    }

    /// The records with cells within the bounds of `want`, and their images.
    fn hits(&self, want: &Hyperslab, bounds: &[u64]) -> Overlay {
        let mut overlay = Overlay::new(self.rank);
        let mut image = Flat::new();
        self.tree.overlapping(bounds, &mut |slot| {
            if let Some(record) = self.slot(slot)
                && let Some(visible) = visible_bounds(record)
                && image_box(want, &visible, &mut image)
            {
                let solid = is_solid(want, &image, &record.slab);
                overlay.push(
                    Hit {
                        slot,
                        solid,
                        order: record.order,
                    },
                    &image,
                );
            }
            true
        });
        overlay.build();
        overlay
    }
}

/// Puts into `pieces` the part of the image of hit `index` that newer solid images do not hide. Stops cutting above
/// `most` pieces.
fn visible_pieces(
    overlay: &Overlay,
    index: usize,
    most: usize,
    pieces: &mut Boxes,
    spare: &mut Boxes,
) {
    pieces.clear();
    pieces.push(overlay.images.get(index));
    overlay.newer_over(index, &mut |newer| {
        cut_all(pieces, newer, spare);
        !pieces.is_empty() && pieces.len() <= most
    });
}

/// Cuts `cut` out of each of `pieces`.
pub(super) fn cut_all(pieces: &mut Boxes, cut: &[u64], spare: &mut Boxes) {
    if !pieces.iter().any(|piece| flat::overlaps(piece, cut)) {
        return;
    }
    spare.clear();
    for piece in pieces.iter() {
        spare.push_difference(piece, cut);
    }
    std::mem::swap(pieces, spare);
}

/// The parts of `record` in the box `piece` of `want`'s packed coordinates.
fn push_parts<'a, T>(
    record: &'a Record<T>,
    solid: bool,
    want: &Hyperslab,
    piece: &[u64],
    parts: &mut Vec<Part<'a, T>>,
) {
    let is_box = record.slab.is_box();
    if is_box && want.is_box() {
        // The usual case, by subtraction only.
        let rank = want.rank();
        let mut part = Part {
            record,
            want: Hyperslab::default(),
            chunk: Hyperslab::default(),
            solid,
        };
        for axis in 0..rank {
            let (from, len) = (piece[axis], piece[rank + axis] - piece[axis]);
            let cell = want.axes[axis].start + from;
            part.want.axes.push(Axis::span(from, len));
            part.chunk
                .axes
                .push(Axis::span(cell - record.slab.axes[axis].start, len));
        }
        parts.push(part);
        return;
    }
    let mut pairs = Vec::new();
    for (packed, cells) in want.parts(&flat::region(piece)) {
        if is_box {
            let mut chunk = cells;
            for (axis, slab) in chunk.axes.iter_mut().zip(&record.slab.axes) {
                axis.start -= slab.start;
            }
            parts.push(Part {
                record,
                want: Hyperslab::from_region(&packed),
                chunk,
                solid,
            });
            continue;
        }
        intersect(&cells, &record.slab, &mut pairs);
        for (mut in_want, chunk) in pairs.drain(..) {
            for (axis, &offset) in in_want.axes.iter_mut().zip(&packed.offset) {
                axis.start += offset;
            }
            parts.push(Part {
                record,
                want: in_want,
                chunk,
                solid,
            });
        }
    }
}
