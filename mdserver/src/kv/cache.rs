//! A cache of values recently read from the index, and of keys found to be absent.
//!
//! A read from the index reads and decodes a page of sled's; a hit here costs one lookup. So most of the cache memory
//! for metadata goes here, and little to sled.

use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};
use std::sync::Arc;

/// Memory an entry costs beyond its bytes, roughly: two allocations, a slot and its place in a table.
const ENTRY: usize = 96;

/// Bytes of a typical entry, from which the number of entries to expect is computed.
const USUAL: usize = 256;

type Key = Box<[u8]>;
type Value = Option<Arc<[u8]>>;

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Key, Value> for Bytes {
    fn weight(&self, key: &Key, value: &Value) -> u64 {
        (key.len() + value.as_ref().map_or(0, |value| value.len()) + ENTRY) as u64
    }
}

/// The cache.
#[derive(Debug)]
pub(super) struct ReadCache(Cache<Key, Value, Bytes, RandomState>);

impl ReadCache {
    /// Creates a cache of about `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self(Cache::with(
            bytes / USUAL,
            bytes as u64,
            Bytes,
            RandomState::default(),
            DefaultLifecycle::default(),
        ))
    }

    /// Returns the cached value of `key`; `Some(None)` if it is cached as absent.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        let value = self.0.get(key)?;
        Some(value.map(|value| value.to_vec()))
    }

    /// Caches a value, or that there is none.
    pub(super) fn insert(&self, key: &[u8], value: Option<&[u8]>) {
        self.0.insert(key.into(), value.map(Into::into));
    }

    /// Removes a key from the cache.
    pub(super) fn remove(&self, key: &[u8]) {
        self.0.remove(key);
    }

    /// Empties the cache.
    pub(super) fn clear(&self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_stay_and_others_are_evicted() {
        let cache = ReadCache::new(64 << 10);
        cache.insert(b"used", Some(b"1"));
        for i in 0..10_000u32 {
            cache.insert(&i.to_le_bytes(), Some(&[0; 10]));
            assert_eq!(cache.get(b"used"), Some(Some(b"1".to_vec())));
        }
        let cached = (0..10_000u32).filter(|i| cache.get(&i.to_le_bytes()).is_some());
        assert!((1..=(64 << 10) / ENTRY).contains(&cached.count()));
        assert!(cache.0.weight() <= 64 << 10);
        cache.insert(b"absent", None);
        assert_eq!(cache.get(b"absent"), Some(None));
        cache.remove(b"absent");
        assert_eq!(cache.get(b"absent"), None);
        cache.clear();
        assert_eq!(cache.get(b"used"), None);
    }
}
