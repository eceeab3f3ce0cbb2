//! What the index said when a dump of it began, of keys that have been changed since.
//!
//! Commits are held back when too much waits to be moved into the index, so moving cannot stand still for as long as the
//! dump of a large index takes. It goes on beside: before a key is changed that is not dumped yet, what the index says of it
//! is kept here, and the dump takes it from here. Keys that are dumped are of no interest any more.

use std::collections::BTreeMap;

use super::index::{Fault, Index};
use super::memtable::Change;

/// Beyond so many bytes nothing more is changed until the dump has come further.
const MOST: usize = 32 << 20;
/// What a key takes beside its bytes and those of its value, roughly.
const ENTRY: usize = 96;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// What the index said: a value, or that there was none.
    values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// Keys up to this one are dumped.
    passed: Vec<u8>,
}

impl Before {
    /// Keeps what the index says of keys that are to be changed, as many of them as there is room for and one at least;
    /// how many may be changed.
    pub(super) fn keep(&mut self, index: &Index, changes: &[Change<'_>]) -> Result<usize, Fault> {
        for (at, (key, _)) in changes.iter().enumerate() {
            if at > 0 && self.is_full() {
                return Ok(at);
            }
            if **key <= *self.passed || self.values.contains_key(*key) {
                continue;
            }
            let value = index.get(key)?;
            self.bytes += taken(key, value.as_deref());
            self.values.insert(key.to_vec(), value);
        }
        Ok(changes.len())
    }

    /// Whether no more should be changed for now.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MOST
    }

    /// What the index said of the first key that is kept, if that is not behind `upto`.
    pub(super) fn next_upto(&mut self, upto: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let first = self.values.first_key_value()?;
        (first.0.as_slice() <= upto).then(|| self.next()).flatten()
    }

    /// What the index said of the first key that is kept.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let (key, value) = self.values.pop_first()?;
        self.bytes -= taken(&key, value.as_deref());
        Some((key, value))
    }

    /// Keys up to this one are dumped.
    pub(super) fn pass(&mut self, key: &[u8]) {
        self.passed.clear();
        self.passed.extend_from_slice(key);
    }
}

fn taken(key: &[u8], value: Option<&[u8]>) -> usize {
    ENTRY + key.len() + value.map_or(0, <[u8]>::len)
}
