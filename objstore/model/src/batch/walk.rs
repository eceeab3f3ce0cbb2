//! Walking a plan: the pieces within a range of the object, in the order of the batch, without listing the others.
//!
//! What comes out are [`Run`]s: equal pieces at equal steps, so that who copies them has a plain loop. A subtree, and
//! repetitions, that do not touch the range are passed over by arithmetic. The walk keeps one [`Level`] for each
//! vector it is in; it allocates when it begins, and then no more.

use super::MAX_DEPTH;
use super::check::{Lie, Node, Plan, What};

/// `count` pieces of `bytes`, each `file_stride` and `memory_stride` after the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Where the first lies in the object, in bytes.
    pub file: u64,
    /// Where the first lies in the buffer, in bytes.
    pub memory: u64,
    /// Of a piece; not 0.
    pub bytes: u64,
    /// Not 0.
    pub count: u64,
    /// Of 1 piece it means nothing.
    pub file_stride: i64,
    /// Of 1 piece it means nothing.
    pub memory_stride: i64,
}

/// A vector that is being walked: at one repetition of its parent.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// Where this repetition of the parent lies.
    file: i64,
    memory: i64,
    /// Nodes that have not begun.
    next: u32,
    end: u32,
    /// Repetitions that have not begun of the node before `next`.
    from: u64,
    to: u64,
}

/// The runs of a plan within a range of the object; see [`Plan::runs`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    nodes: &'a [Node],
    from: i64,
    to: i64,
    levels: Vec<Level>,
}

impl Plan {
    /// All runs.
    pub fn all_runs(&self) -> Runs<'_> {
        self.runs(0, i64::MAX as u64)
    }

    /// The parts of all pieces within the bytes `from..to` of the object, in the order of the batch.
    pub fn runs(&self, from: u64, to: u64) -> Runs<'_> {
        let mut levels = Vec::with_capacity(MAX_DEPTH);
        levels.push(Level::new(0, 0, self.top));
        let bound = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        Runs {
            nodes: &self.nodes,
            from: bound(from),
            to: bound(to),
            levels,
        }
    }
}

impl Level {
    fn new(file: i64, memory: i64, (next, end): (u32, u32)) -> Level {
        Level {
            file,
            memory,
            next,
            end,
            from: 0,
            to: 0,
        }
    }

    /// Where the first repetition of a node lies.
    fn start(&self, node: &Node) -> (i64, i64) {
        let at = |lie: &Lie, base: i64| match lie.fixed {
            true => lie.offset,
            false => base + lie.offset,
        };
        (at(&node.file, self.file), at(&node.memory, self.memory))
    }
}

/// Which of `count` repetitions, the first at `start`, touch a range: from a number up to another.
fn touching(start: i64, lie: &Lie, count: u64, from: i64, to: i64) -> (u64, u64) {
    if from >= to {
        return (0, 0);
    }
    let fixed = lie.below_fixed;
    if fixed.is_some_and(|span| span.from < to && span.to > from) {
        return (0, count);
    }
    match lie.floating {
        // The last that begins before the end, the first that ends behind the start.
        Some(span) => steps(
            count,
            lie.stride,
            i128::from(from) - i128::from(start) - i128::from(span.to) + 1,
            i128::from(to) - i128::from(start) - i128::from(span.from) - 1,
        ),
        None => (0, 0),
    }
}

/// Which of `count` repetitions of data lie in a range as a whole.
fn within(start: i64, stride: i64, bytes: u64, count: u64, from: i64, to: i64) -> (u64, u64) {
    let start = i128::from(start);
    let (least, most) = (
        i128::from(from) - start,
        i128::from(to) - start - i128::from(bytes),
    );
    steps(count, stride, least, most)
}

/// The numbers `i` below `count` with `least <= i * stride <= most`.
fn steps(count: u64, stride: i64, least: i128, most: i128) -> (u64, u64) {
    if least > most {
        return (0, 0);
    }
    let (first, last) = match i128::from(stride) {
        0 if least <= 0 && most >= 0 => (0, i128::from(count) - 1),
        0 => return (0, 0),
        stride if stride > 0 => (ceil(least, stride), most.div_euclid(stride)),
        stride => (ceil(-most, -stride), (-least).div_euclid(-stride)),
    };
    let (first, last) = (first.max(0), last.min(i128::from(count) - 1));
    match first <= last {
        true => (first as u64, last as u64 + 1),
        false => (0, 0),
    }
}

fn ceil(value: i128, by: i128) -> i128 {
    -(-value).div_euclid(by)
}

/// Where a repetition lies. It fits: the plan was looked through.
fn nth(start: i64, stride: i64, number: u64) -> i64 {
    start.wrapping_add(stride.wrapping_mul(number as i64))
}

impl Runs<'_> {
    /// Runs of a node of data whose repetitions `from..to` touch the range; what is left of it goes back into
    /// the level.
    fn data(&mut self, bytes: u64) -> Option<Run> {
        let level = self.levels.last_mut()?;
        let node = &self.nodes[level.next as usize - 1];
        let (file, memory) = level.start(node);
        let at = level.from;
        let inside = within(
            file,
            node.file.stride,
            bytes,
            node.count,
            self.from,
            self.to,
        );
        let from = nth(file, node.file.stride, at);
        let mut run = Run {
            file: from as u64,
            memory: nth(memory, node.memory.stride, at) as u64,
            bytes,
            count: 1,
            file_stride: node.file.stride,
            memory_stride: node.memory.stride,
        };
        if inside.0 <= at && at < inside.1 {
            run.count = inside.1.min(level.to) - at;
        } else {
            // One that an end of the range cuts.
            let start = from.max(self.from);
            let end = (from + bytes as i64).min(self.to);
            run.file = start as u64;
            run.memory += (start - from) as u64;
            run.bytes = (end - start) as u64;
        }
        level.from += run.count;
        Some(run)
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        loop {
            let level = self.levels.last_mut()?;
            if level.from < level.to {
                let node = &self.nodes[level.next as usize - 1];
                match node.what {
                    What::Data(bytes) => return self.data(bytes),
                    What::Vector(first, end) => {
                        let (file, memory) = level.start(node);
                        let file = nth(file, node.file.stride, level.from);
                        let memory = nth(memory, node.memory.stride, level.from);
                        level.from += 1;
                        self.levels.push(Level::new(file, memory, (first, end)));
                    }
                }
            } else if level.next < level.end {
                let node = &self.nodes[level.next as usize];
                level.next += 1;
                let start = level.start(node).0;
                (level.from, level.to) =
                    touching(start, &node.file, node.count, self.from, self.to);
            } else {
                self.levels.pop();
            }
        }
    }
}
