//! Converts the dirty byte runs of a flush into few boxes.
//!
//! A process that writes a block of an array row by row leaves one run a row; stored run by run that would be as many
//! chunks. Here the runs become boxes, and adjacent boxes become one: ten rows of nine are one box of 10×9.
//!
//! 1. Runs that touch are joined, and each run is cut into boxes ([`boxes_of_run`]).
//! 2. From the second fastest axis to the slowest: boxes that touch on this axis and agree on all others are joined.
//!    The boxes are in canonical order, so those with one index on the axis (a *line*) are neighbours in the list,
//!    sorted alike, and two lines are joined as sorted lists are merged: one scan of the list for each axis.
//! 3. Boxes above the size limit are cut along the slowest axis, by rows of it while one fits, else within each row
//!    along the next axis.
//!
//! Greedy: it finds few boxes, not always the fewest. O(n · rank) for sorted runs; others are sorted first, O(n log
//! n).

use super::flat::{self, Boxes};
use crate::{Coords, Region};

/// Bytes of an object in canonical order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

/// Appends the boxes that make up the bytes `offset..offset + len` of an object, in canonical order; at most 2·rank −
/// 1. Bytes beyond the end of the object are dropped.
pub fn boxes_of_run(cells: &[u64], offset: u64, len: u64, out: &mut Vec<Region>) {
    if let Some(region) = in_one_line(cells, offset, len) {
        return out.push(region);
    }
    let mut boxes = Boxes::new(cells.len());
    push_run(&Shape::of(cells), Run { offset, len }, &mut boxes);
    out.extend(boxes.iter().map(flat::region));
}

/// The box of a run within one line along the last axis: the requests of a program that reads a box row by row.
fn in_one_line(cells: &[u64], offset: u64, len: u64) -> Option<Region> {
    let (&line, outer) = cells.split_last()?;
    if len == 0 || line == 0 || offset % line > line.checked_sub(len)? {
        return None;
    }
    let mut region = Region {
        offset: Coords::from_elem(offset % line, cells.len()),
        shape: Coords::from_elem(1, cells.len()),
    };
    region.shape[outer.len()] = len;
    let mut at = offset / line;
    for (place, &len) in region.offset.iter_mut().zip(outer).rev() {
        *place = at.checked_rem(len)?;
        at /= len;
    }
    (at == 0).then_some(region)
}

/// Few disjoint boxes that make up these runs, in canonical order of their first cells.
///
/// `cells` are the dims with the last axis in bytes; no box has more than `max_bytes` bytes (at least 1). Runs should
/// be sorted and disjoint; others are sorted first, and bytes beyond the end of the object are dropped.
pub fn coalesce(cells: &[u64], runs: &[Run], max_bytes: u64) -> Vec<Region> {
    let shape = Shape::of(cells);
    let mut boxes = Boxes::with_capacity(cells.len(), runs.len());
    if runs
        .windows(2)
        .all(|pair| pair[0].offset.saturating_add(pair[0].len) <= pair[1].offset)
    {
        push_runs(&shape, runs, &mut boxes);
    } else {
        let mut sorted = runs.to_vec();
        sorted.sort_unstable();
        push_runs(&shape, &sorted, &mut boxes);
    }
    for axis in (0..cells.len().saturating_sub(1)).rev() {
        join_along(axis, &mut boxes);
    }
    let mut out = Vec::with_capacity(boxes.len());
    for flat in boxes.iter() {
        push_cut(flat::region(flat), 0, max_bytes.max(1), &mut out);
    }
    out
}

/// The extents of an object and the bytes of one step on each axis.
struct Shape<'a> {
    cells: &'a [u64],
    steps: Coords,
    bytes: u64,
}

impl Shape<'_> {
    fn of(cells: &[u64]) -> Shape<'_> {
        let mut steps = Coords::from_elem(1, cells.len());
        let mut bytes = 1u64;
        for (step, &len) in steps.iter_mut().zip(cells).rev() {
            *step = bytes;
            bytes = bytes.saturating_mul(len);
        }
        if cells.contains(&0) {
            bytes = 0;
        }
        Shape {
            cells,
            steps,
            bytes,
        }
    }
}

/// Cuts sorted runs into boxes; runs that touch or overlap count as one.
fn push_runs(shape: &Shape<'_>, runs: &[Run], boxes: &mut Boxes) {
    let Some(&first) = runs.first() else { return };
    let mut joined = first;
    for &run in &runs[1..] {
        let end = joined.offset.saturating_add(joined.len);
        if run.offset <= end {
            joined.len = joined
                .len
                .max(run.offset.saturating_add(run.len) - joined.offset);
        } else {
            push_run(shape, joined, boxes);
            joined = run;
        }
    }
    push_run(shape, joined, boxes);
}

/// Cuts one run into boxes: the end of a first row, complete rows, the beginning of a last row; the first and the
/// last are cut in the same way within their rows.
fn push_run(shape: &Shape<'_>, run: Run, boxes: &mut Boxes) {
    let end = run.offset.saturating_add(run.len).min(shape.bytes);
    let rank = shape.cells.len();
    let mut flat = flat::Flat::from_elem(0, 2 * rank);
    if run.offset >= end {
        return;
    }
    if rank == 0 {
        boxes.push(&flat);
        return;
    }
    push_range(shape, 0, run.offset, end, &mut flat, boxes);
}

/// The bytes `from..to`, counted from the row that `flat` has on the axes before `axis`.
fn push_range(
    shape: &Shape<'_>,
    axis: usize,
    from: u64,
    to: u64,
    flat: &mut flat::Flat,
    boxes: &mut Boxes,
) {
    let (rank, step) = (shape.cells.len(), shape.steps[axis]);
    let (mut first, head) = (from / step, from % step);
    let (last, tail) = (to / step, to % step);
    let mut row = |index: u64, from: u64, to: u64, boxes: &mut Boxes| {
        flat[axis] = index;
        flat[rank + axis] = index + 1;
        push_range(shape, axis + 1, from, to, flat, boxes);
    };
    if first == last && head > 0 {
        return row(first, head, tail, boxes);
    }
    if head > 0 {
        row(first, head, step, boxes);
        first += 1;
    }
    if first < last {
        flat[axis] = first;
        flat[rank + axis] = last;
        for faster in axis + 1..rank {
            flat[faster] = 0;
            flat[rank + faster] = shape.cells[faster];
        }
        boxes.push(flat);
    }
    if tail > 0 {
        flat[axis] = last;
        flat[rank + axis] = last + 1;
        push_range(shape, axis + 1, 0, tail, flat, boxes);
    }
}

/// Joins boxes that touch on `axis` and agree on all others.
///
/// The boxes are disjoint and in canonical order of their first cells. A box that is longer than 1 on an axis before
/// `axis` covers the full extent of `axis` and all later axes: it was cut so from runs, and joins on faster axes
/// preserve that. Therefore all boxes of a line end at one index, or the line is one box.
fn join_along(axis: usize, boxes: &mut Boxes) {
    let (rank, len) = (boxes.rank(), boxes.len());
    let same_line = |boxes: &Boxes, one: usize, other: usize| {
        boxes.get(one)[..=axis] == boxes.get(other)[..=axis]
    };
    // The boxes that the next line may continue, sorted by their coordinates after `axis`.
    let (mut open, mut next): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
    let mut dead = vec![false; len];
    let mut at = 0;
    while at < len {
        let line = at..(at + 1..len)
            .find(|&other| !same_line(boxes, at, other))
            .unwrap_or(len);
        at = line.end;
        let continues = open.first().is_some_and(|&first| {
            let (before, now) = (boxes.get(first as usize), boxes.get(line.start));
            before[..axis] == now[..axis]
                && before[rank..rank + axis] == now[rank..rank + axis]
                && before[rank + axis] == now[axis]
        });
        if !continues {
            open.clear();
        }
        next.clear();
        let mut candidates = open.iter().copied().peekable();
        for index in line {
            let now = boxes.get(index);
            let behind = |flat: &[u64]| flat[axis + 1..rank].cmp(&now[axis + 1..rank]);
            while candidates
                .next_if(|&c| behind(boxes.get(c as usize)).is_lt())
                .is_some()
            {}
            let partner = candidates.next_if(|&c| {
                let before = boxes.get(c as usize);
                before[axis + 1..rank] == now[axis + 1..rank]
                    && before[rank + axis + 1..] == now[rank + axis + 1..]
            });
            match partner {
                Some(partner) => {
                    let end = now[rank + axis];
                    boxes.get_mut(partner as usize)[rank + axis] = end;
                    dead[index] = true;
                    next.push(partner);
                }
                None => next.push(index as u32),
            }
        }
        std::mem::swap(&mut open, &mut next);
    }
    boxes.retain(|index| !dead[index]);
}

/// Appends `region`, cut into pieces of at most `max` bytes along the first axis from `axis` on that allows it.
fn push_cut(region: Region, axis: usize, max: u64, out: &mut Vec<Region>) {
    if axis == region.rank() || region.volume() <= max {
        out.push(region);
        return;
    }
    let len = region.shape[axis];
    let mut row = region.clone();
    row.shape[axis] = 1;
    let rows = (max / row.volume()).max(1);
    // Pieces of nearly one size, except on the fastest axis: there full pieces preserve their alignment.
    let rows = if axis + 1 < region.rank() {
        len.div_ceil(len.div_ceil(rows))
    } else {
        rows
    };
    let mut from = 0;
    while from < len {
        let mut piece = region.clone();
        piece.offset[axis] += from;
        piece.shape[axis] = rows.min(len - from);
        from += piece.shape[axis];
        push_cut(piece, axis + 1, max, out);
    }
}

#[cfg(test)]
mod tests;
