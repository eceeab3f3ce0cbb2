//! Shrinks a history that no order explains, to make the contradiction readable.
//!
//! Invariant: the result contradicts itself only if the input does. Operations that began after the one where
//! the search got stuck are removed; then, in halves and smaller parts, all that can be removed without
//! changing what others may see: reads, and writes whose value no read returned.

use super::cells::seen;
use super::linear::{Model, Verdict, search};
use super::op::{Call, NEVER, Op};

/// A subset of `ops` that contradicts itself as well; `stuck` is where the search of all of them ended.
pub fn shrink<M: Model>(model: &M, ops: &[Op], stuck: usize) -> Vec<Op> {
    let cut = cut(ops, ops[stuck].end);
    let fails = |ops: &[Op]| matches!(search(model, ops), Verdict::Stuck(_));
    let mut rest = if fails(&cut) { cut } else { ops.to_vec() };
    let mut step = rest.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < rest.len() {
            let until = (at + step).min(rest.len());
            let less = without(&rest, at, until);
            if less.len() < rest.len() && fails(&less) {
                at = until - (rest.len() - less.len());
                rest = less;
            } else {
                at = until;
            }
        }
        if step == 1 {
            return rest;
        }
        step = step.div_ceil(2);
    }
}

/// The operations that had begun at an instant; those that had not ended then may not have happened.
fn cut(ops: &[Op], instant: u64) -> Vec<Op> {
    let begun = ops.iter().filter(|op| op.start <= instant);
    let open = |op: &Op| op.end > instant;
    begun
        .filter(|op| !(open(op) && op.only_looks()))
        .map(|op| Op {
            end: if open(op) { NEVER } else { op.end },
            ..op.clone()
        })
        .collect()
}

/// `ops` without those from `at` to `until` that can be removed: first reads, and then writes that no read
/// returned.
fn without(ops: &[Op], at: usize, until: usize) -> Vec<Op> {
    let inside = |index: &usize| (at..until).contains(index);
    let keep = |keep: &dyn Fn(&Op) -> bool, ops: Vec<(usize, Op)>| -> Vec<(usize, Op)> {
        ops.into_iter()
            .filter(|(index, op)| !inside(index) || keep(op))
            .collect()
    };
    let all = ops.iter().cloned().enumerate().collect();
    let rest = keep(&|op| !op.only_looks(), all);
    let left: Vec<Op> = rest.iter().map(|(_, op)| op.clone()).collect();
    let seen = seen(&left);
    // An append moves later ones; only a write of cells leaves no trace.
    let traceless =
        |op: &Op| matches!(&op.call, Call::Write { value, .. } if !seen.contains(value));
    keep(&|op| !traceless(op), rest)
        .into_iter()
        .map(|(_, op)| op)
        .collect()
}
