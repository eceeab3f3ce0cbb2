//! Byte ranges of an object, for the kernel's pages and the writes that overlap them. Pure.
//!
//! A span counts bytes of the plain object. A request through a selection, or at a position that is unknown until it
//! is done (an append), counts as everything. Spans are not rounded to pages: the kernel reads complete pages, so a
//! write to any byte of a page overlaps the span that was read for it.

/// `[from, to)` in bytes of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::client) struct Span {
    pub(in crate::client) from: u64,
    pub(in crate::client) to: u64,
}

impl Span {
    /// Every byte.
    pub(in crate::client) const ALL: Span = Span {
        from: 0,
        to: u64::MAX,
    };

    /// `len` bytes at `offset`.
    pub(in crate::client) fn of(offset: u64, len: u64) -> Span {
        Span {
            from: offset,
            to: offset.saturating_add(len),
        }
    }

    /// Whether they have a byte in common.
    pub(in crate::client) fn overlaps(self, other: Span) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// More spans than this are merged into one: scattered page accesses then cause drops that were not needed.
const MOST: usize = 256;

/// A set of bytes.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Spans {
    /// Sorted; adjacent spans are merged.
    spans: Vec<Span>,
}

impl Spans {
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    /// Whether it contains a byte of `span`.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        let at = self.spans.partition_point(|one| one.to <= span.from);
        self.spans.get(at).is_some_and(|one| one.overlaps(span))
    }

    /// Adds `span`.
    pub(super) fn add(&mut self, span: Span) {
        if span.from >= span.to {
            return;
        }
        let first = self.spans.partition_point(|one| one.to < span.from);
        let last = self.spans.partition_point(|one| one.from <= span.to);
        let mut merged = span;
        if let [one, ..] = self.spans[first..last.max(first)] {
            merged.from = merged.from.min(one.from);
        }
        if let [.., one] = self.spans[first..last.max(first)] {
            merged.to = merged.to.max(one.to);
        }
        self.spans.splice(first..last.max(first), [merged]);
        if let ([first, ..], [.., last]) = (&*self.spans, &*self.spans)
            && self.spans.len() > MOST
        {
            self.spans = vec![Span {
                from: first.from,
                to: last.to,
            }];
        }
    }

    /// Removes `span`.
    pub(super) fn remove(&mut self, span: Span) {
        let first = self.spans.partition_point(|one| one.to <= span.from);
        let last = self.spans.partition_point(|one| one.from < span.to);
        if first >= last || span.from >= span.to {
            return;
        }
        let (head, tail) = (self.spans[first].from, self.spans[last - 1].to);
        let left = Span {
            from: head,
            to: span.from,
        };
        let right = Span {
            from: span.to,
            to: tail,
        };
        let rest = [left, right].into_iter().filter(|one| one.from < one.to);
        self.spans.splice(first..last, rest);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_are_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..60)) {
            let mut spans = Spans::default();
            let mut naive = [false; 80];
            for (add, from, len) in steps {
                let span = Span::of(from, len);
                match add {
                    true => spans.add(span),
                    false => spans.remove(span),
                }
                naive[from as usize..(from + len) as usize].fill(add);
                prop_assert!(spans.spans.windows(2).all(|pair| pair[0].to < pair[1].from));
                prop_assert_eq!(spans.is_empty(), naive.iter().all(|byte| !byte));
                for (at, byte) in naive.iter().enumerate() {
                    prop_assert_eq!(spans.overlaps(Span::of(at as u64, 1)), *byte);
                    let few = naive[at..80.min(at + 7)].iter().any(|byte| *byte);
                    prop_assert_eq!(spans.overlaps(Span::of(at as u64, 7)), few);
                }
            }
        }
    }

    #[test]
    fn too_many_spans_become_one() {
        let mut spans = Spans::default();
        for at in 0..=MOST as u64 {
            spans.add(Span::of(at * 10, 5));
        }
        assert!(spans.overlaps(Span::of(7, 1)) && spans.spans.len() == 1);
        spans.remove(Span::ALL);
        assert!(spans.is_empty());
    }
}
