//! The memtables: commits that are not yet in the index.
//!
//! There are two tables. Commits go into the active one; the sealed one is being moved to the index and stays visible
//! until all of it is there. A reader that holds the lock sees a consistent state of the map.

use super::cache::ReadCache;
use super::{Batch, Key, Lsn};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Memory a key costs beyond its bytes, roughly.
const ENTRY: usize = 64;

/// A key and its newest value: `None` if it was deleted.
pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// The newest value of each key; `None` if it was deleted.
#[derive(Debug, Default)]
pub(super) struct Memtable {
    map: BTreeMap<Key, Row>,
    bytes: usize,
}

#[derive(Debug)]
struct Row {
    value: Option<Vec<u8>>,
    /// The key does not exist below this table: it is absent there, or deleted.
    new: bool,
}

impl Memtable {
    /// Sets or deletes a key.
    pub(super) fn insert(&mut self, key: impl Into<Key>, value: Option<Vec<u8>>) {
        self.set(key.into(), value, false);
    }

    /// Sets a key that does not exist.
    fn insert_new(&mut self, key: Key, value: Vec<u8>) {
        self.set(key, Some(value), true);
    }

    fn set(&mut self, key: Key, value: Option<Vec<u8>>, new: bool) {
        let (keyed, valued) = (key.len() + ENTRY, value.as_ref().map_or(0, Vec::len));
        match self.map.entry(key) {
            Entry::Occupied(mut row) => {
                let row = row.get_mut();
                self.bytes = self.bytes + valued - row.value.as_ref().map_or(0, Vec::len);
                row.value = value;
            }
            Entry::Vacant(room) => {
                self.bytes += keyed + valued;
                room.insert(Row { value, new });
            }
        }
    }

    /// Deletes a key. A key that is new here is removed without a tombstone.
    fn delete(&mut self, key: Key) {
        let row = match self.map.entry(key) {
            Entry::Occupied(row) => row,
            Entry::Vacant(room) => {
                self.bytes += room.key().len() + ENTRY;
                room.insert(Row {
                    value: None,
                    new: false,
                });
                return;
            }
        };
        if row.get().new {
            let (key, row) = row.remove_entry();
            self.bytes -= key.len() + ENTRY + row.value.map_or(0, |value| value.len());
        } else {
            let row = row.into_mut();
            self.bytes -= row.value.take().map_or(0, |value| value.len());
        }
    }

    /// Returns the newest value of `key` if the table has it: `Some(None)` is a deletion.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.map.get(&Key::new(key)).map(|row| row.value.as_deref())
    }

    /// Returns about `bytes` bytes of the changes after key `after`, ascending, and the memory they take; empty at the
    /// end.
    pub(super) fn part(&self, after: Option<&[u8]>, bytes: usize) -> (Vec<Change<'_>>, usize) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut taken = 0;
        let mut part = Vec::new();
        for (key, row) in self.map.range::<[u8], _>((start, Bound::Unbounded)) {
            if taken >= bytes {
                break;
            }
            let change = (&key[..], row.value.as_deref());
            taken += bytes_of(change);
            part.push(change);
        }
        (part, taken)
    }

    /// The keys with `from <= key < to`, ascending; `from < to`.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Change<'_>> {
        let range = (Bound::Included(from), Bound::Excluded(to));
        self.map
            .range::<[u8], _>(range)
            .map(|(key, row)| (&key[..], row.value.as_deref()))
    }

    /// The memory it takes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if the table is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

/// The memory a row takes, roughly.
pub(super) fn bytes_of((key, value): Change<'_>) -> usize {
    key.len() + ENTRY + value.map_or(0, <[u8]>::len)
}

/// The two tables, and the cache of values read from the index.
#[derive(Debug)]
pub(super) struct Tables {
    active: Memtable,
    sealed: Option<(Arc<Memtable>, Lsn)>,
    /// The part of the sealed table that is in the index, in bytes of its memory.
    moved: Arc<AtomicUsize>,
    last: Lsn,
    /// Counts how often the sealed table was dropped or everything was replaced: a value read from the index across
    /// such a change may be outdated.
    changes: u64,
    cache: Arc<ReadCache>,
}

impl Tables {
    /// Creates tables that hold `active`, up to commit `last`.
    pub(super) fn new(active: Memtable, last: Lsn, cache_bytes: usize) -> Self {
        Self {
            active,
            sealed: None,
            moved: Arc::default(),
            last,
            changes: 0,
            cache: Arc::new(ReadCache::new(cache_bytes)),
        }
    }

    /// Makes a commit visible.
    pub(super) fn commit(&mut self, batch: Batch, lsn: Lsn) {
        let cache = &self.cache;
        let mut new = batch.new.into_iter().peekable();
        for (at, (key, value)) in batch.puts.into_iter().enumerate() {
            cache.remove(&key);
            match new.next_if_eq(&at) {
                Some(_) => self.active.insert_new(key, value),
                None => self.active.insert(key, Some(value)),
            }
        }
        for key in batch.deletes {
            cache.remove(&key);
            self.active.delete(key);
        }
        self.last = lsn;
    }

    /// Returns the value of `key` from the tables or the cache; `Some(None)` means that it does not exist.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let sealed = || self.sealed.as_ref().and_then(|(sealed, _)| sealed.get(key));
        match self.active.get(key).or_else(sealed) {
            Some(value) => Some(value.map(<[u8]>::to_vec)),
            None => self.cache.get(key),
        }
    }

    /// Caches the value of `key` that was read from the index; `changes` was taken before the read. Returns false if
    /// the value may be outdated and has to be read again.
    pub(super) fn remember(&self, key: &[u8], value: Option<&[u8]>, changes: u64) -> bool {
        if changes != self.changes {
            return false;
        }
        let is_overlaid = self.active.get(key).is_some()
            || self
                .sealed
                .as_ref()
                .is_some_and(|(sealed, _)| sealed.get(key).is_some());
        if !is_overlaid {
            self.cache.insert(key, value);
        }
        true
    }

    /// See [`Tables::remember`].
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The active and the sealed table.
    pub(super) fn both(&self) -> (&Memtable, Option<&Memtable>) {
        (
            &self.active,
            self.sealed.as_ref().map(|(sealed, _)| &**sealed),
        )
    }

    /// Returns the table that is already sealed, as [`Tables::seal`] would.
    pub(super) fn sealed(&self) -> Option<(Arc<Memtable>, Lsn)> {
        self.sealed.clone()
    }

    /// Seals the active table, so that commits go into a new one; returns it with the last commit in it. If a table is
    /// sealed already, returns that one instead.
    pub(super) fn seal(&mut self) -> (Arc<Memtable>, Lsn) {
        if let Some((table, last)) = &self.sealed {
            return (table.clone(), *last);
        }
        let table = Arc::new(std::mem::take(&mut self.active));
        self.sealed = Some((table.clone(), self.last));
        (table, self.last)
    }

    /// Returns the progress record of moving the sealed table into the index.
    pub(super) fn moving(&self) -> Moving {
        Moving {
            moved: self.moved.clone(),
            cache: self.cache.clone(),
        }
    }

    /// Drops the sealed table, which is now in the index.
    pub(super) fn unseal(&mut self) {
        self.sealed = None;
        self.moved.store(0, Relaxed);
        self.changes += 1;
    }

    /// Replaces both tables by `active`, and clears the cache.
    pub(super) fn replace(&mut self, active: Memtable) {
        self.active = active;
        self.sealed = None;
        self.moved.store(0, Relaxed);
        self.changes += 1;
        self.cache.clear();
    }

    /// Puts `older` below the active table, as a sealed table up to commit `last`: the changes of the journal that the
    /// index lacks. No table may be sealed.
    pub(super) fn lay_under(&mut self, older: Memtable, last: Lsn) {
        if !older.is_empty() {
            self.sealed = Some((Arc::new(older), last));
        }
        self.changes += 1;
    }

    /// The memory of the changes in both tables that are not in the index, roughly.
    pub(super) fn pending(&self) -> usize {
        let sealed = self.sealed.as_ref().map_or(0, |(sealed, _)| sealed.bytes());
        self.active.bytes() + sealed.saturating_sub(self.moved.load(Relaxed))
    }
}

/// Records the progress of moving the sealed table into the index without the tables' lock: the moving thread runs at
/// low priority, and would block all others whenever it is preempted with the lock held.
#[derive(Debug)]
pub(super) struct Moving {
    moved: Arc<AtomicUsize>,
    cache: Arc<ReadCache>,
}

impl Moving {
    /// Caches changes of the sealed table that are in the index, for keys that begin with `table`. No reader sees these
    /// entries before the sealed table is dropped: until then the sealed table answers, or the active one with a later
    /// value, which overwrites these entries when it is moved into the index.
    pub(super) fn remember(&self, part: &[Change<'_>], table: u8) {
        for (key, value) in part.iter().filter(|(key, _)| key.first() == Some(&table)) {
            match value {
                Some(_) => self.cache.insert(key, *value),
                None => self.cache.remove(key),
            }
        }
    }

    /// Notes that `bytes` more of the sealed table are in the index, in bytes of its memory.
    pub(super) fn add(&self, bytes: usize) {
        self.moved.fetch_add(bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The part of a sealed table that is in the index is no longer pending, though it stays in memory with the rest.
    #[test]
    fn moved_rows_are_not_pending() {
        let mut tables = Tables::new(Memtable::default(), Lsn(0), 1 << 20);
        let mut batch = Batch::new();
        for i in 0..100u32 {
            batch.put(i.to_be_bytes(), [7; 100]);
        }
        batch.delete("gone");
        tables.commit(batch, Lsn(1));
        let all = tables.pending();
        let (sealed, _) = tables.seal();
        let mut batch = Batch::new();
        batch.put("later", "1");
        tables.commit(batch, Lsn(2));
        let later = tables.pending() - all;
        assert!(later > 0);
        let (mut at, mut left, mut parts) = (None, all, 0);
        loop {
            let (part, bytes) = sealed.part(at.as_deref(), 1000);
            let Some((last, _)) = part.last() else { break };
            left -= bytes;
            tables.moving().add(bytes);
            assert_eq!(tables.pending(), left + later);
            at = Some(last.to_vec());
            parts += 1;
        }
        assert_eq!(left, 0);
        assert!(parts > 10, "{parts}");
        tables.unseal();
        assert_eq!(tables.pending(), later);
    }
}
