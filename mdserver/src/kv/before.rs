//! Before-images of index rows that change during a dump, so that the dump shows one commit.
//!
//! Commits block when too many changes are pending, so moving changes into the index cannot stop for as long as the
//! dump of a large index takes. Moving continues during the dump: before a key that is not dumped yet is changed, its
//! value in the index is saved here, and the dump takes it from here. Keys that are already dumped need no
//! before-image.

use std::collections::BTreeMap;

use super::index::{Fault, Index};
use super::memtable::Change;

/// Above this many bytes nothing more is changed until the dump has progressed.
const MOST: usize = 32 << 20;
/// Memory that a key takes in addition to its bytes and those of its value, roughly.
const ENTRY: usize = 96;

/// The before-images; see the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// The values before the change; `None` if the key did not exist.
    values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
    /// Keys up to this one are dumped.
    dumped: Vec<u8>,
}

impl Before {
    /// Saves the index's values of keys that are to be changed: as many as there is room for, and at least one. Returns
    /// how many may be changed.
    pub(super) fn keep(&mut self, index: &Index, changes: &[Change<'_>]) -> Result<usize, Fault> {
        for (at, (key, _)) in changes.iter().enumerate() {
            if at > 0 && self.is_full() {
                return Ok(at);
            }
            if **key <= *self.dumped || self.values.contains_key(*key) {
                continue;
            }
            let value = index.get(key)?;
            self.bytes += taken(key, value.as_deref());
            self.values.insert(key.to_vec(), value);
        }
        Ok(changes.len())
    }

    /// True if no more keys should be changed for now.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= MOST
    }

    /// Removes and returns the first saved key and its value, if the key is not greater than `upto`.
    pub(super) fn next_upto(&mut self, upto: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let first = self.values.first_key_value()?;
        (first.0.as_slice() <= upto).then(|| self.next()).flatten()
    }

    /// Removes and returns the first saved key and its value.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let (key, value) = self.values.pop_first()?;
        self.bytes -= taken(&key, value.as_deref());
        Some((key, value))
    }

    /// Notes that keys up to this one are dumped.
    pub(super) fn dumped_upto(&mut self, key: &[u8]) {
        self.dumped.clear();
        self.dumped.extend_from_slice(key);
    }
}

fn taken(key: &[u8], value: Option<&[u8]>) -> usize {
    ENTRY + key.len() + value.map_or(0, <[u8]>::len)
}
