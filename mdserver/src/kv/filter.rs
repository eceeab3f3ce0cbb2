//! Which keys the index may have, so that it is not asked for what nobody ever put into it.
//!
//! Each new name is looked for before it is made, and is not there; in sled that costs a page. A Bloom
//! filter says so from memory, wrongly in one case of some hundred, and then sled is asked. Every key
//! that goes into the index goes in here before a reader could miss it; keys that leave the index stay.
//!
//! It grows by parts, each twice the one before. A store through which very many keys went since the
//! start stops filtering: then sled is asked each time, as without it.

use fastbloom::BloomFilter;
use parking_lot::RwLock;
use xxhash_rust::xxh3::xxh3_64;

/// Keys the first part is made for.
const FIRST: usize = 1 << 18;
/// Parts at most: together for 67 million keys, in 80 MB.
const PARTS: usize = 8;
/// How often a part may be wrong.
const WRONG: f64 = 0.01;

/// The filter.
#[derive(Debug, Default)]
pub(super) struct Filter(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    parts: Vec<BloomFilter>,
    /// Keys that the last part still takes.
    room: usize,
    /// There were too many keys.
    full: bool,
}

impl Filter {
    /// Notes a key.
    pub(super) fn insert(&self, key: &[u8]) {
        let hash = xxh3_64(key);
        let mut state = self.0.write();
        if state.full || state.may_have(hash) {
            return;
        }
        if state.room == 0 {
            if state.parts.len() == PARTS {
                *state = State {
                    full: true,
                    ..State::default()
                };
                tracing::debug!("the index has more keys than are filtered");
                return;
            }
            let keys = FIRST << state.parts.len();
            let part = BloomFilter::with_false_pos(WRONG).expected_items(keys);
            state.parts.push(part);
            state.room = keys;
        }
        state.room -= 1;
        if let Some(part) = state.parts.last_mut() {
            part.insert(&hash);
        }
    }

    /// False when the key was never noted.
    pub(super) fn may_have(&self, key: &[u8]) -> bool {
        let state = self.0.read();
        state.full || state.may_have(xxh3_64(key))
    }
}

impl State {
    fn may_have(&self, hash: u64) -> bool {
        // Most keys are in the larger, later parts.
        self.parts.iter().rev().any(|part| part.contains(&hash))
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
                .map(|_| BloomFilter::with_num_bits(64).hashes(1))
                .collect(),
            room: 0,
            full: false,
        };
        let missed = (0u64..).find(|key| !filter.may_have(&key.to_be_bytes()));
        filter.insert(&missed.unwrap().to_be_bytes());
        assert!(filter.may_have(b"any"));
        filter.insert(b"one more");
    }
}
