//! The span of the object that a range of the packed bytes selects, computed without walking its pieces.
//!
//! A range cuts at most one repetition at each of its ends; those between are complete, and of complete repetitions
//! the first and the last determine the span. So the descent follows the two ends, and examines only the elements
//! that the range touches, however many pieces they have.
//!
//! The span of a few pieces that are far apart contains much that is not selected: for those use the stretches.

use std::ops::Range;

use super::check::{Node, Nodes, Plan, Span, What};
use super::walk::{nth, touching_nodes, touching_packed, within_packed};

impl Plan {
    /// The span of the object, from the first byte to the end of the last, that a range of the packed bytes selects;
    /// `None` if it selects nothing.
    pub fn file_span_of(&self, packed: Range<u64>) -> Option<(u64, u64)> {
        if packed.start == 0 && packed.end >= self.bytes() {
            return self.file_span();
        }
        let mut reach = Reach {
            plan: self,
            packed: packed.start..packed.end.min(self.bytes()),
            span: None,
        };
        if reach.packed.is_empty() {
            return None;
        }
        reach.vector(self.top, 0, 0);
        reach.span.map(|span| (span.from as u64, span.to as u64))
    }

    /// The stretches of the object, in bytes, that contain everything a range of the packed bytes selects: in order,
    /// and more than `gap` apart. Only the span if the range has more than `most` pieces.
    pub fn file_stretches_of(&self, packed: Range<u64>, most: usize, gap: u64) -> Vec<(u64, u64)> {
        let Some(span) = self.file_span_of(packed.clone()) else {
            return Vec::new();
        };
        if span.1 - span.0 <= gap {
            return vec![span];
        }
        let mut pieces = Vec::new();
        for run in self.runs_within(0..i64::MAX as u64, packed) {
            if run.count > (most - pieces.len()) as u64 {
                return vec![span];
            }
            pieces.extend((0..run.count).map(|number| {
                let at = nth(run.file as i64, run.file_stride, number) as u64;
                (at, at + run.bytes)
            }));
        }
        pieces.sort_unstable();
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (from, to) in pieces {
            match stretches.last_mut() {
                Some(last) if from <= last.1.saturating_add(gap) => last.1 = last.1.max(to),
                _ => stretches.push((from, to)),
            }
        }
        stretches
    }
}

/// The span found so far.
struct Reach<'a> {
    plan: &'a Plan,
    packed: Range<u64>,
    span: Option<Span>,
}

impl Reach<'_> {
    /// Descends into a vector, at one repetition of its parent, which begins at `file` and `packed`.
    fn vector(&mut self, nodes: Nodes, file: i64, packed: u64) {
        let all = self.plan.of(nodes);
        let (from, to) = touching_nodes(all, packed, &self.packed);
        for node in all.get(from..to).unwrap_or_default() {
            self.node(node, file, packed + node.packed);
        }
    }

    /// Adds an element whose first repetition begins at `packed`.
    fn node(&mut self, node: &Node, base: i64, packed: u64) {
        let start = node.file.start(base);
        let at = |number| nth(start, node.file.stride, number);
        let (from, to) = touching_packed(packed, node.bytes, node.count, &self.packed);
        let (first, end) = within_packed(packed, node.bytes, node.count, &self.packed);
        if first < end {
            for number in [first, end - 1] {
                if let Some(span) = node.file.floating {
                    self.add(
                        at(number).wrapping_add(span.from),
                        at(number).wrapping_add(span.to),
                    );
                }
            }
            if let Some(span) = node.file.below_fixed {
                self.add(span.from, span.to);
            }
        }
        // The repetitions that are cut: at most one at each end, which may be the same.
        let (before, behind) = match first < end {
            true => (from..first, end..to),
            false => (from..to, to..to),
        };
        for number in before.chain(behind) {
            let packed = packed + number * node.bytes;
            match node.what {
                What::Data(bytes) => {
                    let cut = |end: u64| end.saturating_sub(packed).min(bytes) as i64;
                    self.add(
                        at(number) + cut(self.packed.start),
                        at(number) + cut(self.packed.end),
                    );
                }
                What::Vector(nodes) => self.vector(nodes, at(number), packed),
            }
        }
    }

    fn add(&mut self, from: i64, to: i64) {
        let so_far = self.span.unwrap_or(Span { from, to });
        self.span = Some(Span {
            from: so_far.from.min(from),
            to: so_far.to.max(to),
        });
    }
}
