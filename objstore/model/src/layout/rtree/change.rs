//! Insertion into the tree and removal from it.

use super::super::flat::{self, Boxes, Flat};
use super::split::{grow, split, volume};
use super::{CAPACITY, LEAST, RTree};

/// A node, and the place in it where the path continues.
type Step = (u32, usize);

impl RTree {
    /// Adds a box; O(log n).
    pub(in crate::layout) fn insert(&mut self, flat: &[u64], id: u32) {
        if self.root.is_none() {
            self.root = Some(self.new_node(0));
        }
        self.insert_at(flat, id, 0);
    }

    /// Adds an entry to a node of this level, which exists.
    fn insert_at(&mut self, flat: &[u64], entry: u32, level: u8) {
        let Some(mut node) = self.root else { return };
        let mut way: Vec<Step> = Vec::with_capacity(8);
        while self.level(node) > level {
            let place = self.best_place(node, flat);
            self.grow_place(node, place, flat);
            way.push((node, place));
            node = self.entry(node, place);
        }
        let mut sibling = self.add(node, flat, entry);
        // Back up, adding the nodes that were split off.
        while let Some((parent, place)) = way.pop() {
            let Some(new) = sibling else { return };
            let mut bounds = Flat::new();
            self.bounds_of(node, &mut bounds);
            self.store(parent, place, &bounds, node);
            self.bounds_of(new, &mut bounds);
            sibling = self.add(parent, &bounds, new);
            node = parent;
        }
        if let Some(new) = sibling {
            let root = self.new_node(self.level(node) + 1);
            let mut bounds = Flat::new();
            for child in [node, new] {
                self.bounds_of(child, &mut bounds);
                self.push(root, &bounds, child);
            }
            self.root = Some(root);
        }
    }

    /// The child that grows least to hold the box; on a tie the smallest.
    fn best_place(&self, node: u32, flat: &[u64]) -> usize {
        let (mut best, mut least) = (0, (f64::INFINITY, f64::INFINITY));
        let mut bounds = Flat::new();
        for place in 0..self.len(node) {
            self.load(node, place, &mut bounds);
            let before = volume(&bounds);
            let grown = if grow(&mut bounds, flat) {
                volume(&bounds) - before
            } else {
                0.0
            };
            if (grown, before) < least {
                (best, least) = (place, (grown, before));
            }
        }
        best
    }

    fn grow_place(&mut self, node: u32, place: usize, flat: &[u64]) {
        for axis in 0..self.rank {
            let at = self.at(node, place, axis);
            self.bounds[at] = self.bounds[at].min(flat[axis]);
            self.bounds[at + CAPACITY] = self.bounds[at + CAPACITY].max(flat[self.rank + axis]);
        }
    }

    /// Adds an entry to this node; if it is full, returns the new node that took half of the entries.
    fn add(&mut self, node: u32, flat: &[u64], entry: u32) -> Option<u32> {
        if self.len(node) < CAPACITY {
            self.push(node, flat, entry);
            return None;
        }
        let mut boxes = Boxes::with_capacity(self.rank, CAPACITY + 1);
        let mut entries = Vec::with_capacity(CAPACITY + 1);
        let mut one = Flat::new();
        for place in 0..CAPACITY {
            self.load(node, place, &mut one);
            boxes.push(&one);
            entries.push(self.entry(node, place));
        }
        boxes.push(flat);
        entries.push(entry);
        let (stay, go) = split(&boxes);
        let new = self.new_node(self.level(node));
        self.nodes[node as usize].len = 0;
        for (to, indices) in [(node, stay), (new, go)] {
            for index in indices {
                self.push(to, boxes.get(index), entries[index]);
            }
        }
        Some(new)
    }

    /// Removes a box; O(log n). Returns whether it was there.
    pub(in crate::layout) fn remove(&mut self, flat: &[u64], id: u32) -> bool {
        let Some(root) = self.root else { return false };
        let mut way = Vec::with_capacity(8);
        if !self.find(root, flat, id, &mut way) {
            return false;
        }
        let Some((leaf, place)) = way.pop() else {
            return false;
        };
        self.swap_remove(leaf, place);

        // Back up: nodes with too few entries are dissolved, the others' bounds shrink.
        let mut orphans: Vec<(u8, Flat, u32)> = Vec::new();
        let (mut node, mut bounds) = (leaf, Flat::new());
        while let Some((parent, place)) = way.pop() {
            if self.len(node) < LEAST {
                for at in 0..self.len(node) {
                    self.load(node, at, &mut bounds);
                    orphans.push((self.level(node), bounds.clone(), self.entry(node, at)));
                }
                self.swap_remove(parent, place);
                self.free.push(node);
            } else {
                self.bounds_of(node, &mut bounds);
                self.store(parent, place, &bounds, node);
            }
            node = parent;
        }
        // Highest first: entries put back at a high level are there for the lower ones to go into.
        for (level, flat, entry) in orphans.into_iter().rev() {
            self.insert_at(&flat, entry, level);
        }
        self.lower_root();
        true
    }

    /// The path to the box with this id: the places on it, the last one in a leaf.
    fn find(&self, node: u32, flat: &[u64], id: u32, way: &mut Vec<Step>) -> bool {
        let leaf = self.level(node) == 0;
        let mut bounds = Flat::new();
        let mut hits = self.places_overlapping(node, flat);
        while hits != 0 {
            let place = hits.trailing_zeros() as usize;
            hits &= hits - 1;
            let entry = self.entry(node, place);
            way.push((node, place));
            if leaf {
                if entry == id {
                    return true;
                }
            } else {
                self.load(node, place, &mut bounds);
                if flat::contains(&bounds, flat) && self.find(entry, flat, id, way) {
                    return true;
                }
            }
            way.pop();
        }
        false
    }

    /// Removes a root with one child or with no entry.
    fn lower_root(&mut self) {
        while let Some(root) = self.root {
            match (self.len(root), self.level(root)) {
                (0, _) => self.root = None,
                (1, 1..) => self.root = Some(self.entry(root, 0)),
                _ => return,
            }
            self.free.push(root);
        }
    }
}
