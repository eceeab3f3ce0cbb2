//! Ranges of bytes, and sets of such ranges, each with a value: the locks of an owner on a file, the pages that a kernel may
//! hold.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// A range of bytes, both ends included, so that it can reach the end of the number range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub first: u64,
    /// The last byte, not before the first.
    pub last: u64,
}

impl Span {
    /// All bytes.
    pub const ALL: Self = Self {
        first: 0,
        last: u64::MAX,
    };

    /// `len` bytes at `first`; at least one, which stands for the place of an empty request.
    #[must_use]
    pub fn of(first: u64, len: u64) -> Self {
        Self {
            first,
            last: first.saturating_add(len.max(1) - 1),
        }
    }

    /// Whether they have a byte in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Disjoint spans in order, each with a value; no two of one value touch.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spans<V> {
    spans: Vec<(Span, V)>,
}

impl<V> Default for Spans<V> {
    fn default() -> Self {
        Self { spans: Vec::new() }
    }
}

impl<V: Copy + Eq> Spans<V> {
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
    pub fn iter(&self) -> impl Iterator<Item = (Span, V)> + '_ {
        self.spans.iter().copied()
    }

    /// Sets the value of these bytes; `None` removes them. Older spans are cut, or split in two, and adjacent spans of
    /// one value are merged.
    pub fn set(&mut self, span: Span, value: Option<V>) {
        // The spans that overlap it, and on each side one that touches it.
        let from = self
            .spans
            .partition_point(|(at, _)| at.last < span.first.saturating_sub(1));
        let to = from
            + self.spans[from..].partition_point(|(at, _)| at.first <= span.last.saturating_add(1));
        let mut put: SmallVec<[(Span, V); 4]> = SmallVec::new();
        let mut add = |first: u64, last: u64, value: V| match put.last_mut() {
            Some((at, of)) if *of == value && at.last.checked_add(1) == Some(first) => {
                at.last = last;
            }
            _ => put.push((Span { first, last }, value)),
        };
        for &(at, of) in &self.spans[from..to] {
            if at.first < span.first {
                add(at.first, at.last.min(span.first - 1), of);
            }
        }
        if let Some(value) = value {
            add(span.first, span.last, value);
        }
        for &(at, of) in &self.spans[from..to] {
            if at.last > span.last {
                add(at.first.max(span.last + 1), at.last, of);
            }
        }
        self.spans.splice(from..to, put);
    }

    /// The spans that overlap `span`.
    pub fn overlapping(&self, span: Span) -> impl Iterator<Item = (Span, V)> + '_ {
        let from = self.spans.partition_point(|(at, _)| at.last < span.first);
        self.spans[from..]
            .iter()
            .take_while(move |(at, _)| at.first <= span.last)
            .copied()
    }

    /// The parts of the spans that lie within `span`.
    pub fn within(&self, span: Span) -> impl Iterator<Item = (Span, V)> + '_ {
        self.overlapping(span).map(move |(at, value)| {
            let cut = Span {
                first: at.first.max(span.first),
                last: at.last.min(span.last),
            };
            (cut, value)
        })
    }

    /// Whether a byte of `span` is in the set.
    #[must_use]
    pub fn overlaps(&self, span: Span) -> bool {
        self.overlapping(span).next().is_some()
    }

    /// If there are more than `most` spans, merges all into one that has the first one's value.
    pub fn bound(&mut self, most: usize) {
        if let ([(first, value), ..], [.., (last, _)]) = (&*self.spans, &*self.spans)
            && self.spans.len() > most
        {
            let all = Span {
                first: first.first,
                last: last.last,
            };
            self.spans = vec![(all, *value)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    fn span(first: u64, last: u64) -> Span {
        Span { first, last }
    }

    #[test]
    fn spans_reach_both_ends_of_the_number_range() {
        let mut spans = Spans::default();
        spans.set(Span::ALL, Some(1));
        spans.set(span(u64::MAX, u64::MAX), Some(2));
        spans.set(span(0, 0), None);
        let all: Vec<_> = spans.iter().collect();
        assert_eq!(
            all,
            [(span(1, u64::MAX - 1), 1), (span(u64::MAX, u64::MAX), 2)]
        );
        assert_eq!(Span::of(0, u64::MAX).last, u64::MAX - 1);
        assert_eq!(Span::of(7, u64::MAX).last, u64::MAX);
        assert_eq!(Span::of(7, 0), Span::of(7, 1));
        spans.set(Span::ALL, None);
        assert!(spans.is_empty());
    }

    #[test]
    fn too_many_spans_become_one() {
        let mut spans = Spans::default();
        for at in 0..4 {
            spans.set(Span::of(at * 10, 5), Some(()));
        }
        spans.bound(4);
        assert!(spans.len() == 4 && !spans.overlaps(Span::of(7, 1)));
        spans.bound(3);
        assert!(spans.overlaps(Span::of(7, 1)) && spans.len() == 1);
    }

    proptest! {
        #[test]
        fn spans_are_bytes_with_values(steps in prop::collection::vec(
            (0..BYTES, 0..BYTES, prop::option::of(0..2u8)), 1..40,
        )) {
            let mut spans = Spans::default();
            let mut bytes = [None; BYTES as usize];
            for (a, b, value) in steps {
                let (first, last) = (a.min(b), a.max(b));
                spans.set(span(first, last), value);
                bytes[first as usize..=last as usize].fill(value);
                let mut seen = [None; BYTES as usize];
                for (at, value) in spans.iter() {
                    for byte in at.first..=at.last {
                        prop_assert!(seen[byte as usize].replace(value).is_none(), "twice");
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
                let there = span(first / 2, last);
                let within: Vec<_> = spans.within(there).collect();
                for byte in 0..BYTES {
                    let of = within.iter().find(|(at, _)| at.overlaps(span(byte, byte)));
                    let expected = bytes[byte as usize].filter(|_| there.overlaps(span(byte, byte)));
                    prop_assert_eq!(of.map(|(_, value)| *value), expected);
                }
                prop_assert_eq!(spans.overlaps(there), !within.is_empty());
                for (at, value) in spans.overlapping(there) {
                    prop_assert!(all.contains(&(at, value)) && at.overlaps(there));
                }
            }
        }
    }
}
