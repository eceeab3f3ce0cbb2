//! Checks a complete history: divides it into independent objects and cells, runs the check for each kind, and
//! shows violations.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::cells::{self, Cells};
use super::linear::{Model, Verdict, search};
use super::names::Directory;
use super::op::{Call, How, NEVER, Op};
use super::shrink::shrink;
use super::sized::Records;
use super::{locks, regular};

/// The consistency that the mounts promise each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Promise {
    /// As on one machine.
    Strict,
    /// Other mounts see data after `fsync` or `close`, from their next open on.
    Commit,
}

/// Operations of one object that no order explains.
#[derive(Debug, Clone)]
pub struct Violation {
    /// The object.
    pub object: String,
    /// The broken rule.
    pub what: String,
    /// A small subset of them that shows it.
    pub ops: Vec<Op>,
}

/// All violations in a history, one per object and kind of promise.
pub fn check(ops: &[Op], promise: Promise) -> Vec<Violation> {
    let mut objects: BTreeMap<&str, Vec<Op>> = BTreeMap::new();
    for op in ops {
        // A read without a reply gives no information.
        if !(op.is_doubtful() && op.only_looks()) {
            objects.entry(&op.object).or_default().push(op.clone());
        }
    }
    let mut found = Vec::new();
    for (object, mut ops) in objects {
        ops.sort_by_key(|op| op.start);
        let has = |kind: fn(&Call) -> bool| ops.iter().any(|op| kind(&op.call));
        let mut wrong: Vec<(String, Vec<Op>)> = Vec::new();
        if has(|call| matches!(call, Call::Lock { .. })) {
            wrong.extend(one_of(
                "locks that exclude",
                &ops,
                locks::contradictions(&ops),
            ));
        }
        if has(of_names) {
            wrong.extend(ordered("a directory", &Directory, &ops));
        }
        if has(of_records) && promise == Promise::Strict {
            // Shrunk with a model that ignores what reads reveal, because shrinking omits some of them.
            let (known, plain) = (Records::of(&ops), Records::default());
            wrong.extend(ordered_by("a file of records", (&known, &plain), &ops));
        }
        if has(|call| matches!(call, Call::Write { .. } | Call::Read { .. })) {
            wrong.extend(match promise {
                Promise::Strict => strict_cells(&ops),
                Promise::Commit => commit_cells(&ops),
            });
        }
        found.extend(wrong.into_iter().map(|(what, ops)| Violation {
            object: object.to_owned(),
            what,
            ops,
        }));
    }
    found
}

fn of_names(call: &Call) -> bool {
    use Call::{Create, Look, Rename, Unlink};
    matches!(
        call,
        Create { .. } | Look { .. } | Rename { .. } | Unlink { .. }
    )
}

fn of_records(call: &Call) -> bool {
    use Call::{Append, ReadAll, Resize, Size};
    matches!(call, Append { .. } | Resize { .. } | Size | ReadAll)
}

/// The first contradiction of several.
fn one_of(what: &str, ops: &[Op], found: Vec<Vec<usize>>) -> Option<(String, Vec<Op>)> {
    let first = found.first()?;
    let evidence = first.iter().map(|&index| ops[index].clone()).collect();
    Some((
        format!("not {what} ({} such places)", found.len()),
        evidence,
    ))
}

fn ordered<M: Model>(what: &str, model: &M, ops: &[Op]) -> Option<(String, Vec<Op>)> {
    ordered_by(what, (model, model), ops)
}

/// With a model to search by, and one to shrink the contradiction by.
fn ordered_by<M: Model>(
    what: &str,
    (model, small): (&M, &M),
    ops: &[Op],
) -> Option<(String, Vec<Op>)> {
    match search(model, ops) {
        Verdict::Fine => None,
        Verdict::Stuck(at) => {
            let what = format!("no order of them is one of {what} that one process uses");
            Some((what, shrink(small, ops, at)))
        }
        Verdict::TooHard => {
            let what = format!("too many orders of {what} to try; make fewer operations overlap");
            Some((what, Vec::new()))
        }
    }
}

fn strict_cells(ops: &[Op]) -> Option<(String, Vec<Op>)> {
    let mut first = None;
    let mut wrong = Vec::new();
    for cell in Cells::of(ops).numbers() {
        let of_cell = cells::of_one(ops, cell);
        let found = ordered("a cell", &Cells::of(&of_cell), &of_cell);
        if found.is_some() {
            wrong.push(cell);
            first = first.or(found);
        }
    }
    if let Some((what, ops)) = first {
        return Some((format!("{what}; wrong are cells {wrong:?}"), ops));
    }
    None
}

/// Whether one `read` sees one `write` completely or not at all: the arrays of a history, all cells of one
/// together. Not for mappings: the kernel fetches and writes pages independently.
pub fn check_atomic(ops: &[Op]) -> Vec<Violation> {
    let mut objects: BTreeMap<&str, Vec<Op>> = BTreeMap::new();
    for op in ops.iter().filter(|op| !cells::touched(op).is_empty()) {
        if !(op.is_doubtful() && op.only_looks()) {
            objects.entry(&op.object).or_default().push(op.clone());
        }
    }
    let mapped = |op: &Op| match op.call {
        Call::Write { how, .. } | Call::Read { how, .. } => how == How::Mapped,
        _ => false,
    };
    let unmapped = objects
        .into_iter()
        .filter(|(_, ops)| !ops.iter().any(mapped));
    unmapped
        .filter_map(|(object, ops)| {
            let what = "an array with reads and writes of several cells at once";
            let (what, ops) = ordered(what, &Cells::of(&ops), &ops)?;
            Some(Violation {
                object: object.to_owned(),
                what,
                ops,
            })
        })
        .collect()
}

fn commit_cells(ops: &[Op]) -> Option<(String, Vec<Op>)> {
    let handles: Vec<Op> = ops
        .iter()
        .filter(|op| matches!(op.call, Call::Open | Call::Sync | Call::Close))
        .cloned()
        .collect();
    let what = "what was known when they were opened";
    Cells::of(ops).numbers().into_iter().find_map(|cell| {
        let mut of_cell = cells::of_one(ops, cell);
        of_cell.extend(handles.iter().cloned());
        of_cell.sort_by_key(|op| op.start);
        let found = one_of(what, &of_cell, regular::contradictions(&of_cell));
        found.map(|(what, ops)| (format!("cell {cell}: {what}"), ops))
    })
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.object, self.what)?;
        let zero = self.ops.iter().map(|op| op.start).min().unwrap_or(0);
        for op in &self.ops {
            let start = (op.start - zero) as f64 / 1000.0;
            write!(f, "  {start:>12.1} us to ")?;
            match op.end {
                NEVER => write!(f, "{:>15}", "?")?,
                end => write!(f, "{:>12.1} us", (end - zero) as f64 / 1000.0)?,
            }
            writeln!(
                f,
                "  process {} mount {}  {:?} -> {:?}",
                op.process, op.mount, op.call, op.answer
            )?;
        }
        Ok(())
    }
}
