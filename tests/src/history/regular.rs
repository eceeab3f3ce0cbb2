//! The promise of mode commit for a cell: a regular register with `fsync`, `close` and `open`.
//!
//! A read may return the value of a write that started before the read ended, unless another write *replaced*
//! it and the reader *has to know* that other write. The reader has to know
//!
//! - a write that its writer synced or closed, if that call ended before the reader's open started;
//! - a write of its own mount that ended before the read started.
//!
//! A write is replaced by one that started when the first had been synced or closed by its writer, or, on the
//! same mount, had ended: otherwise two writes of two mounts are not ordered.

use super::op::{Answer, Call, How, NEVER, Op};

/// A write of the cell, or its initial value.
struct Written {
    value: u64,
    mount: Option<u32>,
    start: u64,
    /// When it returned, and when it was synced.
    end: u64,
    settled: u64,
    op: Option<usize>,
}

/// Reads that returned a value that they may not, each with the write they should have known, by their indices
/// in `ops`: all operations of one object, of which the reads and writes touch one cell.
pub fn contradictions(ops: &[Op]) -> Vec<Vec<usize>> {
    let writes = writes(ops);
    let mut found = Vec::new();
    for (index, op) in ops.iter().enumerate() {
        let (Call::Read { how, .. }, Answer::Values(values)) = (&op.call, &op.answer) else {
            continue;
        };
        let opened = match how {
            How::Selection => op.start,
            _ => opened(ops, op),
        };
        let known = |write: &Written| {
            write.settled < opened || (write.mount == Some(op.mount) && write.end < op.start)
        };
        let mut candidates = writes
            .iter()
            .filter(|write| write.value == values[0] && write.start <= op.end)
            .peekable();
        let mut evidence = vec![index];
        if candidates.peek().is_none() {
            found.push(evidence);
            continue;
        }
        let replaced = candidates.all(|write| {
            let by = writes
                .iter()
                .find(|other| known(other) && replaces(other, write));
            evidence.extend(write.op.iter().chain(by.and_then(|by| by.op.as_ref())));
            by.is_some()
        });
        if replaced {
            evidence.sort_unstable();
            found.push(evidence);
        }
    }
    found
}

fn replaces(new: &Written, old: &Written) -> bool {
    old.settled < new.start
        || (old.mount.is_some() && old.mount == new.mount && old.end < new.start)
}

fn writes(ops: &[Op]) -> Vec<Written> {
    let mut writes = vec![Written {
        value: 0,
        mount: None,
        start: 0,
        end: 0,
        settled: 0,
        op: None,
    }];
    for (index, op) in ops.iter().enumerate() {
        let Call::Write { value, how, .. } = op.call else {
            continue;
        };
        let settled = match how {
            _ if op.is_doubtful() => NEVER,
            How::Selection => op.end,
            _ => settled(ops, op),
        };
        writes.push(Written {
            value,
            mount: Some(op.mount),
            start: op.start,
            end: if op.is_doubtful() { NEVER } else { op.end },
            settled,
            op: Some(index),
        });
    }
    writes
}

/// When the last open of the process before a read started.
fn opened(ops: &[Op], read: &Op) -> u64 {
    let opens = ops
        .iter()
        .filter(|op| op.call == Call::Open && op.process == read.process && op.end <= read.start);
    opens.map(|op| op.start).max().unwrap_or(0)
}

/// When the first sync or close of the process after a write had returned.
fn settled(ops: &[Op], write: &Op) -> u64 {
    let syncs = ops.iter().filter(|op| {
        matches!(op.call, Call::Sync | Call::Close)
            && op.process == write.process
            && op.start >= write.end
            && !op.is_doubtful()
    });
    syncs.map(|op| op.end).min().unwrap_or(NEVER)
}
