//! An R-tree whose rank is known at run time.
//!
//! Guttman's tree with the split of the R*-tree (Beckmann et al. 1990), and bulk loading by sort-tile-recursive
//! (Leutenegger et al. 1997). It holds boxes, each with a number that the tiling interprets. Boxes are flat
//! ([`super::flat`]) and not empty.
//!
//! Nodes are in one arena, without pointers: node `n` has [`CAPACITY`] places. The bounds of all places of a node are
//! contiguous, for each axis the lows of all places and then their ends, so that a search scans short arrays. An
//! entry of rank 2 costs about 50 bytes at the usual filling.
//!
//! Invariants: all leaves (level 0) are at one depth; a node's bounds in its parent are exactly the box around its
//! entries; each node but the root has at least [`LEAST`] entries when it was filled by insertion (bulk loading may
//! leave the last nodes with fewer), and a root above other nodes has at least two.

mod bulk;
mod change;
mod split;
#[cfg(test)]
mod tests;

use super::flat::Flat;

/// The entries of a node.
pub(super) const CAPACITY: usize = 16;

/// The fewest entries of a node after a split or a removal.
const LEAST: usize = 6;

/// Boxes, indexed by position.
#[derive(Debug, Clone)]
pub(super) struct RTree {
    rank: usize,
    root: Option<u32>,
    /// Entries of each node, and its level.
    nodes: Vec<Head>,
    /// `CAPACITY` for each node: children, or in leaves the ids of the boxes.
    entries: Vec<u32>,
    /// `2 * rank * CAPACITY` for each node: for each axis the lows, then the ends, of all places.
    bounds: Vec<u64>,
    /// Free nodes.
    free: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Head {
    len: u8,
    level: u8,
}

impl RTree {
    /// An empty tree.
    pub(super) fn new(rank: usize) -> RTree {
        RTree {
            rank,
            root: None,
            nodes: Vec::new(),
            entries: Vec::new(),
            bounds: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Calls `f` with the id of each box that shares a cell with `place`, until it returns false.
    pub(super) fn overlapping(&self, place: &[u64], f: &mut impl FnMut(u32) -> bool) {
        if let Some(root) = self.root {
            self.search(root, place, f);
        }
    }

    fn search(&self, node: u32, place: &[u64], f: &mut impl FnMut(u32) -> bool) -> bool {
        let leaf = self.level(node) == 0;
        let mut hits = self.places_overlapping(node, place);
        while hits != 0 {
            let entry = self.entry(node, hits.trailing_zeros() as usize);
            hits &= hits - 1;
            let go_on = if leaf {
                f(entry)
            } else {
                self.search(entry, place, f)
            };
            if !go_on {
                return false;
            }
        }
        true
    }

    /// A bit for each place of `node` whose box shares a cell with `place`.
    fn places_overlapping(&self, node: u32, place: &[u64]) -> u32 {
        let mut hits = (1u32 << self.len(node)) - 1;
        for axis in 0..self.rank {
            let (lows, ends) = self.axis_bounds(node, axis);
            let (low, end) = (place[axis], place[self.rank + axis]);
            let mut on_axis = 0u32;
            for at in 0..CAPACITY {
                on_axis |= u32::from((lows[at] < end) & (ends[at] > low)) << at;
            }
            hits &= on_axis;
            if hits == 0 {
                break;
            }
        }
        hits
    }

    /// Calls `f` with the id of each box that is not entirely inside `place`.
    pub(super) fn not_inside(&self, place: &[u64], f: &mut impl FnMut(u32)) {
        let mut open: Vec<u32> = self.root.into_iter().collect();
        let mut flat = Flat::new();
        while let Some(node) = open.pop() {
            for at in 0..self.len(node) {
                self.load(node, at, &mut flat);
                if super::flat::contains(place, &flat) {
                    continue;
                }
                match self.level(node) {
                    0 => f(self.entry(node, at)),
                    _ => open.push(self.entry(node, at)),
                }
            }
        }
    }

    fn len(&self, node: u32) -> usize {
        usize::from(self.nodes[node as usize].len)
    }

    fn level(&self, node: u32) -> u8 {
        self.nodes[node as usize].level
    }

    fn entry(&self, node: u32, at: usize) -> u32 {
        self.entries[node as usize * CAPACITY + at]
    }

    /// The lows and the ends of all places of a node on one axis.
    fn axis_bounds(&self, node: u32, axis: usize) -> (&[u64; CAPACITY], &[u64; CAPACITY]) {
        let from = (node as usize * self.rank + axis) * 2 * CAPACITY;
        let (arrays, _) = self.bounds[from..from + 2 * CAPACITY].as_chunks::<CAPACITY>();
        (&arrays[0], &arrays[1])
    }

    /// The index in `bounds` of the low of a place on an axis; its end is `CAPACITY` further.
    fn at(&self, node: u32, place: usize, axis: usize) -> usize {
        (node as usize * self.rank + axis) * 2 * CAPACITY + place
    }

    /// Reads the box of a place.
    fn load(&self, node: u32, place: usize, out: &mut Flat) {
        out.clear();
        out.extend((0..self.rank).map(|axis| self.bounds[self.at(node, place, axis)]));
        out.extend((0..self.rank).map(|axis| self.bounds[self.at(node, place, axis) + CAPACITY]));
    }

    /// Writes the box and the entry of a place.
    fn store(&mut self, node: u32, place: usize, flat: &[u64], entry: u32) {
        for axis in 0..self.rank {
            let at = self.at(node, place, axis);
            self.bounds[at] = flat[axis];
            self.bounds[at + CAPACITY] = flat[self.rank + axis];
        }
        self.entries[node as usize * CAPACITY + place] = entry;
    }

    /// Appends an entry to a node that has room.
    fn push(&mut self, node: u32, flat: &[u64], entry: u32) {
        let place = self.len(node);
        self.store(node, place, flat, entry);
        self.nodes[node as usize].len += 1;
    }

    /// Removes an entry from a node; the last entry takes its place.
    fn swap_remove(&mut self, node: u32, place: usize) {
        let last = self.len(node) - 1;
        if place != last {
            let mut flat = Flat::new();
            self.load(node, last, &mut flat);
            let entry = self.entry(node, last);
            self.store(node, place, &flat, entry);
        }
        self.nodes[node as usize].len -= 1;
    }

    /// The box around all entries of a node that is not empty.
    fn bounds_of(&self, node: u32, out: &mut Flat) {
        out.clear();
        let len = self.len(node);
        let least = |values: &[u64]| values[..len].iter().copied().min().unwrap_or(0);
        let most = |values: &[u64]| values[..len].iter().copied().max().unwrap_or(0);
        out.extend((0..self.rank).map(|axis| least(self.axis_bounds(node, axis).0)));
        out.extend((0..self.rank).map(|axis| most(self.axis_bounds(node, axis).1)));
    }

    /// A node without entries.
    fn new_node(&mut self, level: u8) -> u32 {
        let head = Head { len: 0, level };
        if let Some(node) = self.free.pop() {
            self.nodes[node as usize] = head;
            return node;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(head);
        self.entries.resize(self.entries.len() + CAPACITY, 0);
        self.bounds
            .resize(self.bounds.len() + 2 * self.rank * CAPACITY, 0);
        node
    }
}
