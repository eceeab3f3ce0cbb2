//! Makes a history that nothing explains as small as it gets, so that a person can see why.
//!
//! Kept true: what is left contradicts itself only if the whole does. What began after the operation where
//! the search got stuck goes; then, in halves and smaller parts, all that may be left out without changing
//! what others may see: those that only look, and writes whose value no read has seen.

use super::cells::seen;
use super::linear::{Model, Verdict, search};
use super::op::{Call, NEVER, Op};

/// A part of `ops` that contradicts itself as well; `stuck` is where the search of all gave up.
pub fn shrink<M: Model>(model: &M, ops: &[Op], stuck: usize) -> Vec<Op> {
    let cut = cut(ops, ops[stuck].end);
    let fails = |ops: &[Op]| matches!(search(model, ops), Verdict::Stuck(_));
    let mut kept = if fails(&cut) { cut } else { ops.to_vec() };
    let mut step = kept.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < kept.len() {
            let until = (at + step).min(kept.len());
            let less = without(&kept, at, until);
            if less.len() < kept.len() && fails(&less) {
                at = until - (kept.len() - less.len());
                kept = less;
            } else {
                at = until;
            }
        }
        if step == 1 {
            return kept;
        }
        step = step.div_ceil(2);
    }
}

/// What had begun at an instant; what had not ended then may not have happened.
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

/// Without those from `at` to `until` that may be left out: looks first, and then writes nobody has seen.
fn without(ops: &[Op], at: usize, until: usize) -> Vec<Op> {
    let inside = |index: &usize| (at..until).contains(index);
    let keep = |keep: &dyn Fn(&Op) -> bool, ops: Vec<(usize, Op)>| -> Vec<(usize, Op)> {
        ops.into_iter()
            .filter(|(index, op)| !inside(index) || keep(op))
            .collect()
    };
    let all = ops.iter().cloned().enumerate().collect();
    let kept = keep(&|op| !op.only_looks(), all);
    let left: Vec<Op> = kept.iter().map(|(_, op)| op.clone()).collect();
    let seen = seen(&left);
    // An append moves those behind it; only cells are written without a trace.
    let traceless =
        |op: &Op| matches!(&op.call, Call::Write { value, .. } if !seen.contains(value));
    keep(&|op| !traceless(op), kept)
        .into_iter()
        .map(|(_, op)| op)
        .collect()
}
