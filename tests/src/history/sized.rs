//! A byte object of records: appended to, truncated, extended, and read completely.
//!
//! Each record has a unique value, so a read that returned it reveals the place at which it was appended, at
//! any time; and records that no read has returned are equivalent. With that a search need not try the orders
//! of appends that differ only in unread records, or that a later read contradicts: of twenty appends with only
//! sizes in between there are more than it can try.

use std::collections::HashMap;

use super::linear::Model;
use super::op::{Answer, Call, Op};

/// Stands in a state for every record that no read has returned. No read value is equal to it.
const UNSEEN: u64 = u64::MAX - 1;

/// Records, none to begin with.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Where reads have seen each record; `None`: not known.
    places: Option<HashMap<u64, usize>>,
}

impl Records {
    /// With the knowledge from the reads of a history.
    pub fn of(ops: &[Op]) -> Records {
        let mut places = HashMap::new();
        for op in ops {
            if let (Call::ReadAll, Answer::Values(values)) = (&op.call, &op.answer) {
                // At different places in two reads: one of them contradicts any state.
                places.extend(values.iter().enumerate().map(|(at, &value)| (value, at)));
            }
        }
        // The fill of an extended file.
        places.remove(&0);
        Records {
            places: Some(places),
        }
    }

    /// The value in the state for a record that is appended at `place`; `None` if it was not appended there.
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
