//! Walks a plan: the pieces within a range of the object and of the packed bytes, in the order of the batch, without
//! listing the others.
//!
//! The results are [`Run`]s: equal pieces at equal steps, which a plain loop can copy. The *packed* bytes are the
//! bytes of all pieces, concatenated in the order of the batch: every node knows its bytes, so the offset of a
//! repetition among them is a multiplication. Subtrees and repetitions that do not touch the ranges are skipped by
//! arithmetic. The walk has one [`Level`] for each vector it is in. It allocates only when it is created: a caller
//! with many ranges reuses the same walk ([`Runs::seek`]).

use std::ops::Range;

use super::MAX_DEPTH;
use super::check::{Lie, Node, Nodes, Plan, What};

/// The elements of vectors up to this length are examined one by one; in longer ones those that touch a range are
/// found by bisection where possible.
const SHORT: u32 = 4;

/// `count` pieces of `bytes`, each `file_stride` and `memory_stride` after the previous one; among the packed bytes
/// they are contiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The offset of the first piece in the object, in bytes.
    pub file: u64,
    /// The offset of the first piece in the buffer, in bytes.
    pub memory: u64,
    /// The offset of the first piece among the packed bytes.
    pub packed: u64,
    /// The bytes of a piece; not 0.
    pub bytes: u64,
    /// The number of pieces; not 0.
    pub count: u64,
    /// Unused for a single piece.
    pub file_stride: i64,
    /// Unused for a single piece.
    pub memory_stride: i64,
}

/// A vector that is being walked, at one repetition of its parent.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// The position of this repetition of the parent.
    file: i64,
    memory: i64,
    packed: u64,
    /// The nodes that have not been started.
    next: u32,
    end: u32,
    /// The repetitions that have not been started of the node before `next`.
    from: u64,
    to: u64,
}

/// The runs of a plan within a range of the object and of the packed bytes; see [`Plan::runs`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    plan: &'a Plan,
    from: i64,
    to: i64,
    packed: Range<u64>,
    levels: Vec<Level>,
    steps: u64,
    pause: u64,
}

impl Plan {
    /// All runs.
    pub fn all_runs(&self) -> Runs<'_> {
        self.runs(0, i64::MAX as u64)
    }

    /// The parts of all pieces within the bytes `from..to` of the object, in the order of the batch.
    pub fn runs(&self, from: u64, to: u64) -> Runs<'_> {
        self.runs_within(from..to, 0..self.bytes())
    }

    /// The parts of all pieces that lie both within a range of the object's bytes and within one of the packed bytes,
    /// in the order of the batch.
    pub fn runs_within(&self, file: Range<u64>, packed: Range<u64>) -> Runs<'_> {
        let mut runs = Runs {
            plan: self,
            from: 0,
            to: 0,
            packed: packed.start..packed.end.min(self.bytes()),
            levels: Vec::with_capacity(MAX_DEPTH),
            steps: 0,
            pause: u64::MAX,
        };
        runs.seek(file);
        runs
    }
}

impl Run {
    /// The span of the object from the first byte to the end of the last.
    pub fn file_span(&self) -> (u64, u64) {
        let last = match self.count {
            1 => self.file,
            count => nth(self.file as i64, self.file_stride, count - 1) as u64,
        };
        (self.file.min(last), self.file.max(last) + self.bytes)
    }
}

impl Level {
    /// The position of the first repetition of a node.
    fn start(&self, node: &Node) -> (i64, i64) {
        (node.file.start(self.file), node.memory.start(self.memory))
    }
}

/// The repetitions, of `count` with the first at `start`, that touch a range: half-open.
fn touching(start: i64, lie: &Lie, count: u64, from: i64, to: i64) -> (u64, u64) {
    if from >= to {
        return (0, 0);
    }
    let fixed = lie.below_fixed;
    if fixed.is_some_and(|span| span.from < to && span.to > from) {
        return (0, count);
    }
    match lie.floating {
        // From the first that ends after the start to the last that begins before the end.
        Some(span) => steps(
            count,
            lie.stride,
            i128::from(from) - i128::from(start) - i128::from(span.to) + 1,
            i128::from(to) - i128::from(start) - i128::from(span.from) - 1,
        ),
        None => (0, 0),
    }
}

/// The nodes of a vector at `packed` that touch a range of the packed bytes: half-open.
pub(super) fn touching_nodes(nodes: &[Node], packed: u64, range: &Range<u64>) -> (usize, usize) {
    let end = |node: &Node| packed + node.packed + node.bytes * node.count;
    (
        nodes.partition_point(|node| end(node) <= range.start),
        nodes.partition_point(|node| packed + node.packed < range.end),
    )
}

/// The repetitions, of `count` contiguous ones of `bytes` from `start` on, that touch a range of the packed bytes.
pub(super) fn touching_packed(
    start: u64,
    bytes: u64,
    count: u64,
    range: &Range<u64>,
) -> (u64, u64) {
    let end = start + bytes * count;
    if range.start <= start && end <= range.end {
        return (0, count);
    }
    if range.start >= end || range.end <= start {
        return (0, 0);
    }
    let first = range.start.saturating_sub(start) / bytes;
    let last = (range.end.min(end) - start).div_ceil(bytes);
    (first, last)
}

/// The repetitions of data that lie entirely within a range.
fn within(start: i64, stride: i64, bytes: u64, count: u64, from: i64, to: i64) -> (u64, u64) {
    let start = i128::from(start);
    let (least, most) = (
        i128::from(from) - start,
        i128::from(to) - start - i128::from(bytes),
    );
    steps(count, stride, least, most)
}

/// The repetitions, of `count` contiguous ones, that lie entirely within a range of the packed bytes.
pub(super) fn within_packed(start: u64, bytes: u64, count: u64, range: &Range<u64>) -> (u64, u64) {
    let first = range.start.saturating_sub(start).div_ceil(bytes);
    let last = (range.end.saturating_sub(start) / bytes).min(count);
    (first, last)
}

/// The numbers `i` below `count` with `least <= i * stride <= most`.
fn steps(count: u64, stride: i64, least: i128, most: i128) -> (u64, u64) {
    if least > most {
        return (0, 0);
    }
    // Most walks stay within numbers that divide fast.
    const FAST: i128 = 1 << 62;
    if stride > 0 && least > -FAST && least < FAST && most > -FAST && most < FAST {
        let first = match least {
            ..=0 => 0,
            least => (least as u64).div_ceil(stride as u64),
        };
        let last = match most {
            ..=-1 => return (0, 0),
            most => (most as u64 / stride as u64 + 1).min(count),
        };
        return if first < last { (first, last) } else { (0, 0) };
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

/// The position of a repetition. It fits: the plan has been checked.
pub(super) fn nth(start: i64, stride: i64, number: u64) -> i64 {
    start.wrapping_add(stride.wrapping_mul(number as i64))
}

impl Runs<'_> {
    /// Restarts the walk for another range of the object; the range of the packed bytes stays.
    pub fn seek(&mut self, file: Range<u64>) {
        let bound = |at: u64| i64::try_from(at).unwrap_or(i64::MAX);
        (self.from, self.to) = (bound(file.start), bound(file.end));
        self.levels.clear();
        self.push(self.plan.top, 0, 0, 0);
    }

    /// The cost of the walk so far: elements examined, and repetitions of vectors entered.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Pauses the walk after this many steps: it returns nothing until a later pause is set. For a caller that must
    /// check a clock even though nothing is found for long.
    pub fn pause_at(&mut self, steps: u64) {
        self.pause = steps;
    }

    /// Whether the walk ended at a pause; else it is complete.
    pub fn is_paused(&self) -> bool {
        self.steps >= self.pause
    }

    /// Enters a vector.
    fn push(&mut self, nodes: Nodes, file: i64, memory: i64, packed: u64) {
        let (mut next, mut end) = (nodes.from, nodes.to);
        if end - next > SHORT {
            let all = self.plan.of(nodes);
            let (mut from, mut to) = touching_nodes(all, packed, &self.packed);
            if nodes.in_order {
                // In order: both ends of their extents ascend.
                let base = i128::from(file);
                let span = |node: &Node| {
                    let span = node.file.all(node.count);
                    span.map_or((0, 0), |span| {
                        (base + i128::from(span.from), base + i128::from(span.to))
                    })
                };
                from = from.max(all.partition_point(|node| span(node).1 <= self.from.into()));
                to = to.min(all.partition_point(|node| span(node).0 < self.to.into()));
            }
            end = next + to as u32;
            next += from.min(to) as u32;
        }
        self.levels.push(Level {
            file,
            memory,
            packed,
            next,
            end,
            from: 0,
            to: 0,
        });
    }

    /// A run of the current data node whose repetitions `from..to` touch the ranges; the rest stays in the level.
    /// `None` if the two ranges touch it at different places.
    fn data(&mut self, bytes: u64) -> Option<Run> {
        let level = self.levels.last_mut()?;
        let node = &self.plan.nodes[level.next as usize - 1];
        let (file, memory) = level.start(node);
        let packed = level.packed + node.packed;
        let at = level.from;
        let inside = within(
            file,
            node.file.stride,
            bytes,
            node.count,
            self.from,
            self.to,
        );
        let inside_packed = within_packed(packed, bytes, node.count, &self.packed);
        let inside = (inside.0.max(inside_packed.0), inside.1.min(inside_packed.1));
        let from = nth(file, node.file.stride, at);
        let mut run = Run {
            file: from as u64,
            memory: 0,
            packed: packed + at * bytes,
            bytes,
            count: 1,
            file_stride: node.file.stride,
            memory_stride: node.memory.stride,
        };
        let mut skipped = 0;
        if inside.0 <= at && at < inside.1 {
            run.count = inside.1.min(level.to) - at;
        } else {
            // A piece that an end of a range cuts.
            let before = |end: u64| end.saturating_sub(run.packed).min(bytes) as i64;
            let start = (self.from - from).max(before(self.packed.start)).max(0);
            let end = (self.to - from).min(before(self.packed.end));
            if start >= end {
                level.from += 1;
                return None;
            }
            skipped = start as u64;
            run.file += skipped;
            run.packed += skipped;
            run.bytes = (end - start) as u64;
        }
        level.from += run.count;
        (run.memory, run.memory_stride) = match self.plan.is_packed {
            true => (run.packed, run.bytes as i64),
            false => (
                nth(memory, node.memory.stride, at) as u64 + skipped,
                node.memory.stride,
            ),
        };
        Some(run)
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        loop {
            let level = self.levels.last_mut()?;
            if self.steps >= self.pause {
                return None;
            }
            if level.from < level.to {
                let node = &self.plan.nodes[level.next as usize - 1];
                self.steps += 1;
                match node.what {
                    What::Data(bytes) => {
                        if let Some(run) = self.data(bytes) {
                            return Some(run);
                        }
                    }
                    What::Vector(nodes) => {
                        let (file, memory) = level.start(node);
                        let file = nth(file, node.file.stride, level.from);
                        let memory = nth(memory, node.memory.stride, level.from);
                        let packed = level.packed + node.packed + level.from * node.bytes;
                        level.from += 1;
                        self.push(nodes, file, memory, packed);
                    }
                }
            } else if level.next < level.end {
                let node = &self.plan.nodes[level.next as usize];
                self.steps += 1;
                level.next += 1;
                let packed = level.packed + node.packed;
                let (start, count) = (level.start(node).0, node.count);
                let (from, to) = touching_packed(packed, node.bytes, count, &self.packed);
                let file = match from < to {
                    true => touching(start, &node.file, count, self.from, self.to),
                    false => (0, 0),
                };
                (level.from, level.to) = (from.max(file.0), to.min(file.1));
            } else {
                self.levels.pop();
            }
        }
    }
}
