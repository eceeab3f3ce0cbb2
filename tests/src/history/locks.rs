//! Locks: no two processes hold conflicting locks, and no free lock is refused.
//!
//! A lock is held for certain from the end of the call that acquired it to the start of the call that released
//! it, and perhaps from the start of the first to the end of the second. If a process never releases it, it is
//! held for certain only until its last operation.

use super::op::{Answer, Call, NEVER, Op};

/// One acquired lock.
#[derive(Debug, Clone)]
struct Hold {
    by: u32,
    first: u64,
    last: u64,
    exclusive: bool,
    certain: (u64, u64),
    perhaps: (u64, u64),
    /// The operation that acquired it.
    op: usize,
}

impl Hold {
    fn excludes(&self, by: u32, first: u64, last: u64, exclusive: bool) -> bool {
        self.by != by && (self.exclusive || exclusive) && self.first <= last && first <= self.last
    }
}

/// Sets of operations that contradict each other, by their indices; all are of one object.
pub fn contradictions(ops: &[Op]) -> Vec<Vec<usize>> {
    let holds = holds(ops);
    let mut found = Vec::new();
    for (at, hold) in holds.iter().enumerate() {
        for other in &holds[at + 1..] {
            let together = hold.certain.0 < other.certain.1 && other.certain.0 < hold.certain.1;
            if together && hold.excludes(other.by, other.first, other.last, other.exclusive) {
                found.push(vec![hold.op, other.op]);
            }
        }
    }
    for (index, op) in ops.iter().enumerate() {
        let (Call::Lock { exclusive, .. }, Answer::Refused(_)) = (&op.call, &op.answer) else {
            continue;
        };
        let (first, last) = range(&op.call);
        let excused = holds.iter().any(|hold| {
            let then = hold.perhaps.0 <= op.end && op.start <= hold.perhaps.1;
            then && hold.excludes(op.process, first, last, *exclusive)
        });
        if !excused {
            found.push(vec![index]);
        }
    }
    found
}

fn range(call: &Call) -> (u64, u64) {
    match call {
        Call::Lock { first, len, .. } => (*first, first + len - 1),
        _ => (1, 0),
    }
}

fn holds(ops: &[Op]) -> Vec<Hold> {
    let mut holds = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let Call::Lock { exclusive, .. } = op.call else {
            continue;
        };
        if matches!(op.answer, Answer::Refused(_)) {
            continue;
        }
        let mine = || ops.iter().filter(|other| other.process == op.process);
        let given = mine()
            .filter(|other| other.call == Call::Unlock && other.start >= op.end)
            .min_by_key(|other| other.start);
        let last_seen = mine().map(|other| other.start).max().unwrap_or(0);
        let (first, last) = range(&op.call);
        // A lock that may not have been acquired is held for certain at no time.
        let from = if op.is_doubtful() { NEVER } else { op.end };
        let doubtful = |unlock: &&Op| unlock.is_doubtful();
        holds.push(Hold {
            by: op.process,
            first,
            last,
            exclusive,
            certain: (from, given.map_or(last_seen, |unlock| unlock.start)),
            perhaps: (
                op.start,
                given
                    .filter(|unlock| !doubtful(unlock))
                    .map_or(NEVER, |unlock| unlock.end),
            ),
            op: index,
        });
    }
    holds
}
