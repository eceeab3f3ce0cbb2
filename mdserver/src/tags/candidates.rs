//! The inodes in a branch of a plan, one at a time, from any place on.

use slabfs_model::ObjectId;

use super::entry::ino_of;
use super::index::Iter;
use super::live::Live;
use super::plan::{Branch, Part};
use crate::api::{Ino, MdError};

/// Steps of a join between two looks at the clock.
const STEPS: usize = 1024;

/// Bytes of the number at the end of an entry.
const INO: usize = 8;

/// A reader of a branch.
pub(super) enum Candidates<'a> {
    /// Entries of one range.
    Range { live: &'a Live, iter: Iter },
    /// What is in all of these postings.
    Join {
        live: &'a Live,
        postings: Vec<Posting>,
        /// Nothing below this is wanted any more.
        at: u64,
    },
    /// There is nothing.
    Nothing,
}

/// A posting: entries that differ in the number only.
pub(super) struct Posting {
    iter: Iter,
    /// What they have in common, and room for a number.
    key: Vec<u8>,
}

/// What reading on brings.
pub(super) enum Step {
    /// A candidate; where it stands is in the caller's buffer.
    Candidate(Ino),
    /// None yet; where the reader stands is in the caller's buffer.
    Pause,
    /// No more.
    End,
}

impl<'a> Candidates<'a> {
    /// Begins behind `after`, a place that [`Candidates::next`] told.
    pub(super) fn new(live: &'a Live, branch: &Branch, after: &[u8]) -> Result<Self, MdError> {
        match &branch[..] {
            [] => Ok(Self::Nothing),
            [Part { from, to, .. }] => {
                let behind = [after, &[0]].concat();
                let from = if after.is_empty() { from } else { &behind };
                let iter = live.iter(from.max(&branch[0].from), to)?;
                Ok(Self::Range { live, iter })
            }
            parts => {
                let at = match after.try_into() {
                    Ok(ino) => u64::from_be_bytes(ino).saturating_add(1),
                    Err(_) => 0,
                };
                let mut postings = Vec::with_capacity(parts.len());
                for Part { from, to, .. } in parts {
                    let key = [&from[..], &at.to_be_bytes()].concat();
                    let iter = live.iter(&key, to)?;
                    postings.push(Posting { iter, key });
                }
                Ok(Self::Join { live, postings, at })
            }
        }
    }

    /// The next candidate; its place goes to `place`.
    pub(super) fn next(&mut self, place: &mut Vec<u8>) -> Result<Step, MdError> {
        match self {
            Self::Nothing => Ok(Step::End),
            Self::Range { live, iter } => {
                let entry = iter.next().map_err(|error| live.failed(error))?;
                let Some((entry, ino)) = entry.and_then(|entry| Some((entry, ino_of(entry)?)))
                else {
                    return Ok(Step::End);
                };
                place.clear();
                place.extend_from_slice(entry);
                Ok(Step::Candidate(ino))
            }
            Self::Join { live, postings, at } => join(live, postings, at, place),
        }
    }
}

/// Goes forward until all postings have the same inode.
fn join(
    live: &Live,
    postings: &mut [Posting],
    at: &mut u64,
    place: &mut Vec<u8>,
) -> Result<Step, MdError> {
    let mut same = 0;
    for step in 0.. {
        let turn = step % postings.len();
        let Some(found) = postings[turn].from(live, *at)? else {
            return Ok(Step::End);
        };
        same = if found == *at { same + 1 } else { 1 };
        *at = found;
        if same >= postings.len() {
            *at = found.saturating_add(1);
            place.clear();
            place.extend_from_slice(&found.to_be_bytes());
            return Ok(Step::Candidate(ObjectId(found)));
        }
        if step > STEPS {
            break;
        }
    }
    place.clear();
    place.extend_from_slice(&at.saturating_sub(1).to_be_bytes());
    Ok(Step::Pause)
}

impl Posting {
    /// The first inode that is not below `at`.
    fn from(&mut self, live: &Live, at: u64) -> Result<Option<u64>, MdError> {
        let number = self.key.len() - INO;
        self.key[number..].copy_from_slice(&at.to_be_bytes());
        self.iter
            .seek(&self.key)
            .map_err(|error| live.failed(error))?;
        let entry = self.iter.next().map_err(|error| live.failed(error))?;
        Ok(entry.and_then(ino_of).map(|ino| ino.0))
    }
}
