//! Dirty runs that are written while an overlapping direct write runs.
//!
//! A direct write (in place, or into a stream) removes the dirty runs under it once reads find its bytes: it is newer
//! than those runs. But it is not newer than runs written meanwhile, possibly by a program that had already read the
//! new bytes. So each direct write is listed while it runs, and each write into memory adds its range to all of them.

use std::sync::atomic::Ordering;

use slabfs_model::{Hyperslab, for_each_run};

use crate::client::Client;
use crate::client::buffer::runs::Runs;
use crate::client::object::geometry::Geometry;
use crate::client::object::{Object, State};

/// The running direct writes of an object.
#[derive(Debug, Default)]
pub(in crate::client) struct Overlaps {
    last: u64,
    running: Vec<Direct>,
}

#[derive(Debug)]
struct Direct {
    id: u64,
    /// Ranges `[from, to)` in canonical bytes that were written into memory meanwhile, in the order of the writes.
    overlay: Vec<(u64, u64)>,
}

impl Overlaps {
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.running.push(Direct {
            id: self.last,
            overlay: Vec::new(),
        });
        self.last
    }

    /// `[from, to)` was written into memory.
    pub(in crate::client) fn note(&mut self, from: u64, to: u64) {
        for direct in &mut self.running {
            match direct.overlay.last_mut() {
                Some((_, end)) if *end == from => *end = to,
                _ => direct.overlay.push((from, to)),
            }
        }
    }

    fn end(&mut self, id: u64) -> Vec<(u64, u64)> {
        let at = self.running.iter().position(|direct| direct.id == id);
        at.map(|at| self.running.swap_remove(at).overlay)
            .unwrap_or_default()
    }
}

/// A running direct write.
pub(in crate::client) struct Running<'a> {
    object: &'a Object,
    id: u64,
}

impl Object {
    /// A direct write begins.
    pub(in crate::client) fn begin_direct(&self) -> Running<'_> {
        Running {
            object: self,
            id: self.state.lock().overlaps.begin(),
        }
    }
}

impl Running<'_> {
    /// Ends it: `wrote` removes what was written from the dirty runs, except the bytes written meanwhile. The caller
    /// holds the object's state.
    fn end(self, state: &mut State, wrote: impl FnOnce(&mut Older<'_>)) {
        let overlay = disjoint(state.overlaps.end(self.id));
        // It has ended; its drop would take the lock of the state, which the caller holds.
        std::mem::forget(self);
        wrote(&mut Older {
            runs: &mut state.runs,
            overlay,
        });
    }
}

/// The dirty runs as of the start of a direct write.
pub(in crate::client) struct Older<'a> {
    runs: &'a mut Runs,
    /// Ranges that were written since.
    overlay: Vec<(u64, u64)>,
}

impl Older<'_> {
    /// Whether there are dirty runs in `[from, to)`.
    pub(in crate::client) fn overlaps(&self, from: u64, to: u64) -> bool {
        self.runs.overlaps(from, to)
    }

    /// Removes `[from, to)`.
    pub(in crate::client) fn remove(&mut self, from: u64, to: u64) {
        for_older(&self.overlay, from, to, &mut |from, to| {
            self.runs.remove(from, to);
        });
    }

    /// Removes the bytes of a slab of an object of `cells`.
    pub(in crate::client) fn remove_slab(&mut self, cells: &[u64], slab: &Hyperslab) {
        for_each_run(cells, slab, &mut |start, len| {
            self.remove(start as u64, (start + len) as u64);
        });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.object.state.lock().overlaps.end(self.id);
    }
}

impl Client {
    /// A direct write of these slabs, in an object of `reach` bytes, has failed. Any part of it may be stored, so
    /// cached blocks are dropped.
    pub(in crate::client) fn distrust<'s>(
        &self,
        object: &Object,
        geometry: &Geometry,
        reach: u64,
        slabs: impl Iterator<Item = &'s Hyperslab>,
    ) {
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache()
            .forget_slabs(object, &geometry.cells_at(reach), slabs);
    }

    /// Drops the cached blocks and the dirty runs that a direct write has replaced: the runs as of its start. `boxes`
    /// contain what it wrote in an object of `cells`; `wrote` removes each range of bytes from the dirty runs, and is
    /// only called if there are any.
    pub(in crate::client) fn uncover<'s>(
        &self,
        object: &Object,
        cells: &[u64],
        running: Running<'_>,
        boxes: impl Iterator<Item = &'s Hyperslab>,
        wrote: impl FnOnce(&mut Older<'_>),
    ) {
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_slabs(object, cells, boxes);
        let mut state = object.state.lock();
        if state.runs.is_empty() {
            return running.end(&mut state, |_| {});
        }
        running.end(&mut state, wrote);
        self.account(&mut state);
    }
}

/// The same bytes, sorted and merged: the ranges of many small writes are looked up for each of many small pieces.
fn disjoint(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, before| {
        let joins = next.0 <= before.1;
        if joins {
            before.1 = before.1.max(next.1);
        }
        joins
    });
    ranges
}

/// Calls `each` with the parts of `[from, to)` that are not in `overlay`, which is sorted and disjoint.
fn for_older(overlay: &[(u64, u64)], mut from: u64, to: u64, each: &mut dyn FnMut(u64, u64)) {
    let first = overlay.partition_point(|&(_, end)| end <= from);
    for &(start, end) in &overlay[first..] {
        if start >= to {
            break;
        }
        if start > from {
            each(from, start);
        }
        from = end;
    }
    if from < to {
        each(from, to);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_written_meanwhile_stay() {
        let mut overlaps = Overlaps::default();
        overlaps.note(0, 1);
        let (first, second) = (overlaps.begin(), overlaps.begin());
        for (from, to) in [(10, 12), (12, 14), (3, 5), (4, 11)] {
            overlaps.note(from, to);
        }
        let mut overlay = overlaps.end(first);
        assert_eq!(overlay, [(10, 14), (3, 5), (4, 11)]);
        overlay = disjoint(overlay);
        assert_eq!(overlay, [(3, 14)]);
        let parts = |from, to| {
            let mut parts = Vec::new();
            for_older(&overlay, from, to, &mut |from, to| parts.push((from, to)));
            parts
        };
        assert_eq!(parts(0, 20), [(0, 3), (14, 20)]);
        assert_eq!(parts(4, 14), []);
        assert_eq!(parts(0, 2), [(0, 2)]);
        assert_eq!(overlaps.end(first), []);
        overlaps.note(7, 8);
        assert_eq!(overlaps.end(second).len(), 4);
        assert!(overlaps.running.is_empty());
    }
}
