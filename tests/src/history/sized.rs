//! A byte object of records: appended to, cut, made longer, looked at and read whole.
//!
//! Each record has a value of its own, so a read that saw it tells at which place it was appended, whenever that
//! was; and those that no read has seen are alike. A search that knows this need not try the orders of appends that
//! differ in nothing anybody saw, or that a later read contradicts: of twenty appends with nothing but sizes asked in
//! between there are more than it has patience for.

use std::collections::HashMap;

use super::linear::Model;
use super::op::{Answer, Call, Op};

/// Stands in a state for every record that no read has seen. Nothing that is read is equal to it.
const UNSEEN: u64 = u64::MAX - 1;

/// Records, none to begin with.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Where reads have seen each record; `None`: what they saw is not known.
    places: Option<HashMap<u64, usize>>,
}

impl Records {
    /// With what the reads of a history tell.
    pub fn of(ops: &[Op]) -> Records {
        let mut places = HashMap::new();
        for op in ops {
            if let (Call::ReadAll, Answer::Values(values)) = (&op.call, &op.answer) {
                // At another place in another read: that one contradicts whatever the state is by then.
                places.extend(values.iter().enumerate().map(|(at, &value)| (value, at)));
            }
        }
        // What a file that was made longer is filled with.
        places.remove(&0);
        Records {
            places: Some(places),
        }
    }

    /// What stands in the state for a record that is appended at `place`; `None` if it was not appended there.
    fn appended(&self, value: u64, place: usize) -> Option<u64> {
        match &self.places {
            Some(places) if value != 0 => match places.get(&value) {
                Some(&seen) => (seen == place).then_some(value),
                None => Some(UNSEEN),
            },
            _ => Some(value),
        }
    }
}

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
                let record = self.appended(*value, state.len()).filter(|_| fits)?;
                Some(state.iter().copied().chain([record]).collect())
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
