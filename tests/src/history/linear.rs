//! The search for an order: Wing and Gong's algorithm with Lowe's cache of tried states, as in Porcupine (Anish
//! Athalye).
//!
//! Starts and ends of the operations are in a list ordered by time. The search takes the first operation whose
//! start precedes every end and whose answer fits the state, removes it from the list, and continues with the
//! rest; at the end of an operation that was not taken yet it has to put the last one back and try the next. A
//! combination that was reached before (the set of operations taken, and the state) is not tried again: that
//! bounds the work by the number of concurrent operations, not of all.
//!
//! Operations that may not have happened have no end in the list: they can be taken at any time after their
//! start, or not at all.

use std::collections::HashSet;
use std::hash::Hash;

use super::op::Op;

/// The sequential specification of an object.
pub trait Model {
    /// Everything that its answers depend on.
    type State: Clone + Eq + Hash;

    /// Before the first operation.
    fn initial(&self) -> Self::State;

    /// After the operation; `None` if the object would have answered differently.
    fn step(&self, state: &Self::State, op: &Op) -> Option<Self::State>;
}

/// The result of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Fine,
    /// There is none; no attempt got past the end of this operation, given by its index.
    Stuck(usize),
    /// The search was given up.
    TooHard,
}

/// States after which a search is given up: far more than any history of these workers needs.
pub const PATIENCE: usize = 4_000_000;

const NONE: usize = usize::MAX;

/// Starts and ends in a list from which pairs are removed and put back.
struct Events {
    next: Vec<usize>,
    prev: Vec<usize>,
    /// The operation, and whether this is its end.
    of: Vec<(usize, bool)>,
    /// Of a start: its end, or [`NONE`].
    end: Vec<usize>,
}

/// The node before the first event.
const HEAD: usize = 0;

impl Events {
    fn new(ops: &[Op]) -> Events {
        let mut times: Vec<(u64, bool, usize)> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            times.push((op.start, false, index));
            if !op.is_doubtful() {
                times.push((op.end, true, index));
            }
        }
        // At the same instant starts come first: adjacent operations may have been concurrent.
        times.sort_unstable();
        let len = times.len() + 1;
        let mut events = Events {
            next: (1..=len)
                .map(|at| if at == len { NONE } else { at })
                .collect(),
            prev: (0..len).map(|at| at.wrapping_sub(1)).collect(),
            of: vec![(NONE, true); len],
            end: vec![NONE; len],
        };
        let mut starts = vec![NONE; ops.len()];
        for (at, (_, is_end, op)) in times.into_iter().enumerate() {
            events.of[at + 1] = (op, is_end);
            if is_end {
                events.end[starts[op]] = at + 1;
            } else {
                starts[op] = at + 1;
            }
        }
        events
    }

    fn unlink(&mut self, at: usize) {
        let (prev, next) = (self.prev[at], self.next[at]);
        self.next[prev] = next;
        if next != NONE {
            self.prev[next] = prev;
        }
    }

    fn link(&mut self, at: usize) {
        let (prev, next) = (self.prev[at], self.next[at]);
        self.next[prev] = at;
        if next != NONE {
            self.prev[next] = at;
        }
    }

    fn take(&mut self, start: usize) {
        self.unlink(start);
        if self.end[start] != NONE {
            self.unlink(self.end[start]);
        }
    }

    fn put_back(&mut self, start: usize) {
        if self.end[start] != NONE {
            self.link(self.end[start]);
        }
        self.link(start);
    }
}

/// A set of operations: nearly all of them up to some number, and few beyond.
struct Taken {
    words: Vec<u64>,
    /// Words before this one are full.
    full: usize,
}

impl Taken {
    fn set(&mut self, op: usize, taken: bool) {
        let (word, bit) = (op / 64, 1 << (op % 64));
        if taken {
            self.words[word] |= bit;
            while self.full < self.words.len() && self.words[self.full] == u64::MAX {
                self.full += 1;
            }
        } else {
            self.words[word] &= !bit;
            self.full = self.full.min(word);
        }
    }

    /// A short key that is equal for equal sets.
    fn key(&self) -> (usize, Box<[u64]>) {
        let rest = &self.words[self.full..];
        let used = rest
            .iter()
            .rposition(|&word| word != 0)
            .map_or(0, |at| at + 1);
        (self.full, rest[..used].into())
    }
}

/// Searches for an order of `ops` that `model` explains.
pub fn search<M: Model>(model: &M, ops: &[Op]) -> Verdict {
    // By their starts, so that the taken operations are a prefix and few more.
    let mut order: Vec<usize> = (0..ops.len()).collect();
    order.sort_by_key(|&index| ops[index].start);
    let sorted: Vec<Op> = order.iter().map(|&index| ops[index].clone()).collect();
    match search_sorted(model, &sorted) {
        Verdict::Stuck(index) => Verdict::Stuck(order[index]),
        verdict => verdict,
    }
}

fn search_sorted<M: Model>(model: &M, ops: &[Op]) -> Verdict {
    let mut events = Events::new(ops);
    let mut left = ops.iter().filter(|op| !op.is_doubtful()).count();
    let mut taken = Taken {
        words: vec![0; ops.len().div_ceil(64)],
        full: 0,
    };
    let mut seen = HashSet::new();
    let mut path: Vec<(usize, M::State)> = Vec::new();
    let mut state = model.initial();
    let mut at = events.next[HEAD];
    let mut furthest = HEAD;
    while left > 0 {
        let (op, is_end) = if at == NONE {
            (NONE, true)
        } else {
            events.of[at]
        };
        if !is_end {
            if let Some(after) = model.step(&state, &ops[op]) {
                taken.set(op, true);
                let (full, rest) = taken.key();
                if seen.insert((full, rest, after.clone())) {
                    path.push((at, std::mem::replace(&mut state, after)));
                    events.take(at);
                    left -= usize::from(!ops[op].is_doubtful());
                    at = events.next[HEAD];
                    if seen.len() > PATIENCE {
                        return Verdict::TooHard;
                    }
                    continue;
                }
                taken.set(op, false);
            }
            at = events.next[at];
            continue;
        }
        if at != NONE {
            furthest = furthest.max(at);
        }
        let Some((start, before)) = path.pop() else {
            return Verdict::Stuck(events.of[furthest].0);
        };
        let op = events.of[start].0;
        state = before;
        taken.set(op, false);
        left += usize::from(!ops[op].is_doubtful());
        events.put_back(start);
        at = events.next[start];
    }
    Verdict::Fine
}
