//! Generated histories: valid ones, of objects that one process used, with the operations moved in time as far
//! as possible; and all orders of short ones, tried one by one.

use super::linear::Model;
use super::op::{Answer, Call, How, NEVER, Op};
use crate::Random;

/// An operation of cells.
pub(super) fn op(process: u32, (start, end): (u64, u64), call: Call, answer: Answer) -> Op {
    let object = "x".to_owned();
    Op {
        process,
        mount: process,
        start,
        end,
        object,
        call,
        answer,
    }
}

/// A write of one cell.
pub(super) fn write(process: u32, times: (u64, u64), cell: u32, value: u64) -> Op {
    let call = Call::Write {
        cells: vec![cell],
        value,
        how: How::Call,
    };
    op(process, times, call, Answer::Done)
}

/// A read of one cell.
pub(super) fn read(process: u32, times: (u64, u64), cell: u32, value: u64) -> Op {
    let call = Call::Read {
        cells: vec![cell],
        how: How::Call,
    };
    op(process, times, call, Answer::Values(vec![value]))
}

/// A call and its right answer, on an object whose complete state is `state`.
pub(super) type Step<S> = fn(&mut Random, &mut S, u64) -> (Call, Answer);

/// A history of `len` operations by `processes`, each of which happened at one instant between its start and
/// its end; in the order of those instants.
pub(super) fn history<S: Default>(
    random: &mut Random,
    processes: u32,
    len: u64,
    step: Step<S>,
) -> Vec<Op> {
    let mut state = S::default();
    let mut free = vec![0; processes as usize];
    let mut ops: Vec<Op> = Vec::new();
    let mut instants: Vec<u64> = Vec::new();
    for number in 0..len {
        let instant = (number + 1) * 1000;
        let process = random.range(0, u64::from(processes)) as u32;
        let (call, answer) = step(random, &mut state, number + 1);
        // As early as the process is free, overlapping a limited number of operations of others.
        let earliest: u64 = free[process as usize] + 1;
        let start = random.range(earliest.max(instant.saturating_sub(5000)), instant + 1);
        let end = instant + random.range(0, 5000);
        if let Some(before) = ops.iter().rposition(|op| op.process == process) {
            // The earlier operation ended when this one began.
            ops[before].end = ops[before].end.min(start.max(instants[before] + 1) - 1);
        }
        free[process as usize] = instant;
        instants.push(instant);
        ops.push(op(process, (start, end), call, answer));
    }
    ops
}

/// Cells: reads and writes of one or several.
pub(super) fn cells(random: &mut Random, state: &mut Vec<u64>, number: u64) -> (Call, Answer) {
    state.resize(4, 0);
    let from = random.range(0, 4);
    let cells: Vec<u32> = (from as u32..random.range(from, 4) as u32 + 1).collect();
    let how = How::Call;
    if random.one_in(2) {
        cells.iter().for_each(|&cell| state[cell as usize] = number);
        (
            Call::Write {
                cells,
                value: number,
                how,
            },
            Answer::Done,
        )
    } else {
        let values = cells.iter().map(|&cell| state[cell as usize]).collect();
        (Call::Read { cells, how }, Answer::Values(values))
    }
}

/// Records: appended, truncated, read.
pub(super) fn records(random: &mut Random, state: &mut Vec<u64>, number: u64) -> (Call, Answer) {
    match random.range(0, 8) {
        0..4 => {
            state.push(number);
            (
                Call::Append { value: number },
                Answer::Number(state.len() as u64 - 1),
            )
        }
        4 => {
            let records = random.range(0, 4);
            state.resize(records as usize, 0);
            (Call::Resize { records }, Answer::Done)
        }
        5 => (Call::Size, Answer::Number(state.len() as u64)),
        _ => (Call::ReadAll, Answer::Values(state.clone())),
    }
}

/// Names of a directory.
pub(super) fn names(
    random: &mut Random,
    state: &mut std::collections::HashMap<String, u64>,
    number: u64,
) -> (Call, Answer) {
    let name = (*random.pick(&["a", "b", "c"])).to_owned();
    let no = Answer::Refused("no".to_owned());
    match random.range(0, 6) {
        0..2 if state.contains_key(&name) => (Call::Create { name }, no),
        0..2 => {
            state.insert(name.clone(), number);
            (Call::Create { name }, Answer::File(number))
        }
        2 => match state.remove(&name) {
            Some(_) => (Call::Unlink { name }, Answer::Done),
            None => (Call::Unlink { name }, no),
        },
        3 => {
            let to = if name == "a" { "b" } else { "a" }.to_owned();
            match state.remove(&name) {
                Some(file) => {
                    state.insert(to.clone(), file);
                    (Call::Rename { from: name, to }, Answer::Done)
                }
                None => (Call::Rename { from: name, to }, no),
            }
        }
        _ => {
            let answer = state.get(&name).map_or(no, |&file| Answer::File(file));
            (Call::Look { name }, answer)
        }
    }
}

/// Whether any order of these few operations is valid: all are tried.
pub(super) fn any_order<M: Model>(model: &M, state: &M::State, left: &[Op]) -> bool {
    if left.iter().all(Op::is_doubtful) {
        return true;
    }
    (0..left.len()).any(|first| {
        let op = &left[first];
        // Operations that ended before it began come before it.
        let may = left
            .iter()
            .all(|other| other.is_doubtful() || other.end >= op.start);
        let rest = [&left[..first], &left[first + 1..]].concat();
        may && model
            .step(state, op)
            .is_some_and(|after| any_order(model, &after, &rest))
    })
}

/// Makes some of them operations that never returned.
pub(super) fn forget(random: &mut Random, ops: &mut [Op]) {
    for op in ops.iter_mut().filter(|op| !op.only_looks()) {
        if random.one_in(6) {
            (op.end, op.answer) = (NEVER, Answer::Unknown("killed".to_owned()));
        }
    }
}
