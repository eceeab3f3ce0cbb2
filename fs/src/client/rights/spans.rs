//! Bytes of an object, as the kernel's pages and the writes beside them name them. Pure.
//!
//! A span is of the plain object's bytes. What is asked for through a selection, or lies where nobody knows
//! before it is done (an append), is taken for everything. Nothing is rounded to pages: the kernel reads whole
//! ones, so who touches a byte of a page overlaps what was read of it.

/// `[from, to)` in bytes of the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::client) struct Span {
    pub(in crate::client) from: u64,
    pub(in crate::client) to: u64,
}

impl Span {
    /// Wherever it is.
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

/// More spans than this become one: who maps a file here and there pays with drops that were not needed.
const MOST: usize = 256;

/// A set of bytes.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Spans {
    /// In order; they do not touch.
    spans: Vec<Span>,
}

impl Spans {
    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.spans.clear();
    }

    /// Whether a byte of `span` is in it.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        let at = self.spans.partition_point(|one| one.to <= span.from);
        self.spans.get(at).is_some_and(|one| one.overlaps(span))
    }

    /// Puts `span` in.
    pub(super) fn add(&mut self, span: Span) {
        if span.from >= span.to {
            return;
        }
        let first = self.spans.partition_point(|one| one.to < span.from);
        let last = self.spans.partition_point(|one| one.from <= span.to);
        let mut whole = span;
        if let [one, ..] = self.spans[first..last.max(first)] {
            whole.from = whole.from.min(one.from);
        }
        if let [.., one] = self.spans[first..last.max(first)] {
            whole.to = whole.to.max(one.to);
        }
        self.spans.splice(first..last.max(first), [whole]);
        if let ([first, ..], [.., last]) = (&*self.spans, &*self.spans)
            && self.spans.len() > MOST
        {
            self.spans = vec![Span {
                from: first.from,
                to: last.to,
            }];
        }
    }

    /// Takes `span` out.
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
        fn they_are_a_set_of_bytes(steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 1..60)) {
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
    fn too_many_become_one() {
        let mut spans = Spans::default();
        for at in 0..=MOST as u64 {
            spans.add(Span::of(at * 10, 5));
        }
        assert!(spans.overlaps(Span::of(7, 1)) && spans.spans.len() == 1);
        spans.remove(Span::ALL);
        assert!(spans.is_empty());
    }
}
