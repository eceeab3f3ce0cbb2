//! Bulk loading of a tree: sort-tile-recursive, level by level.
//!
//! The boxes are sorted by their middles on the first axis and cut into slabs, each slab is sorted on the next axis
//! and cut, and so on; the pieces of the last axis fill nodes. The nodes' boxes are tiled in the same way into the
//! next level, so that upper nodes are compact too.

use super::super::flat::{Boxes, Flat};
use super::{CAPACITY, RTree};

impl RTree {
    /// A tree of all these boxes; box `i` has the id `ids[i]`.
    pub(in crate::layout) fn bulk(boxes: Boxes, ids: Vec<u32>) -> RTree {
        let rank = boxes.rank();
        let mut tree = RTree::new(rank);
        let nodes = ids.len().div_ceil(CAPACITY - 1);
        tree.bounds.reserve(nodes * 2 * rank * CAPACITY);
        tree.entries.reserve(nodes * CAPACITY);
        let (mut boxes, mut ids, mut level) = (boxes, ids, 0);
        while !ids.is_empty() {
            (boxes, ids) = tree.add_level(&boxes, &ids, level);
            if ids.len() == 1 {
                tree.root = Some(ids[0]);
                break;
            }
            level += 1;
        }
        tree
    }

    /// Puts all entries into nodes of this level; returns the nodes with their bounds.
    fn add_level(&mut self, boxes: &Boxes, ids: &[u32], level: u8) -> (Boxes, Vec<u32>) {
        let mut order: Vec<(u64, u32)> = (0..ids.len() as u32).map(|index| (0, index)).collect();
        tile(boxes, &mut order, 0);
        let count = ids.len().div_ceil(CAPACITY);
        let mut parents = (
            Boxes::with_capacity(self.rank, count),
            Vec::with_capacity(count),
        );
        let mut bounds = Flat::new();
        for group in order.chunks(CAPACITY) {
            let node = self.new_node(level);
            for &(_, index) in group {
                self.push(node, boxes.get(index as usize), ids[index as usize]);
            }
            self.bounds_of(node, &mut bounds);
            parents.0.push(&bounds);
            parents.1.push(node);
        }
        parents
    }
}

/// Orders `entries` so that each run of [`CAPACITY`] is one compact node.
fn tile(boxes: &Boxes, entries: &mut [(u64, u32)], axis: usize) {
    let rank = boxes.rank();
    if axis >= rank || entries.len() <= CAPACITY {
        return;
    }
    for (middle, index) in entries.iter_mut() {
        let flat = boxes.get(*index as usize);
        *middle = flat[axis] / 2 + flat[rank + axis] / 2;
    }
    let first = entries[0].0;
    if entries.iter().all(|&(middle, _)| middle == first) {
        return tile(boxes, entries, axis + 1);
    }
    entries.sort_unstable();
    if axis + 1 == rank {
        return;
    }
    let nodes = entries.len().div_ceil(CAPACITY);
    let slabs = (nodes as f64)
        .powf(1.0 / (rank - axis) as f64)
        .ceil()
        .max(1.0) as usize;
    // Complete nodes in each slab, so that only the very last node is not full.
    let slab = nodes.div_ceil(slabs) * CAPACITY;
    for part in entries.chunks_mut(slab) {
        tile(boxes, part, axis + 1);
    }
}
