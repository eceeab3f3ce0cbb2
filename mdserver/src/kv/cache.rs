//! Values read from the index lately, and keys found to be absent.
//!
//! Two generations: when the young one is full it becomes the old one and the old one is dropped; a
//! hit in the old one moves to the young. That keeps what is used, in constant time and few lines.

use std::collections::HashMap;
use xxhash_rust::xxh3::Xxh3Builder;

type Generation = HashMap<Box<[u8]>, Option<Box<[u8]>>, Xxh3Builder>;

/// Memory an entry costs beyond its bytes, roughly.
const ENTRY: usize = 64;

/// The cache.
#[derive(Debug)]
pub(super) struct ReadCache {
    young: Generation,
    old: Generation,
    young_bytes: usize,
    limit: usize,
}

impl ReadCache {
    /// A cache of about `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            young: Generation::default(),
            old: Generation::default(),
            young_bytes: 0,
            limit: bytes / 2,
        }
    }

    /// What was remembered of `key`.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<Option<Vec<u8>>> {
        if let Some(value) = self.young.get(key) {
            return Some(value.as_deref().map(<[u8]>::to_vec));
        }
        let (key, value) = self.old.remove_entry(key)?;
        let copy = value.as_deref().map(<[u8]>::to_vec);
        self.put(key, value);
        Some(copy)
    }

    /// Remembers a value, or that there is none.
    pub(super) fn insert(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.old.remove(key);
        self.put(key.into(), value.map(Into::into));
    }

    /// Forgets a key.
    pub(super) fn remove(&mut self, key: &[u8]) {
        if self.young.is_empty() && self.old.is_empty() {
            return;
        }
        if let Some(value) = self.young.remove(key) {
            self.young_bytes -= cost(key, value.as_deref());
        }
        self.old.remove(key);
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
        self.young_bytes = 0;
    }

    fn put(&mut self, key: Box<[u8]>, value: Option<Box<[u8]>>) {
        let new = cost(&key, value.as_deref());
        if new > self.limit {
            return;
        }
        if self.young_bytes + new > self.limit {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        let before = self
            .young
            .get(&key)
            .map_or(0, |old| cost(&key, old.as_deref()));
        self.young_bytes = self.young_bytes + new - before;
        self.young.insert(key, value);
    }
}

fn cost(key: &[u8], value: Option<&[u8]>) -> usize {
    key.len() + value.map_or(0, <[u8]>::len) + ENTRY
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut cache = ReadCache::new(4000);
        cache.insert(b"used", Some(b"1"));
        for i in 0..1000u32 {
            cache.insert(&i.to_le_bytes(), Some(&[0; 10]));
            assert_eq!(cache.get(b"used"), Some(Some(b"1".to_vec())));
        }
        assert_eq!(cache.get(&0u32.to_le_bytes()), None);
        assert!(cache.young_bytes <= cache.limit);
        cache.insert(b"absent", None);
        assert_eq!(cache.get(b"absent"), Some(None));
        cache.remove(b"absent");
        assert_eq!(cache.get(b"absent"), None);
    }
}
