//! The images of one plan, and the search for those that overlay a given one.
//!
//! A plan with few hits compares all with all. With many, the images get a pyramid: boxes around each sixteen of
//! them, around each sixteen of those, and so on. The R-tree returns its hits leaf by leaf, so neighbours in the list
//! are close in space, and a search for the images over one costs about a logarithm.

use super::super::flat::{self, Boxes, Flat};

const FAN_OUT: usize = 16;

/// The properties of one hit except its box.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) slot: u32,
    pub(super) solid: bool,
    pub(super) order: u64,
}

/// The hits of one plan with their images.
#[derive(Debug)]
pub(super) struct Overlay {
    pub(super) hits: Vec<Hit>,
    pub(super) images: Boxes,
    levels: Vec<Level>,
}

/// Boxes around the solid images of sixteen entries of the level below, and the newest of them.
#[derive(Debug)]
struct Level {
    bounds: Boxes,
    newest: Vec<Option<u64>>,
}

impl Overlay {
    pub(super) fn new(rank: usize) -> Overlay {
        Overlay {
            hits: Vec::new(),
            images: Boxes::new(rank),
            levels: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, hit: Hit, image: &[u64]) {
        self.hits.push(hit);
        self.images.push(image);
    }

    /// Builds the pyramid; called once all hits are in.
    pub(super) fn build(&mut self) {
        if self.hits.len() <= FAN_OUT {
            return;
        }
        let solid = |index: usize| self.hits[index].solid.then_some(self.hits[index].order);
        let mut level = Level::over(&self.images, solid);
        while level.bounds.len() > FAN_OUT {
            let next = Level::over(&level.bounds, |index| level.newest[index]);
            self.levels.push(level);
            level = next;
        }
        self.levels.push(level);
    }

    /// Calls `f` with each solid image that is newer than hit `index` and overlaps its image, until `f` returns
    /// false.
    pub(super) fn newer_over(&self, index: usize, f: &mut impl FnMut(&[u64]) -> bool) {
        let top = self.levels.len();
        let entries = self
            .levels
            .last()
            .map_or(self.hits.len(), |level| level.bounds.len());
        self.search(
            top,
            0,
            entries,
            self.images.get(index),
            self.hits[index].order,
            f,
        );
    }

    fn search(
        &self,
        level: usize,
        from: usize,
        to: usize,
        image: &[u64],
        order: u64,
        f: &mut impl FnMut(&[u64]) -> bool,
    ) -> bool {
        if level == 0 {
            return (from..to).all(|at| {
                let hit = self.hits[at];
                let over = hit.solid && hit.order > order;
                !over || !flat::overlaps(self.images.get(at), image) || f(self.images.get(at))
            });
        }
        let Level { bounds, newest } = &self.levels[level - 1];
        let below = match level {
            1 => self.hits.len(),
            _ => self.levels[level - 2].bounds.len(),
        };
        (from..to).all(|at| {
            let over = newest[at].is_some_and(|newest| newest > order);
            if !over || !flat::overlaps(bounds.get(at), image) {
                return true;
            }
            let (from, to) = (at * FAN_OUT, ((at + 1) * FAN_OUT).min(below));
            self.search(level - 1, from, to, image, order, f)
        })
    }
}

impl Level {
    fn over(boxes: &Boxes, newest: impl Fn(usize) -> Option<u64>) -> Level {
        let (rank, groups) = (boxes.rank(), boxes.len().div_ceil(FAN_OUT));
        let mut level = Level {
            bounds: Boxes::with_capacity(rank, groups),
            newest: Vec::with_capacity(groups),
        };
        for group in 0..groups {
            // The empty box: everything grows it.
            let mut bounds = Flat::from_elem(u64::MAX, rank);
            bounds.resize(2 * rank, 0);
            let mut most = None;
            for index in group * FAN_OUT..((group + 1) * FAN_OUT).min(boxes.len()) {
                let Some(order) = newest(index) else { continue };
                most = most.max(Some(order));
                let flat = boxes.get(index);
                for axis in 0..rank {
                    bounds[axis] = bounds[axis].min(flat[axis]);
                    bounds[rank + axis] = bounds[rank + axis].max(flat[rank + axis]);
                }
            }
            level.bounds.push(&bounds);
            level.newest.push(most);
        }
        level
    }
}
