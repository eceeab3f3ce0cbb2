//! Names of one directory: the file that each of them refers to.

use std::collections::BTreeMap;

use super::linear::Model;
use super::op::{Answer, Call, Op};

/// A directory, empty to begin with.
#[derive(Debug, Clone, Copy)]
pub struct Directory;

/// Stands for the file of a creation that may not have happened: the first look-up determines it.
const ANY: u64 = 0;

impl Model for Directory {
    type State = BTreeMap<String, u64>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, state: &Self::State, op: &Op) -> Option<Self::State> {
        let refused = matches!(op.answer, Answer::Refused(_));
        let mut after = state.clone();
        match &op.call {
            Call::Create { name } => {
                if refused {
                    return state.contains_key(name).then_some(after);
                }
                let file = match op.answer {
                    Answer::File(file) => file,
                    _ => ANY,
                };
                after.insert(name.clone(), file).is_none().then_some(after)
            }
            Call::Unlink { name } => {
                let was = after.remove(name).is_some();
                (was != refused).then_some(after)
            }
            Call::Rename { from, to } => match after.remove(from) {
                // The kernel looks both names up, one after the other, and does nothing if both are of one
                // file: another process may have renamed it from the one to the other in between.
                None => (refused || state.contains_key(to)).then_some(after),
                Some(_) if refused => None,
                Some(file) => {
                    after.insert(to.clone(), file);
                    Some(after)
                }
            },
            Call::Look { name } => match (state.get(name), &op.answer) {
                (None, Answer::Refused(_)) => Some(after),
                (Some(&known), Answer::File(file)) if known == *file => Some(after),
                (Some(&ANY), Answer::File(file)) => {
                    after.insert(name.clone(), *file);
                    Some(after)
                }
                (_, Answer::Unknown(_)) => Some(after),
                _ => None,
            },
            _ => Some(after),
        }
    }
}
