//! A cache of recently read leaves, within a budget of bytes. A leaf that was read once, by a long scan, is evicted
//! before those that are read again.

use super::leaf::Leaf;
use foldhash::fast::RandomState;
use quick_cache::Weighter;
use quick_cache::sync::DefaultLifecycle;
use std::sync::Arc;

/// Bytes of a typical leaf, from which the number of leaves to expect is computed.
const USUAL: usize = 8 << 10;

/// Identifies a leaf: the number of its run, and its number in the run.
pub(super) type LeafId = (u64, u32);

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<LeafId, Arc<Leaf>> for Bytes {
    fn weight(&self, _: &LeafId, leaf: &Arc<Leaf>) -> u64 {
        leaf.memory() as u64
    }
}

/// The cached leaves.
#[derive(Debug)]
pub(super) struct Cache(quick_cache::sync::Cache<LeafId, Arc<Leaf>, Bytes, RandomState>);

impl Cache {
    /// A cache of `budget` bytes.
    pub(super) fn new(budget: usize) -> Self {
        Self(quick_cache::sync::Cache::with(
            budget / USUAL,
            budget as u64,
            Bytes,
            RandomState::default(),
            DefaultLifecycle::default(),
        ))
    }

    /// The leaf, if it is cached.
    pub(super) fn get(&self, id: LeafId) -> Option<Arc<Leaf>> {
        self.0.get(&id)
    }

    /// Inserts a leaf, and evicts others to stay within the budget.
    pub(super) fn put(&self, id: LeafId, leaf: &Arc<Leaf>) {
        self.0.insert(id, Arc::clone(leaf));
    }

    /// Evicts all leaves of runs that are not wanted any more.
    pub(super) fn keep_runs(&self, wanted: impl Fn(u64) -> bool) {
        self.0.retain(|id, _| wanted(id.0));
    }

    /// The bytes held.
    pub(super) fn memory(&self) -> usize {
        self.0.weight() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::leaf::LeafBuilder;
    use super::*;

    fn leaf(fill: usize) -> Arc<Leaf> {
        let mut builder = LeafBuilder::default();
        builder.push(&vec![7; fill], false);
        let mut bytes = Vec::new();
        builder.finish(1, 0, &mut bytes);
        Arc::new(Leaf::new(bytes, 1, 0).expect("leaf"))
    }

    #[test]
    fn the_budget_holds_and_runs_go() {
        let cache = Cache::new(64 << 10);
        let leaf = leaf(1000);
        for number in 0..1000 {
            cache.put((number % 3, number as u32), &leaf);
        }
        assert!(cache.memory() <= 64 << 10);
        assert!(cache.memory() > 32 << 10);
        assert!((0..1000).any(|number| cache.get((number % 3, number as u32)).is_some()));
        cache.keep_runs(|run| run == 1);
        assert!(
            (0..1000).all(|number| {
                number % 3 == 1 || cache.get((number % 3, number as u32)).is_none()
            })
        );
        cache.keep_runs(|_| false);
        assert_eq!(cache.memory(), 0);
    }

    #[test]
    fn used_leaves_stay() {
        let cache = Cache::new(64 << 10);
        let leaf = leaf(1000);
        cache.put((5, 5), &leaf);
        for number in 0..1000 {
            assert!(cache.get((5, 5)).is_some(), "{number}");
            cache.put((1, number), &leaf);
        }
    }
}
