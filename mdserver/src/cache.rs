//! A bounded map that evicts entries that were not used for a while.
//!
//! Two generations: entries in use are in `young`; when that holds half of the limit, it becomes `old`, and the
//! previous `old` is dropped. Every step is O(1), and an entry is not lost before half of the limit's worth of other
//! keys were used after it. Only for copies of what is in the store.

use foldhash::{HashMap, HashMapExt};
use std::hash::Hash;

/// The map; it holds at most its limit of entries.
#[derive(Debug)]
pub(crate) struct Cache<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    half: usize,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache of at most `limit` entries (at least two).
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            half: (limit / 2).max(1),
        }
    }

    /// Returns a copy of the value, which counts as a use.
    pub(crate) fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(key.clone(), value.clone());
        Some(value)
    }

    /// Inserts a value.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.half && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evicts_the_unused_and_keeps_the_used() {
        let mut cache = Cache::new(8);
        for key in 0..100 {
            cache.insert(key, key);
            assert_eq!(cache.get(&0), Some(0));
            assert!(cache.young.len() + cache.old.len() <= 8);
        }
        assert_eq!(cache.get(&1), None);
        cache.remove(&0);
        assert_eq!(cache.get(&0), None);
    }

    #[test]
    fn the_newest_value_wins() {
        let mut cache = Cache::new(4);
        cache.insert(1, 'a');
        for key in 10..12 {
            cache.insert(key, 'x');
        }
        cache.insert(1, 'b');
        for key in 12..13 {
            cache.insert(key, 'x');
        }
        assert_eq!(cache.get(&1), Some('b'));
    }
}
