//! From what a query can look up to what is looked up.
//!
//! A plan is a list of branches, one after the other; a branch is one range of the index, or several
//! postings that are read together. Which members of an `and` are read is decided by how many entries
//! they have about: the rest is left to the verification of each hit. So a common tag beside a rare
//! one costs what the rare one costs. An `and` of postings only is read together whole: a seek a
//! candidate is less than reading its tags.

use serde::{Deserialize, Serialize};

use super::entry::{self, Range};
use super::live::Live;
use super::query::{Access, KeyPattern};
use crate::api::MdError;

/// Most postings that are read together.
const TOGETHER: usize = 4;
/// Fewer candidates than this are verified rather than narrowed down.
const FEW: u64 = 64;
/// Keys that a pattern of keys is looked up for one by one.
const MAX_KEYS: usize = 64;

/// A range of the index as a cursor carries it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
    pub(super) posting: bool,
}

/// What is read together: one range, or several postings.
pub(super) type Branch = Vec<Part>;

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Plan {
    /// All inodes.
    Scan,
    /// These ranges of the index, one after the other.
    Branches(Vec<Branch>),
}

/// Plans for `access`, and whether the plan has all of it, so that nothing is left to verification.
pub(super) fn plan(live: &Live, access: Access) -> (Plan, bool) {
    match access {
        Access::Scan => (Plan::Scan, false),
        access => {
            let Way {
                branches, whole, ..
            } = branches(live, access);
            (Plan::Branches(branches), whole)
        }
    }
}

/// How an access is read.
struct Way {
    /// They have all candidates.
    branches: Vec<Branch>,
    /// About how many these are.
    about: u64,
    /// They have no others than the access says.
    whole: bool,
}

impl Way {
    /// The postings it consists of, if it is one branch of nothing else.
    fn postings(&self) -> Option<&Branch> {
        match &self.branches[..] {
            [branch] if branch.iter().all(|part| part.posting) => Some(branch),
            _ => None,
        }
    }
}

fn branches(live: &Live, access: Access) -> Way {
    match access {
        // Not within the others.
        Access::Scan => Way {
            branches: Vec::new(),
            about: u64::MAX,
            whole: false,
        },
        Access::Range(range) => {
            let Range { from, to, posting } = range;
            let about = live.estimate(&from, &to);
            Way {
                branches: vec![vec![Part { from, to, posting }]],
                about,
                whole: true,
            }
        }
        Access::Or(any) => {
            let mut all = Way {
                branches: Vec::with_capacity(any.len()),
                about: 0,
                whole: true,
            };
            for access in any {
                let more = branches(live, access);
                all.branches.extend(more.branches);
                all.about = all.about.saturating_add(more.about);
                all.whole &= more.whole;
            }
            all
        }
        Access::And(all) => {
            let mut members: Vec<_> = all
                .into_iter()
                .map(|access| branches(live, access))
                .collect();
            members.sort_by_key(|way| way.about);
            together(members)
        }
    }
}

/// All members of an `and` together, if they are postings and few; else the cheapest by itself, or with
/// others that narrow it down.
fn together(members: Vec<Way>) -> Way {
    let postings = members.iter().map(|way| way.postings().map_or(0, Vec::len));
    let fits = postings.clone().all(|len| len > 0) && postings.sum::<usize>() <= TOGETHER;
    let mut members = members.into_iter();
    let Some(first) = members.next() else {
        return Way {
            branches: Vec::new(),
            about: 0,
            whole: true,
        };
    };
    let few = first.about <= FEW && !fits;
    if few || first.postings().is_none() {
        return Way {
            whole: false,
            ..first
        };
    }
    let mut whole = first.whole && fits;
    let mut branch: Branch = first.branches.into_iter().flatten().collect();
    for other in members {
        if branch.len() >= TOGETHER {
            break;
        }
        if other.postings().is_some() {
            branch.extend(other.branches.into_iter().flatten());
            whole &= other.whole;
        }
    }
    branch.truncate(TOGETHER);
    Way {
        branches: vec![branch],
        about: first.about,
        whole,
    }
}

/// The keys of tags that fit a pattern; nothing when there are too many.
pub(super) fn keys(live: &Live, pattern: &KeyPattern) -> Result<Option<Vec<String>>, MdError> {
    // A look at each key there is costs a seek.
    const LOOKS: usize = 4096;
    let all = entry::keys(pattern.prefix());
    let mut iter = live.iter(&all.from, &all.to)?;
    let mut keys = Vec::new();
    for _ in 0..LOOKS {
        let found = iter.next().map_err(|error| live.failed(error))?;
        let Some(key) = found.and_then(entry::key_of) else {
            return Ok(Some(keys));
        };
        if pattern.fits(key) {
            if keys.len() == MAX_KEYS {
                return Ok(None);
            }
            keys.push(key.to_owned());
        }
        let beyond = entry::has_key(key).to;
        iter.seek(&beyond).map_err(|error| live.failed(error))?;
    }
    Ok(None)
}
