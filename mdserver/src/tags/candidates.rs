//! Iterates over the inodes in a range or a join of a plan, one at a time, from any position.

use slabfs_model::ObjectId;

use super::entry::{Range, ino_of};
use super::index::Iter;
use super::live::Live;
use super::plan::{GATHERED, Join, restart_search};
use crate::api::{Ino, MdError};

/// Steps of a join between two checks of the clock.
const STEPS: usize = 1024;

/// Most windows of an infix that are gathered. A plan has far fewer; entries added since it was made, and entries in
/// memory alone, were not counted, and those take more memory than their numbers do here.
const MOST_GATHERED: u64 = 64 * GATHERED;

/// Inodes this close may be adjacent in a posting.
const CLOSE: u64 = 4;

/// Bytes of the number at the end of an entry.
const INO: usize = 8;

/// A reader of a range or a join.
pub(super) enum Candidates<'a> {
    /// Entries of one range.
    Range { live: &'a Live, iter: Iter },
    /// The inodes that are in all of these postings.
    Join {
        live: &'a Live,
        postings: Vec<Posting>,
        /// Candidates below this are not wanted any more.
        at: u64,
    },
    /// Gathered inodes, ascending.
    Gathered(std::vec::IntoIter<u64>),
}

/// A posting: entries that differ only in the inode number.
pub(super) struct Posting {
    /// Its position; created when the start is known.
    iter: Option<Iter>,
    /// Its end.
    to: Vec<u8>,
    /// The common prefix of the entries, with room for a number.
    key: Vec<u8>,
    /// The inode at its position.
    last: Option<u64>,
    /// Whether to read the next entry before seeking. Always in the first posting, which has the fewest entries, so
    /// that its next one is mostly the wanted one; in the others while the sought inode is close. Objects with a rare
    /// tag in common often follow one another, and so do their entries for a common one.
    wanted: bool,
    /// Whether it is the first posting of the join.
    first: bool,
}

/// The result of a step.
pub(super) enum Step {
    /// A candidate. For a range, its entry is in the caller's buffer.
    Candidate(Ino),
    /// No candidate yet, and none below this one.
    Pause(Ino),
    /// No more candidates.
    End,
}

impl<'a> Candidates<'a> {
    /// Candidates of the entries of a range that are not less than `from`.
    pub(super) fn range(live: &'a Live, range: &Range, from: &[u8]) -> Result<Self, MdError> {
        let iter = live.iter(range.from.as_slice().max(from), &range.to)?;
        Ok(Self::Range { live, iter })
    }

    /// Candidates in all postings of a join that are not less than `at`.
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

    /// The next candidate; the entry of a range is written to `entry`.
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
        // Positions in one text are often consecutive.
        let ino = ino.filter(|ino| *ino >= at && inos.last() != Some(ino));
        inos.extend(ino);
        if inos.len() as u64 > MOST_GATHERED {
            return Err(restart_search());
        }
    }
    inos.sort_unstable();
    inos.dedup();
    Ok(Candidates::Gathered(inos.into_iter()))
}

/// Advances until all postings are at the same inode.
fn join(live: &Live, postings: &mut [Posting], at: &mut u64) -> Result<Step, MdError> {
    let mut same = 0;
    for step in 0.. {
        let next = step % postings.len();
        let Some(found) = postings[next].from(live, *at)? else {
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
    /// Advances to the first inode that is not below `at`.
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
            self.wanted = found.saturating_sub(before) <= CLOSE;
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
