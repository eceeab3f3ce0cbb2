//! A cache of recently read leaves, within a budget of bytes.
//!
//! It has sixteen parts with a lock each, held for the lookup or exchange of one slot; a clock hand evicts the leaves
//! that were not used since its last round (the clock algorithm).

use super::leaf::Leaf;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

const PARTS: usize = 16;

/// Identifies a leaf: the number of its run, and its number in the run.
pub(super) type LeafId = (u64, u32);

/// The cached leaves.
#[derive(Debug)]
pub(super) struct Cache {
    parts: Vec<Mutex<Part>>,
    /// Bytes a part may hold.
    budget: usize,
}

#[derive(Debug, Default)]
struct Part {
    places: HashMap<LeafId, usize>,
    slots: Vec<Slot>,
    hand: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Slot {
    id: LeafId,
    leaf: Arc<Leaf>,
    used: bool,
}

impl Cache {
    /// A cache of `budget` bytes.
    pub(super) fn new(budget: usize) -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            budget: budget / PARTS,
        }
    }

    fn part(&self, id: LeafId) -> &Mutex<Part> {
        let mixed = (id.0 ^ u64::from(id.1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.parts[(mixed >> 60) as usize % PARTS]
    }

    /// The leaf, if it is cached.
    pub(super) fn get(&self, id: LeafId) -> Option<Arc<Leaf>> {
        let mut part = self.part(id).lock();
        let place = *part.places.get(&id)?;
        let slot = &mut part.slots[place];
        slot.used = true;
        Some(Arc::clone(&slot.leaf))
    }

    /// Inserts a leaf, and evicts others to stay within the budget.
    pub(super) fn put(&self, id: LeafId, leaf: &Arc<Leaf>) {
        let mut part = self.part(id).lock();
        if part.places.contains_key(&id) {
            return;
        }
        let place = part.slots.len();
        part.places.insert(id, place);
        part.bytes += leaf.memory();
        part.slots.push(Slot {
            id,
            leaf: Arc::clone(leaf),
            // A leaf read once, by a long scan, is evicted before those that are read again.
            used: false,
        });
        while part.bytes > self.budget && !part.slots.is_empty() {
            part.take_one_out();
        }
    }

    /// Evicts all leaves of runs that are not wanted any more.
    pub(super) fn keep_runs(&self, wanted: impl Fn(u64) -> bool) {
        for part in &self.parts {
            let mut part = part.lock();
            let mut at = 0;
            while at < part.slots.len() {
                if wanted(part.slots[at].id.0) {
                    at += 1;
                } else {
                    part.remove(at);
                }
            }
        }
    }

    /// The bytes held.
    pub(super) fn memory(&self) -> usize {
        self.parts.iter().map(|part| part.lock().bytes).sum()
    }
}

impl Part {
    fn take_one_out(&mut self) {
        loop {
            if self.hand >= self.slots.len() {
                self.hand = 0;
            }
            let slot = &mut self.slots[self.hand];
            if !slot.used {
                break;
            }
            slot.used = false;
            self.hand += 1;
        }
        self.remove(self.hand);
    }

    fn remove(&mut self, at: usize) {
        let slot = self.slots.swap_remove(at);
        self.bytes -= slot.leaf.memory();
        self.places.remove(&slot.id);
        if let Some(moved) = self.slots.get(at) {
            self.places.insert(moved.id, at);
        }
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
