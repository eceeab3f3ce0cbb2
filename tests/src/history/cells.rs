//! Cells of an array that are written and read: registers, or one register of several cells.

use std::collections::HashMap;

use super::linear::Model;
use super::op::{Answer, Call, Op};

/// Cells that begin as zero.
#[derive(Debug, Clone)]
pub struct Cells {
    places: HashMap<u32, usize>,
}

impl Cells {
    /// Those that occur in `ops`.
    pub fn of(ops: &[Op]) -> Cells {
        let mut places = HashMap::new();
        for op in ops {
            for &cell in touched(op) {
                let next = places.len();
                places.entry(cell).or_insert(next);
            }
        }
        Cells { places }
    }

    /// Their numbers, in order.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.places.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}

/// The cells an operation reads or writes.
pub fn touched(op: &Op) -> &[u32] {
    match &op.call {
        Call::Write { cells, .. } | Call::Read { cells, .. } => cells,
        _ => &[],
    }
}

/// The operations on one cell alone; other operations stay in the list without a cell.
pub fn of_one(ops: &[Op], cell: u32) -> Vec<Op> {
    let one = |op: &Op| -> Option<Op> {
        let place = touched(op).iter().position(|&other| other == cell)?;
        let mut op = op.clone();
        match &mut op.call {
            Call::Write { cells, .. } | Call::Read { cells, .. } => *cells = vec![cell],
            _ => return None,
        }
        if let Answer::Values(values) = &mut op.answer {
            *values = vec![values[place]];
        }
        Some(op)
    };
    ops.iter().filter_map(one).collect()
}

/// Values that reads in `ops` returned.
pub fn seen(ops: &[Op]) -> std::collections::HashSet<u64> {
    let values = |op: &Op| match &op.answer {
        Answer::Values(values) => values.clone(),
        _ => Vec::new(),
    };
    ops.iter().flat_map(values).collect()
}

impl Model for Cells {
    type State = Vec<u64>;

    fn initial(&self) -> Vec<u64> {
        vec![0; self.places.len()]
    }

    fn step(&self, state: &Vec<u64>, op: &Op) -> Option<Vec<u64>> {
        match (&op.call, &op.answer) {
            (Call::Write { cells, value, .. }, _) => {
                let mut state = state.clone();
                for cell in cells {
                    state[self.places[cell]] = *value;
                }
                Some(state)
            }
            (Call::Read { cells, .. }, Answer::Values(values)) => {
                let fits = |(cell, value): (&u32, &u64)| state[self.places[cell]] == *value;
                (cells.len() == values.len() && cells.iter().zip(values).all(fits))
                    .then(|| state.clone())
            }
            _ => Some(state.clone()),
        }
    }
}
