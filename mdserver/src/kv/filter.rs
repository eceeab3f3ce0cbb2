//! A Bloom filter of the keys in the index, which avoids lookups of absent keys.
//!
//! Each new name is looked up before it is created, and is absent; in sled that lookup costs a page. The Bloom filter
//! answers from memory. One in about a hundred absent keys is a false positive, which costs a lookup in sled. A key is
//! added to the filter before it goes into the index; keys removed from the index stay in the filter.
//!
//! The filter grows by parts, each twice as large as the one before. After very many different keys since the start it
//! stops filtering: every lookup then goes to sled, as without a filter.

use fastbloom::AtomicBloomFilter;
use parking_lot::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use xxhash_rust::xxh3::xxh3_64;

/// The number of keys that the first part is sized for.
const FIRST: usize = 1 << 18;
/// Parts at most: together for 67 million keys, in 80 MB.
const PARTS: usize = 8;
/// The false-positive rate of a part.
const WRONG: f64 = 0.01;

/// The filter.
#[derive(Debug, Default)]
pub(super) struct Filter(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    parts: Vec<AtomicBloomFilter>,
    /// The number of keys that still fit into the last part.
    room: AtomicUsize,
    /// There were too many keys.
    full: bool,
}

impl Filter {
    /// Adds a key.
    pub(super) fn insert(&self, key: &[u8]) {
        let hash = xxh3_64(key);
        // The inserting thread runs at low priority, so it does not take the write lock, which blocks readers, for
        // each key.
        if self.0.read().take_in(hash) {
            return;
        }
        let mut state = self.0.write();
        if !state.take_in(hash) {
            if state.parts.len() == PARTS {
                *state = State {
                    full: true,
                    ..State::default()
                };
                tracing::debug!("the index has more keys than are filtered");
                return;
            }
            let keys = FIRST << state.parts.len();
            let part = AtomicBloomFilter::with_false_pos(WRONG).expected_items(keys);
            part.insert_hash(hash);
            state.parts.push(part);
            state.room = AtomicUsize::new(keys - 1);
        }
    }

    /// False if the key was never added.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        let state = self.0.read();
        state.full || state.may_have(xxh3_64(key))
    }
}

impl State {
    /// Adds a hash; false if a new part is needed first.
    fn take_in(&self, hash: u64) -> bool {
        if self.full || self.may_have(hash) {
            return true;
        }
        let Some(part) = self.parts.last() else {
            return false;
        };
        let taken = self
            .room
            .fetch_update(Relaxed, Relaxed, |room| room.checked_sub(1));
        if taken.is_ok() {
            part.insert_hash(hash);
        }
        taken.is_ok()
    }

    fn may_have(&self, hash: u64) -> bool {
        // Most keys are in the larger, later parts.
        self.parts.iter().rev().any(|part| part.contains_hash(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_noted_may_be_there_and_few_others() {
        let filter = Filter::default();
        assert!(!filter.may_have(b"any"));
        let keys = 2 * FIRST as u64;
        for key in 0..keys {
            filter.insert(&key.to_be_bytes());
        }
        assert!(filter.0.read().parts.len() > 1);
        assert!((0..keys).all(|key| filter.may_have(&key.to_be_bytes())));
        let wrong = (keys..keys + 10_000).filter(|key| filter.may_have(&key.to_be_bytes()));
        assert!(wrong.count() < 500);
    }

    #[test]
    fn too_many_keys_end_the_filtering() {
        let filter = Filter::default();
        *filter.0.write() = State {
            parts: (0..PARTS)
                .map(|_| AtomicBloomFilter::with_num_bits(64).hashes(1))
                .collect(),
            room: AtomicUsize::new(0),
            full: false,
        };
        let missed = (0u64..).find(|key| !filter.may_have(&key.to_be_bytes()));
        filter.insert(&missed.unwrap().to_be_bytes());
        assert!(filter.may_have(b"any"));
        filter.insert(b"one more");
    }
}
