//! A map with a limit, which forgets what was added first.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A map for many threads whose values together weigh no more than its limit.
#[derive(Debug)]
pub(super) struct Cache<K, V> {
    most: usize,
    held: Mutex<Held<K, V>>,
}

#[derive(Debug)]
struct Held<K, V> {
    values: HashMap<K, (Arc<V>, usize)>,
    order: VecDeque<K>,
    weight: usize,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// With a limit for the weight of all values.
    pub(super) fn new(most: usize) -> Cache<K, V> {
        let held = Held {
            values: HashMap::new(),
            order: VecDeque::new(),
            weight: 0,
        };
        Cache {
            most,
            held: Mutex::new(held),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held<K, V>> {
        // Nothing can panic while it is incomplete.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value that is still there.
    pub(super) fn get(&self, key: K) -> Option<Arc<V>> {
        self.held()
            .values
            .get(&key)
            .map(|(value, _)| Arc::clone(value))
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        let mut held = self.held();
        held.values.clear();
        held.order.clear();
        held.weight = 0;
    }

    /// Adds a value, unless it weighs a quarter of the limit or more, and forgets others for it.
    pub(super) fn add(&self, key: K, value: &Arc<V>, weight: usize) {
        let mut held = self.held();
        if weight >= self.most.div_ceil(4) || held.values.contains_key(&key) {
            return;
        }
        held.values.insert(key, (Arc::clone(value), weight));
        held.order.push_back(key);
        held.weight += weight;
        while held.weight > self.most {
            let Some(oldest) = held.order.pop_front() else {
                return;
            };
            let removed = held.values.remove(&oldest);
            held.weight -= removed.map_or(0, |(_, weight)| weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgets_the_oldest() {
        let cache = Cache::new(10);
        for key in 0..6 {
            cache.add(key, &Arc::new(key), 2);
        }
        assert_eq!(cache.get(0), None);
        assert_eq!(cache.get(1).as_deref(), Some(&1));
        cache.add(9, &Arc::new(9), 3);
        assert_eq!(cache.get(9), None, "too heavy");
        cache.clear();
        assert_eq!(cache.get(5), None);
        cache.add(5, &Arc::new(5), 2);
        assert_eq!(cache.get(5).as_deref(), Some(&5));
    }
}
