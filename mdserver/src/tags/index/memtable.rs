//! The latest changes, in memory.
//!
//! Every entry records its changes with the numbers of their batches, so that a reader sees all batches up to the
//! last one at its start, whatever is added meanwhile. A reader copies a few entries at a time under the lock and
//! continues after the last of them; a writer releases the lock every few dozen entries.

use parking_lot::RwLock;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An entry; most fit without an allocation of their own.
type Key = SmallVec<[u8; 40]>;
/// Changes of an entry, oldest first: twice the batch's number, plus one if it was removed.
type Changes = SmallVec<[u64; 2]>;

/// Entries written under one hold of the lock.
const WRITE_STEP: usize = 64;
/// Entries examined under one hold of the lock.
const READ_STEP: usize = 512;
/// Entries copied at a reader's first step; each later step copies twice as many, up to half of
/// [`READ_STEP`].
const FIRST_STEP: usize = 8;
/// Memory of an entry in addition to the bytes that do not fit into it, in a tree whose nodes are two thirds full.
const OVERHEAD: usize = (size_of::<Key>() + size_of::<Changes>()) * 3 / 2;

/// A table of changes.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    map: RwLock<BTreeMap<Key, Changes>>,
    memory: AtomicUsize,
}

impl Memtable {
    /// Records entries as added or removed by batch `batch`, which must not be visible to any reader yet. Later changes
    /// of a batch to the same entry win.
    pub(super) fn put(&self, changes: &mut dyn Iterator<Item = (&[u8], bool)>, batch: u64) {
        let mut changes = changes.peekable();
        while changes.peek().is_some() {
            let mut memory = 0;
            let mut map = self.map.write();
            for (key, gone) in changes.by_ref().take(WRITE_STEP) {
                memory += note(&mut map, key, batch << 1 | u64::from(gone));
            }
            drop(map);
            self.memory.fetch_add(memory, Ordering::Relaxed);
        }
    }

    /// About how many bytes it takes.
    pub(super) fn memory(&self) -> usize {
        self.memory.load(Ordering::Relaxed)
    }

    /// Whether there was never a change.
    pub(super) fn is_empty(&self) -> bool {
        self.memory() == 0
    }

    /// How many entries have changes.
    pub(super) fn len(&self) -> usize {
        self.map.read().len()
    }

    /// Number of changed entries from `from` up to but not including `to`; counts no further than `most`.
    pub(super) fn count(&self, from: &[u8], to: Option<&[u8]>, most: usize) -> usize {
        if to.is_some_and(|to| to <= from) {
            return 0;
        }
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let map = self.map.read();
        map.range::<[u8], _>((Bound::Included(from), end))
            .take(most)
            .count()
    }
}

/// Adds one change; returns by how many bytes the table grew.
fn note(map: &mut BTreeMap<Key, Changes>, key: &[u8], change: u64) -> usize {
    let mut grown = 0;
    let changes = map.entry(Key::from_slice(key)).or_insert_with(|| {
        let spilled = if key.len() > 40 { key.len() } else { 0 };
        grown = OVERHEAD + spilled;
        Changes::new()
    });
    match changes.last_mut() {
        // A second change in the same batch replaces the first.
        Some(last) if *last >> 1 == change >> 1 => *last = change,
        // No change.
        Some(last) if *last & 1 == change & 1 => {}
        _ => {
            if changes.len() >= changes.inline_size() {
                grown += 2 * size_of::<u64>();
            }
            changes.push(change);
        }
    }
    grown
}

/// A reader's position in a table, as of one batch.
#[derive(Debug)]
pub(super) struct MemCursor {
    table: Arc<Memtable>,
    /// The last batch it sees.
    batch: u64,
    to: Option<Arc<[u8]>>,
    /// Copied entries: their bytes one after the other, the end of each, and whether it is a removal.
    bytes: Vec<u8>,
    ends: Vec<(usize, bool)>,
    at: usize,
    step: usize,
    /// Where the table continues after the copied entries; `None` at its end.
    rest: Option<Bound<Vec<u8>>>,
}

impl MemCursor {
    /// A reader at the first entry from `from` up to but not including `to`, that sees batches up to `batch`.
    pub(super) fn new(
        table: Arc<Memtable>,
        batch: u64,
        from: &[u8],
        to: Option<Arc<[u8]>>,
    ) -> Self {
        let mut cursor = Self {
            table,
            batch,
            to,
            bytes: Vec::new(),
            ends: Vec::new(),
            at: 0,
            step: FIRST_STEP,
            rest: Some(Bound::Included(from.to_vec())),
        };
        cursor.fill();
        cursor
    }

    /// Whether it is at an entry.
    #[inline]
    pub(super) fn valid(&self) -> bool {
        self.at < self.ends.len()
    }

    fn entry(&self, at: usize) -> &[u8] {
        let from = if at == 0 { 0 } else { self.ends[at - 1].0 };
        &self.bytes[from..self.ends[at].0]
    }

    /// The entry; there must be one.
    #[inline]
    pub(super) fn key(&self) -> &[u8] {
        self.entry(self.at)
    }

    /// Whether the entry is a removal; there must be one.
    #[inline]
    pub(super) fn gone(&self) -> bool {
        self.ends[self.at].1
    }

    /// Steps to the next entry.
    pub(super) fn advance(&mut self) {
        self.at += 1;
        if self.at >= self.ends.len() {
            self.fill();
        }
    }

    /// Steps to the first entry from here on that is not less than `key`.
    pub(super) fn seek(&mut self, key: &[u8]) {
        let (mut low, mut high) = (self.at, self.ends.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.entry(middle) < key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.at = low;
        if !self.valid() && self.rest.is_some() {
            self.rest = Some(Bound::Included(key.to_vec()));
            self.step = FIRST_STEP;
            self.fill();
        }
    }

    /// Copies the next entries that are visible to this reader.
    fn fill(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.at = 0;
        while self.ends.is_empty() {
            let Some(from) = self.rest.take() else {
                return;
            };
            self.copy(from);
        }
        self.step = (self.step * 2).min(READ_STEP / 2);
    }

    fn copy(&mut self, from: Bound<Vec<u8>>) {
        let to = self.to.as_deref();
        if let (Bound::Included(from) | Bound::Excluded(from), Some(to)) = (&from, to)
            && from.as_slice() >= to
        {
            return;
        }
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let map = self.table.map.read();
        let from = from.as_ref().map(Vec::as_slice);
        for (looked, (key, changes)) in map.range::<[u8], _>((from, end)).enumerate() {
            let seen = changes
                .iter()
                .rev()
                .find(|&&change| change >> 1 <= self.batch);
            if let Some(change) = seen {
                self.bytes.extend_from_slice(key);
                self.ends.push((self.bytes.len(), change & 1 == 1));
            }
            if self.ends.len() >= self.step || looked + 1 >= READ_STEP {
                self.rest = Some(Bound::Excluded(key.to_vec()));
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(table: &Arc<Memtable>, batch: u64) -> Vec<(Vec<u8>, bool)> {
        let mut cursor = MemCursor::new(Arc::clone(table), batch, b"", None);
        let mut found = Vec::new();
        while cursor.valid() {
            found.push((cursor.key().to_vec(), cursor.gone()));
            cursor.advance();
        }
        found
    }

    #[test]
    fn a_reader_sees_the_state_at_its_start() {
        let table = Arc::new(Memtable::default());
        assert!(table.is_empty());
        table.put(&mut [(&b"a"[..], false), (b"b", false)].into_iter(), 1);
        table.put(&mut [(&b"a"[..], true), (b"c", false)].into_iter(), 2);
        table.put(&mut [(&b"a"[..], true), (b"a", false)].into_iter(), 3);
        assert_eq!(all(&table, 0), []);
        assert_eq!(
            all(&table, 1),
            [(b"a".to_vec(), false), (b"b".to_vec(), false)]
        );
        assert_eq!(all(&table, 2)[0], (b"a".to_vec(), true));
        assert_eq!(all(&table, 3)[0], (b"a".to_vec(), false));
        assert_eq!(table.len(), 3);
        assert_eq!(table.count(b"a", Some(b"c"), 10), 2);
        assert_eq!(table.count(b"c", Some(b"a"), 10), 0);
    }

    #[test]
    fn steps_and_seeks_go_over_what_was_copied() {
        let table = Arc::new(Memtable::default());
        let keys: Vec<Vec<u8>> = (0..2000).map(|i| format!("{i:06}").into_bytes()).collect();
        table.put(&mut keys.iter().map(|key| (key.as_slice(), false)), 1);
        // A long stretch that the reader does not see.
        let hidden: Vec<Vec<u8>> = (0..2000)
            .map(|i| format!("000005-{i:06}").into_bytes())
            .collect();
        table.put(&mut hidden.iter().map(|key| (key.as_slice(), false)), 2);
        assert_eq!(all(&table, 1).len(), 2000);
        assert_eq!(all(&table, 2).len(), 4000);
        let to: Arc<[u8]> = Arc::from(&b"001000"[..]);
        let mut cursor = MemCursor::new(table, 1, b"000003", Some(to));
        for wanted in [3, 4, 500, 501, 900, 999] {
            cursor.seek(format!("{wanted:06}").as_bytes());
            assert_eq!(cursor.key(), &keys[wanted][..]);
        }
        cursor.seek(b"000000");
        assert_eq!(cursor.key(), &keys[999][..]);
        cursor.advance();
        assert!(!cursor.valid());
        cursor.seek(b"001500");
        assert!(!cursor.valid());
    }
}
