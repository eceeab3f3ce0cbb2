//! Dirty runs: bytes that were written through this mount and are not on a data server yet.
//!
//! A run is a contiguous range of an object's canonical bytes. The runs of an object are disjoint: a later write trims
//! what it covers of older ones, whichever handle wrote them, so the map always holds the latest byte of every place
//! and needs no sequence numbers. Each run remembers the handle that wrote it, so that a flush can group the data of
//! one writer into a box.
//!
//! Adjacent runs of one handle are joined while they are short, so that many small sequential writes need few
//! allocations. Pure: no locks, no I/O.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::ops::Deref;
use std::time::Instant;

use slabfs_model::layout::Run;
use slabfs_objstore::store::MemoryBytes;

use crate::client::handle::writer::HandleId;

/// Runs are joined up to this many bytes: longer ones gain nothing and cost copies when they are cut.
const JOIN_LIMIT: usize = 1 << 20;

/// Approximate memory cost of a run in addition to its bytes: the map's node, the allocation, the writer.
pub(in crate::client) const RUN_OVERHEAD: u64 = 128;

/// The bytes of a run.
#[derive(Debug, Clone)]
enum Bytes {
    Own(Vec<u8>),
    /// In the memory of the mount's own server, which takes them as a chunk without a copy: they do not change.
    Shared(MemoryBytes),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(bytes) => bytes,
        }
    }
}

impl Bytes {
    /// The bytes from `at` on.
    fn tail(&self, at: usize) -> Bytes {
        match self {
            Bytes::Own(bytes) => Bytes::Own(bytes[at..].to_vec()),
            Bytes::Shared(bytes) => Bytes::Shared(bytes.part(at, bytes.len())),
        }
    }

    fn truncate(&mut self, len: usize) {
        match self {
            Bytes::Own(bytes) => bytes.truncate(len),
            Bytes::Shared(bytes) => *bytes = bytes.part(0, len),
        }
    }
}

/// One contiguous range of dirty bytes.
#[derive(Debug)]
struct DirtyRun {
    bytes: Bytes,
    writer: HandleId,
    since: Instant,
}

/// The dirty runs of an object, by their offset in canonical bytes.
#[derive(Debug, Default)]
pub(in crate::client) struct Runs {
    map: BTreeMap<u64, DirtyRun>,
    cost: u64,
    /// Writers some of whose bytes were overwritten by other writers. A flush for one of them writes back the runs of
    /// all writers: otherwise other mounts would see neither its bytes nor those that replaced them.
    covered: Vec<HandleId>,
}

impl Runs {
    /// Whether nothing is dirty.
    pub(in crate::client) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The memory cost of the runs, in bytes.
    pub(in crate::client) fn cost(&self) -> u64 {
        self.cost
    }

    /// The end of the last run, in canonical bytes.
    pub(in crate::client) fn end(&self) -> Option<u64> {
        self.map
            .last_key_value()
            .map(|(start, run)| start + run.bytes.len() as u64)
    }

    /// When the oldest of the runs was written.
    pub(in crate::client) fn oldest(&self) -> Option<Instant> {
        self.map.values().map(|run| run.since).min()
    }

    /// Puts `bytes` at `offset` for `writer`, replacing dirty bytes there.
    pub(in crate::client) fn insert(&mut self, offset: u64, bytes: &[u8], writer: HandleId) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        if let Some((start, run)) = self.map.range_mut(..=offset).next_back() {
            let at = (offset - start) as usize;
            if run.writer == writer
                && let Bytes::Own(own) = &mut run.bytes
            {
                if at + bytes.len() <= own.len() {
                    own[at..at + bytes.len()].copy_from_slice(bytes);
                    return;
                }
                if at == own.len() && own.len() + bytes.len() <= JOIN_LIMIT {
                    let start = *start;
                    self.note_covered(offset, end, writer);
                    self.remove(offset, end);
                    self.extend(start, bytes);
                    return;
                }
            }
        }
        self.note_covered(offset, end, writer);
        self.remove(offset, end);
        self.place(offset, Bytes::Own(bytes.to_vec()), writer, Instant::now());
    }

    /// As [`Runs::insert`], without a copy. The run remains one of its own.
    pub(in crate::client) fn insert_shared(
        &mut self,
        offset: u64,
        bytes: MemoryBytes,
        writer: HandleId,
    ) {
        let end = offset + bytes.len() as u64;
        self.note_covered(offset, end, writer);
        self.remove(offset, end);
        self.place(offset, Bytes::Shared(bytes), writer, Instant::now());
    }

    fn note_covered(&mut self, from: u64, to: u64, writer: HandleId) {
        let below = self.map.range(..to).rev();
        let under = below.take_while(|(start, run)| *start + run.bytes.len() as u64 > from);
        for (_, run) in under.filter(|(_, run)| run.writer != writer) {
            if !self.covered.contains(&run.writer) {
                self.covered.push(run.writer);
            }
        }
    }

    fn extend(&mut self, start: u64, bytes: &[u8]) {
        if let Some(run) = self.map.get_mut(&start)
            && let Bytes::Own(own) = &mut run.bytes
        {
            own.extend_from_slice(bytes);
            self.cost += bytes.len() as u64;
        }
    }

    fn place(&mut self, offset: u64, bytes: Bytes, writer: HandleId, since: Instant) {
        self.cost += bytes.len() as u64 + RUN_OVERHEAD;
        self.map.insert(
            offset,
            DirtyRun {
                bytes,
                writer,
                since,
            },
        );
    }

    /// Drops the dirty bytes in `[from, to)`.
    pub(in crate::client) fn remove(&mut self, from: u64, to: u64) {
        if from >= to || self.map.is_empty() {
            return;
        }
        // The run that reaches into the range from before it keeps its head, and its tail if it has one.
        if let Some((&start, run)) = self.map.range_mut(..from).next_back() {
            let end = start + run.bytes.len() as u64;
            if end > from {
                let tail = (end > to).then(|| run.bytes.tail((to - start) as usize));
                self.cost -= end - from;
                run.bytes.truncate((from - start) as usize);
                let (writer, since) = (run.writer, run.since);
                if let Some(tail) = tail {
                    self.place(to, tail, writer, since);
                    return;
                }
            }
        }
        while let Some((&start, _)) = self.map.range((Included(from), Excluded(to))).next() {
            let Some(run) = self.map.remove(&start) else {
                return;
            };
            self.cost -= run.bytes.len() as u64 + RUN_OVERHEAD;
            let end = start + run.bytes.len() as u64;
            if end > to {
                let tail = run.bytes.tail((to - start) as usize);
                self.place(to, tail, run.writer, run.since);
            }
        }
    }

    /// Whether any byte of `[from, to)` is dirty.
    pub(in crate::client) fn overlaps(&self, from: u64, to: u64) -> bool {
        if from >= to {
            return false;
        }
        self.map
            .range(..to)
            .next_back()
            .is_some_and(|(start, run)| start + run.bytes.len() as u64 > from)
    }

    /// The dirty pieces inside `[from, to)`, ascending: offset and bytes.
    pub(in crate::client) fn pieces(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u64, &[u8])> {
        let first = self
            .map
            .range(..=from)
            .next_back()
            .map_or(from, |(start, _)| *start);
        let upper = if to > first {
            Excluded(to)
        } else {
            Excluded(first)
        };
        let range = if to == u64::MAX {
            self.map.range((Included(first), Unbounded))
        } else {
            self.map.range((Included(first), upper))
        };
        range.filter_map(move |(start, run)| {
            let end = start + run.bytes.len() as u64;
            let (low, high) = (from.max(*start), to.min(end));
            (low < high).then(|| {
                (
                    low,
                    &run.bytes[(low - start) as usize..(high - start) as usize],
                )
            })
        })
    }

    /// Whether all of `[from, to)` is dirty.
    pub(in crate::client) fn covers(&self, from: u64, to: u64) -> bool {
        let mut at = from;
        for (offset, bytes) in self.pieces(from, to) {
            if offset != at {
                return false;
            }
            at += bytes.len() as u64;
        }
        at == to
    }

    /// Takes out the runs of `writer` (of all writers with `None`), cut at `below`: bytes at or beyond it stay. For a
    /// writer whose bytes were overwritten by others, takes the runs of all writers.
    pub(in crate::client) fn take(&mut self, writer: Option<HandleId>, below: u64) -> Runs {
        let mut taken = Runs::default();
        let writer = writer.filter(|writer| !self.covered.contains(writer));
        if writer.is_none() && below == u64::MAX {
            taken.covered = std::mem::take(&mut self.covered);
        }
        let mut remaining = BTreeMap::new();
        for (start, mut run) in std::mem::take(&mut self.map) {
            if writer.is_some_and(|writer| writer != run.writer) || start >= below {
                remaining.insert(start, run);
                continue;
            }
            let end = start + run.bytes.len() as u64;
            if end > below {
                let tail = run.bytes.tail((below - start) as usize);
                run.bytes.truncate((below - start) as usize);
                remaining.insert(
                    below,
                    DirtyRun {
                        bytes: tail,
                        writer: run.writer,
                        since: run.since,
                    },
                );
            }
            taken.cost += run.bytes.len() as u64 + RUN_OVERHEAD;
            taken.map.insert(start, run);
        }
        self.map = remaining;
        self.recount();
        taken
    }

    fn recount(&mut self) {
        self.cost = self
            .map
            .values()
            .map(|run| run.bytes.len() as u64 + RUN_OVERHEAD)
            .sum();
    }

    /// Puts back runs whose flush failed, below the runs written meanwhile.
    pub(in crate::client) fn put_back(&mut self, older: Runs) {
        let overlay = std::mem::replace(self, older);
        self.covered.extend(overlay.covered);
        for (start, run) in overlay.map {
            self.note_covered(start, start + run.bytes.len() as u64, run.writer);
            self.remove(start, start + run.bytes.len() as u64);
            self.place(start, run.bytes, run.writer, run.since);
        }
    }

    /// The pieces of one writer, ascending.
    pub(in crate::client) fn pieces_of(
        &self,
        writer: HandleId,
    ) -> impl Iterator<Item = (u64, &[u8])> {
        self.map
            .iter()
            .filter(move |(_, run)| run.writer == writer)
            .map(|(start, run)| (*start, &*run.bytes))
    }

    /// Copies all runs, and the list of overwritten writers, into `other`.
    pub(in crate::client) fn copy_into(&self, other: &mut Runs) {
        other.covered.extend_from_slice(&self.covered);
        for (start, run) in &self.map {
            other.place(*start, run.bytes.clone(), run.writer, run.since);
        }
    }

    /// The end of the last run of `writer`.
    #[cfg(test)]
    fn end_of(&self, writer: Option<HandleId>) -> Option<u64> {
        self.map
            .iter()
            .rev()
            .find(|(_, run)| writer.is_none_or(|writer| writer == run.writer))
            .map(|(start, run)| start + run.bytes.len() as u64)
    }

    /// Whether a flush for `writer` has work: it has dirty runs, or others have overwritten them.
    pub(in crate::client) fn has(&self, writer: HandleId) -> bool {
        self.map.values().any(|run| run.writer == writer) || self.covered.contains(&writer)
    }

    /// The writers of the runs, each once.
    pub(in crate::client) fn writers(&self) -> Vec<HandleId> {
        let mut writers: Vec<HandleId> = self.map.values().map(|run| run.writer).collect();
        writers.sort_unstable();
        writers.dedup();
        writers
    }

    /// The ranges of the runs of `writer`, ascending, with adjacent runs joined.
    pub(in crate::client) fn ranges(&self, writer: HandleId) -> Vec<Run> {
        self.joined(|run| run.writer == writer)
    }

    /// As [`Runs::ranges`], without runs that are in the memory of the mount's own server.
    pub(in crate::client) fn own_ranges(&self, writer: HandleId) -> Vec<Run> {
        self.joined(|run| run.writer == writer && matches!(run.bytes, Bytes::Own(_)))
    }

    /// The ranges of runs that are in the memory of the mount's own server, one for each.
    pub(in crate::client) fn shared_ranges(&self) -> Vec<Run> {
        let shared = self.map.iter();
        let shared = shared.filter(|(_, run)| matches!(run.bytes, Bytes::Shared(_)));
        let range = |(start, run): (&u64, &DirtyRun)| Run {
            offset: *start,
            len: run.bytes.len() as u64,
        };
        shared.map(range).collect()
    }

    fn joined(&self, wanted: impl Fn(&DirtyRun) -> bool) -> Vec<Run> {
        let mut ranges: Vec<Run> = Vec::new();
        for (start, run) in self.map.iter().filter(|(_, run)| wanted(run)) {
            let len = run.bytes.len() as u64;
            match ranges.last_mut() {
                Some(last) if last.offset + last.len == *start => last.len += len,
                _ => ranges.push(Run {
                    offset: *start,
                    len,
                }),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use slabfs_objstore::store::MemoryStore;

    use super::*;

    const A: HandleId = HandleId(1);
    const B: HandleId = HandleId(2);

    #[test]
    fn a_flush_of_an_overwritten_writer_takes_all_runs() {
        let mut runs = Runs::default();
        runs.insert(0, b"aaaa", A);
        runs.insert(8, b"bb", B);
        assert!(runs.take(Some(B), u64::MAX).has(B) && runs.has(A));
        runs.insert(1, b"bbbbbb", B);
        assert!(runs.has(A));
        let taken = runs.take(Some(A), u64::MAX);
        assert!(runs.is_empty() && !runs.has(A) && !runs.has(B));
        assert!(taken.covers(0, 7));
        runs.put_back(taken);
        assert!(runs.has(A));
        // Completely overwritten, and still to be flushed.
        runs.insert(0, b"bbbb", B);
        assert!(runs.has(A) && runs.pieces_of(A).next().is_none());
        assert!(runs.take(Some(A), u64::MAX).covers(0, 7));
        runs.insert(0, b"b", B);
        assert!(!runs.has(A));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64, Vec<u8>, bool),
        InsertShared(u64, Vec<u8>, bool),
        Remove(u64, u64),
        TakeAndPutBack(bool, u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u64..80, prop::collection::vec(1u8..=255, 0..30), any::<bool>())
                .prop_map(|(at, bytes, a)| Step::Insert(at, bytes, a)),
            2 => (0u64..80, prop::collection::vec(1u8..=255, 1..30), any::<bool>())
                .prop_map(|(at, bytes, a)| Step::InsertShared(at, bytes, a)),
            1 => (0u64..100, 0u64..40).prop_map(|(from, len)| Step::Remove(from, from + len)),
            1 => (any::<bool>(), 0u64..120).prop_map(|(a, below)| Step::TakeAndPutBack(a, below)),
        ]
    }

    /// As after a failed flush while a read still holds the runs it took.
    #[test]
    fn a_copy_includes_the_list_of_overwritten_writers() {
        let mut runs = Runs::default();
        runs.insert(10, &[1; 5], A);
        runs.insert(10, &[2; 5], B);
        assert!(runs.has(A));
        let taken = runs.take(None, u64::MAX);
        assert!(!runs.has(A));
        let mut copy = Runs::default();
        taken.copy_into(&mut copy);
        runs.put_back(copy);
        assert!(runs.has(A) && runs.has(B));
    }

    proptest! {
        #[test]
        fn runs_are_a_sparse_byte_map(steps in prop::collection::vec(step(), 1..40)) {
            let memory = MemoryStore::new(1 << 20).expect("memory");
            let mut copies = Vec::new();
            let mut runs = Runs::default();
            let mut naive: Vec<Option<(u8, HandleId)>> = vec![None; 160];
            let mut covered = std::collections::BTreeSet::new();
            for step in steps {
                match step {
                    Step::Insert(at, ref bytes, a) | Step::InsertShared(at, ref bytes, a) => {
                        let writer = if a { A } else { B };
                        match step {
                            Step::InsertShared(..) => {
                                let bytes = memory.copy(bytes).expect("room");
                                copies.push((bytes.clone(), bytes.to_vec()));
                                runs.insert_shared(at, bytes, writer);
                            }
                            _ => runs.insert(at, bytes, writer),
                        }
                        for (i, byte) in bytes.iter().enumerate() {
                            let under = naive[at as usize + i].replace((*byte, writer));
                            covered.extend(under.map(|(_, of)| of).filter(|of| *of != writer));
                        }
                    }
                    Step::Remove(from, to) => {
                        runs.remove(from, to);
                        naive[from as usize..to as usize].fill(None);
                    }
                    Step::TakeAndPutBack(a, below) => {
                        let writer = if a { A } else { B };
                        let all = covered.contains(&writer);
                        let taken = runs.take(Some(writer), below);
                        for (offset, bytes) in taken.pieces(0, u64::MAX) {
                            for (i, byte) in bytes.iter().enumerate() {
                                let cell = naive[offset as usize + i];
                                prop_assert!(cell.is_some_and(|(b, of)| b == *byte && (all || of == writer)));
                                prop_assert!(offset + (i as u64) < below);
                            }
                        }
                        let whose = (!all).then_some(writer);
                        prop_assert!(runs.end_of(whose).is_none_or(|end| end > below));
                        runs.put_back(taken);
                    }
                }
                for (bytes, before) in &copies {
                    prop_assert_eq!(&**bytes, before.as_slice());
                }
                let mut seen: Vec<Option<u8>> = vec![None; 160];
                let mut cost = 0;
                for (offset, bytes) in runs.pieces(0, u64::MAX) {
                    cost += bytes.len() as u64 + RUN_OVERHEAD;
                    for (i, byte) in bytes.iter().enumerate() {
                        prop_assert!(seen[offset as usize + i].replace(*byte).is_none());
                    }
                }
                prop_assert_eq!(runs.cost(), cost);
                let found: std::collections::BTreeSet<_> = runs.covered.iter().copied().collect();
                prop_assert_eq!(&found, &covered);
                let bytes: Vec<Option<u8>> = naive.iter().map(|cell| cell.map(|(byte, _)| byte)).collect();
                prop_assert_eq!(&seen, &bytes);
                for writer in [A, B] {
                    for range in runs.ranges(writer) {
                        for at in range.offset..range.offset + range.len {
                            prop_assert_eq!(naive[at as usize].map(|(_, w)| w), Some(writer));
                        }
                    }
                }
                for (from, to) in [(0, 40), (13, 57), (20, 21), (0, 160)] {
                    let slice = &naive[from as usize..to as usize];
                    prop_assert_eq!(runs.overlaps(from, to), slice.iter().any(Option::is_some));
                    prop_assert_eq!(runs.covers(from, to), slice.iter().all(Option::is_some));
                }
            }
        }
    }
}
