//! Visits a hyperslab's cells in a dense array, in rows of equal runs.

use crate::{Axis, Hyperslab, MAX_RANK};

/// Equal runs at equal distances: `count` runs of `len` cells, `step` apart, from `base` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) base: usize,
    pub(super) step: usize,
    pub(super) count: usize,
    pub(super) len: usize,
}

impl Row {
    /// The starts of its runs.
    pub(super) fn starts(self) -> impl Iterator<Item = usize> {
        (0..self.count).map(move |run| self.base + run * self.step)
    }

    /// The cells of all its runs.
    pub(super) fn bytes(self) -> usize {
        self.count * self.len
    }
}

/// Which axes may be merged into one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge {
    /// All that are covered in full, from the last on.
    All,
    /// Only cells of the last axis.
    Rows,
}

/// An axis of the walk: `count` steps of `pitch` cells, from an offset that is already added.
#[derive(Clone, Copy, Default)]
struct Loop {
    count: usize,
    pitch: usize,
    at: usize,
}

/// Adds a loop around those from `depth` on, or extends the outermost of them if its steps continue at the same
/// distance.
fn push(loops: &mut [Loop], depth: &mut usize, count: u64, pitch: usize) {
    if count == 1 {
        return;
    }
    let count = count as usize;
    if let Some(inner) = loops.get_mut(*depth)
        && inner.count * inner.pitch == pitch
    {
        inner.count *= count;
        return;
    }
    *depth -= 1;
    loops[*depth] = Loop {
        count,
        pitch,
        at: 0,
    };
}

/// Calls `f` with the rows of `slab` in packed order. The slab lies inside the shape.
#[inline]
pub(super) fn walk(shape: &[u64], slab: &Hyperslab, merge: Merge, mut f: impl FnMut(Row)) {
    if slab.is_empty() {
        return;
    }
    // Each axis makes one loop, or two where it has several blocks of several cells. The slab has a
    // cell, so no axis of the shape is 0, and the volume of a buffer fits usize.
    let mut loops = [Loop::default(); 2 * MAX_RANK];
    let mut depth = loops.len();
    let mut base = 0;
    let mut pitch = 1usize;
    let mut run = 1usize;
    for (at, (axis, &width)) in slab.axes.iter().zip(shape).enumerate().rev() {
        let Axis {
            start,
            stride,
            count,
            block,
        } = axis.normal();
        base += start as usize * pitch;
        let full_so_far = run == pitch && depth == loops.len();
        let mergeable = full_so_far && (merge == Merge::All || at + 1 == shape.len());
        if mergeable {
            run *= block as usize;
        } else {
            push(&mut loops, &mut depth, block, pitch);
        }
        push(&mut loops, &mut depth, count, stride as usize * pitch);
        pitch *= width as usize;
    }
    let loops = &mut loops[depth..];
    let Some((inner, outer)) = loops.split_last_mut() else {
        f(Row {
            base,
            step: run,
            count: 1,
            len: run,
        });
        return;
    };
    loop {
        f(Row {
            base,
            step: inner.pitch,
            count: inner.count,
            len: run,
        });
        let mut level = outer.len();
        loop {
            if level == 0 {
                return;
            }
            level -= 1;
            let level_loop = &mut outer[level];
            level_loop.at += 1;
            if level_loop.at < level_loop.count {
                base += level_loop.pitch;
                break;
            }
            base -= (level_loop.count - 1) * level_loop.pitch;
            level_loop.at = 0;
        }
    }
}
