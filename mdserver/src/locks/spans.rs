//! The locks of one owner on one file: disjoint spans, sorted, each with a mode.
//!
//! Setting a span replaces what was there, as POSIX requires: older spans are cut, or split in two, and adjacent
//! spans of one mode are merged.

use crate::api::{LockMode, LockSpan};

/// Disjoint spans in order; no two of one mode touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spans {
    spans: Vec<(LockSpan, LockMode)>,
}

impl Spans {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The number of spans.
    #[must_use]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// All spans, in order.
    pub fn iter(&self) -> impl Iterator<Item = (LockSpan, LockMode)> + '_ {
        self.spans.iter().copied()
    }

    /// Sets the mode of these bytes; `None` unlocks them.
    pub fn set(&mut self, span: LockSpan, mode: Option<LockMode>) {
        // The spans that overlap it, and on each side one that touches it.
        let from = self
            .spans
            .partition_point(|(at, _)| at.last < span.first.saturating_sub(1));
        let to = from
            + self.spans[from..].partition_point(|(at, _)| at.first <= span.last.saturating_add(1));
        let mut put: Vec<(LockSpan, LockMode)> = Vec::with_capacity(to - from + 1);
        let mut add = |first: u64, last: u64, mode: LockMode| match put.last_mut() {
            Some((at, of)) if *of == mode && at.last.checked_add(1) == Some(first) => {
                at.last = last;
            }
            _ => put.push((LockSpan { first, last }, mode)),
        };
        for &(at, of) in &self.spans[from..to] {
            if at.first < span.first {
                add(at.first, at.last.min(span.first - 1), of);
            }
        }
        if let Some(mode) = mode {
            add(span.first, span.last, mode);
        }
        for &(at, of) in &self.spans[from..to] {
            if at.last > span.last {
                add(at.first.max(span.last + 1), at.last, of);
            }
        }
        self.spans.splice(from..to, put);
    }

    /// The parts of the spans that lie within `span`.
    pub fn within(&self, span: LockSpan) -> impl Iterator<Item = (LockSpan, LockMode)> + '_ {
        let from = self.spans.partition_point(|(at, _)| at.last < span.first);
        self.spans[from..]
            .iter()
            .take_while(move |(at, _)| at.first <= span.last)
            .map(move |&(at, mode)| {
                let cut = LockSpan {
                    first: at.first.max(span.first),
                    last: at.last.min(span.last),
                };
                (cut, mode)
            })
    }

    /// The first span that conflicts with a lock of this mode on these bytes.
    #[must_use]
    pub fn conflict(&self, span: &LockSpan, mode: LockMode) -> Option<(LockSpan, LockMode)> {
        let from = self.spans.partition_point(|(at, _)| at.last < span.first);
        self.spans[from..]
            .iter()
            .take_while(|(at, _)| at.first <= span.last)
            .find(|(_, of)| conflicting(*of, mode))
            .copied()
    }
}

/// Whether two locks on the same bytes conflict.
#[must_use]
pub(super) fn conflicting(one: LockMode, other: LockMode) -> bool {
    one == LockMode::Exclusive || other == LockMode::Exclusive
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    fn span(first: u64, last: u64) -> LockSpan {
        LockSpan { first, last }
    }

    #[test]
    fn spans_reach_both_ends_of_the_number_range() {
        let mut spans = Spans::default();
        spans.set(LockSpan::ALL, Some(LockMode::Shared));
        spans.set(span(u64::MAX, u64::MAX), Some(LockMode::Exclusive));
        spans.set(span(0, 0), None);
        let all: Vec<_> = spans.iter().collect();
        assert_eq!(
            all,
            [
                (span(1, u64::MAX - 1), LockMode::Shared),
                (span(u64::MAX, u64::MAX), LockMode::Exclusive)
            ]
        );
        spans.set(LockSpan::ALL, None);
        assert!(spans.is_empty());
    }

    proptest! {
        #[test]
        fn spans_are_bytes_with_modes(steps in prop::collection::vec(
            (0..BYTES, 0..BYTES, prop::option::of(any::<bool>())), 1..40,
        )) {
            let mut spans = Spans::default();
            let mut bytes = [None; BYTES as usize];
            for (a, b, mode) in steps {
                let (first, last) = (a.min(b), a.max(b));
                let mode = mode.map(|exclusive| match exclusive {
                    true => LockMode::Exclusive,
                    false => LockMode::Shared,
                });
                spans.set(span(first, last), mode);
                bytes[first as usize..=last as usize].fill(mode);
                let mut seen = [None; BYTES as usize];
                for (at, mode) in spans.iter() {
                    for byte in at.first..=at.last {
                        prop_assert!(seen[byte as usize].replace(mode).is_none(), "twice");
                    }
                }
                prop_assert_eq!(seen, bytes);
                let all: Vec<_> = spans.iter().collect();
                for pair in all.windows(2) {
                    prop_assert!(pair[0].0.last < pair[1].0.first, "out of order");
                    prop_assert!(
                        pair[0].1 != pair[1].1 || pair[0].0.last + 1 < pair[1].0.first,
                        "not merged"
                    );
                }
                for mode in [LockMode::Shared, LockMode::Exclusive] {
                    let hit = (first..=last).find(|&byte| {
                        bytes[byte as usize].is_some_and(|of| conflicting(of, mode))
                    });
                    let found = spans.conflict(&span(first, last), mode);
                    prop_assert_eq!(found.is_some(), hit.is_some());
                    if let (Some((at, _)), Some(hit)) = (found, hit) {
                        prop_assert!(at.first <= hit && hit <= at.last);
                    }
                }
            }
        }
    }
}
