//! What is written into memory while a direct write runs.
//!
//! A direct write (in place, or into a stream) takes the dirty runs under it out when its bytes are where reads
//! find them: it is newer than they are. But not newer than what was written into memory meanwhile, maybe by
//! somebody who had read the new bytes already. So each direct write is listed while it runs, and each write
//! into memory notes its place with all of them.

use super::object::{Object, State};

/// The direct writes of an object that run.
#[derive(Debug, Default)]
pub(super) struct Overlaps {
    last: u64,
    running: Vec<Direct>,
}

#[derive(Debug)]
struct Direct {
    id: u64,
    /// `[from, to)` in canonical bytes, in the order of the writes.
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
    pub(super) fn note(&mut self, from: u64, to: u64) {
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

/// A direct write that runs.
pub(super) struct Running<'a> {
    object: &'a Object,
    id: u64,
}

impl Object {
    /// A direct write begins.
    pub(super) fn begin_direct(&self) -> Running<'_> {
        Running {
            object: self,
            id: self.state.lock().overlaps.begin(),
        }
    }
}

impl Running<'_> {
    /// Ends it: what lies in memory of each `[from, to)` that `wrote` names is gone, but what is newer. The caller
    /// holds the object's state.
    pub(super) fn end(self, state: &mut State, wrote: impl FnOnce(&mut dyn FnMut(u64, u64))) {
        let overlay = disjoint(state.overlaps.end(self.id));
        // It has ended, and whoever drops it looks for that in the state.
        std::mem::forget(self);
        wrote(&mut |from, to| {
            for_older(&overlay, from, to, &mut |from, to| {
                state.runs.remove(from, to)
            });
        });
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.object.state.lock().overlaps.end(self.id);
    }
}

/// The same bytes in order, each once: what many small writes leave is looked up for each of many small pieces.
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

/// Calls `each` with the parts of `[from, to)` that `overlay`, which is sorted and disjoint, has nothing of.
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
    fn what_is_newer_stays() {
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
