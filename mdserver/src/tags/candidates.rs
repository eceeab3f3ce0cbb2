//! The inodes in a range or a join of a plan, one at a time, from any place on.

use slabfs_model::ObjectId;

use super::entry::{Range, ino_of};
use super::index::Iter;
use super::live::Live;
use super::plan::{GATHERED, Join, begin_anew};
use crate::api::{Ino, MdError};

/// Steps of a join between two looks at the clock.
const STEPS: usize = 1024;

/// Most windows of an infix that are gathered. A plan has far fewer; what came since it was made, and entries that are in
/// memory alone, were not counted, and those take more memory than their numbers do here.
const MOST_GATHERED: u64 = 64 * GATHERED;

/// Inodes that are so close may be neighbours in a posting.
const NEAR: u64 = 4;

/// Bytes of the number at the end of an entry.
const INO: usize = 8;

/// A reader of a range or a join.
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
    /// Inodes that were gathered, ascending.
    Gathered(std::vec::IntoIter<u64>),
}

/// A posting: entries that differ in the number only.
pub(super) struct Posting {
    /// Where it stands; made when it is known where it is to begin.
    iter: Option<Iter>,
    /// Its end.
    to: Vec<u8>,
    /// What they have in common, and room for a number.
    key: Vec<u8>,
    /// The inode at which it stands.
    last: Option<u64>,
    /// Whether it is worth to look at the next entry before seeking: always in the first, which has the fewest entries,
    /// so that what is wanted is its next one most of the time; in others while what is sought is close. Objects that have
    /// a rare tag in common often follow one another, and so do their entries for a common one.
    wanted: bool,
    /// Whether it is the first of the join.
    first: bool,
}

/// What reading on brings.
pub(super) enum Step {
    /// A candidate. Of a range its entry is in the caller's buffer.
    Candidate(Ino),
    /// None yet, and none that is less than this.
    Pause(Ino),
    /// No more.
    End,
}

impl<'a> Candidates<'a> {
    /// Of the entries of a range that are not less than `from`.
    pub(super) fn range(live: &'a Live, range: &Range, from: &[u8]) -> Result<Self, MdError> {
        let iter = live.iter(range.from.as_slice().max(from), &range.to)?;
        Ok(Self::Range { live, iter })
    }

    /// Of what is in all postings of a join and not less than `at`.
    pub(super) fn join(live: &'a Live, join: &Join, ObjectId(at): Ino) -> Result<Self, MdError> {
        if let [windows] = &join.postings[..]
            && windows.windows
        {
            return gathered(live, windows, at);
        }
        let mut postings = Vec::with_capacity(join.postings.len());
        for Range { from, to, .. } in &join.postings {
            postings.push(Posting {
                iter: None,
                to: to.clone(),
                key: [&from[..], &[0; INO]].concat(),
                last: None,
                wanted: true,
                first: postings.is_empty(),
            });
        }
        Ok(Self::Join { live, postings, at })
    }

    /// The next candidate; the entry of a range goes to `entry`.
    pub(super) fn next(&mut self, entry: &mut Vec<u8>) -> Result<Step, MdError> {
        match self {
            Self::Range { live, iter } => {
                let next = iter.next().map_err(|error| live.failed(error))?;
                let Some((next, ino)) = next.and_then(|next| Some((next, ino_of(next)?))) else {
                    return Ok(Step::End);
                };
                entry.clear();
                entry.extend_from_slice(next);
                Ok(Step::Candidate(ino))
            }
            Self::Join { live, postings, at } => join(live, postings, at),
            Self::Gathered(inos) => Ok(match inos.next() {
                Some(ino) => Step::Candidate(ObjectId(ino)),
                None => Step::End,
            }),
        }
    }
}

/// The inodes of a range that are not less than `at`, each once.
fn gathered<'a>(live: &'a Live, range: &Range, at: u64) -> Result<Candidates<'a>, MdError> {
    let mut iter = live.iter(&range.from, &range.to)?;
    let mut inos = Vec::new();
    while let Some(entry) = iter.next().map_err(|error| live.failed(error))? {
        let ino = ino_of(entry).map(|ino| ino.0);
        // Places of one text often follow each other.
        let ino = ino.filter(|ino| *ino >= at && inos.last() != Some(ino));
        inos.extend(ino);
        if inos.len() as u64 > MOST_GATHERED {
            return Err(begin_anew());
        }
    }
    inos.sort_unstable();
    inos.dedup();
    Ok(Candidates::Gathered(inos.into_iter()))
}

/// Goes forward until all postings have the same inode.
fn join(live: &Live, postings: &mut [Posting], at: &mut u64) -> Result<Step, MdError> {
    let mut same = 0;
    for step in 0.. {
        let step_at = step % postings.len();
        let Some(found) = postings[step_at].from(live, *at)? else {
            return Ok(Step::End);
        };
        same = if found == *at { same + 1 } else { 1 };
        *at = found;
        if same >= postings.len() {
            *at = found.saturating_add(1);
            return Ok(Step::Candidate(ObjectId(found)));
        }
        if step > STEPS {
            break;
        }
    }
    Ok(Step::Pause(ObjectId(*at)))
}

impl Posting {
    /// The first inode that is not below `at`.
    fn from(&mut self, live: &Live, at: u64) -> Result<Option<u64>, MdError> {
        if self.last.is_some_and(|last| last >= at) {
            return Ok(self.last);
        }
        if self.wanted && self.last.is_some() {
            let next = self.next(live)?;
            if next.is_none_or(|next| next >= at) {
                return Ok(next);
            }
        }
        let number = self.key.len() - INO;
        self.key[number..].copy_from_slice(&at.to_be_bytes());
        let before = self.last;
        match &mut self.iter {
            Some(iter) => iter.seek(&self.key).map_err(|error| live.failed(error))?,
            none => *none = Some(live.iter(&self.key, &self.to)?),
        }
        let found = self.next(live)?;
        if let (false, Some(before), Some(found)) = (self.first, before, found) {
            self.wanted = found.saturating_sub(before) <= NEAR;
        }
        Ok(found)
    }

    fn next(&mut self, live: &Live) -> Result<Option<u64>, MdError> {
        let Some(iter) = &mut self.iter else {
            return Ok(None);
        };
        let entry = iter.next().map_err(|error| live.failed(error))?;
        self.last = entry.and_then(ino_of).map(|ino| ino.0);
        Ok(self.last)
    }
}
