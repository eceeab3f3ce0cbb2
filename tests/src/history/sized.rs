//! A byte object of records: appended to, cut, made longer, looked at and read whole.

use super::linear::Model;
use super::op::{Answer, Call, Op};

/// Records, none to begin with.
#[derive(Debug, Clone, Copy)]
pub struct Records;

impl Model for Records {
    type State = Vec<u64>;

    fn initial(&self) -> Vec<u64> {
        Vec::new()
    }

    fn step(&self, state: &Vec<u64>, op: &Op) -> Option<Vec<u64>> {
        match (&op.call, &op.answer) {
            (Call::Append { value }, answer) => {
                let fits = match answer {
                    Answer::Number(place) => *place == state.len() as u64,
                    _ => true,
                };
                fits.then(|| state.iter().chain([value]).copied().collect())
            }
            (Call::Resize { records }, _) => {
                let mut state = state.clone();
                state.resize(*records as usize, 0);
                Some(state)
            }
            (Call::Size, Answer::Number(records)) => {
                (*records == state.len() as u64).then(|| state.clone())
            }
            (Call::ReadAll, Answer::Values(values)) => (values == state).then(|| state.clone()),
            _ => Some(state.clone()),
        }
    }
}
