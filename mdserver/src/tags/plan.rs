//! From what a query can look up to what is looked up.
//!
//! A plan is a list of branches, one after the other; a branch is one range of the index, or several
//! postings that are read together. Which members of an `and` are read is decided by how many entries
//! they have about: the rest is left to the verification of each hit. So a common tag beside a rare
//! one costs what the rare one costs.

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

/// Plans for `access`.
pub(super) fn plan(live: &Live, access: Access) -> Plan {
    match access {
        Access::Scan => Plan::Scan,
        access => Plan::Branches(branches(live, access).0),
    }
}

/// The branches that have all candidates, and about how many these are.
fn branches(live: &Live, access: Access) -> (Vec<Branch>, u64) {
    match access {
        // Not within the others.
        Access::Scan => (Vec::new(), u64::MAX),
        Access::Range(range) => {
            let Range { from, to, posting } = range;
            let about = live.estimate(&from, &to);
            (vec![vec![Part { from, to, posting }]], about)
        }
        Access::Or(any) => {
            let mut all = Vec::with_capacity(any.len());
            let mut about = 0u64;
            for access in any {
                let (more, of) = branches(live, access);
                all.extend(more);
                about = about.saturating_add(of);
            }
            (all, about)
        }
        Access::And(all) => {
            let mut members: Vec<_> = all
                .into_iter()
                .map(|access| branches(live, access))
                .collect();
            members.sort_by_key(|(_, about)| *about);
            together(members)
        }
    }
}

/// The cheapest member of an `and` by itself, or with others that narrow it down.
fn together(members: Vec<(Vec<Branch>, u64)>) -> (Vec<Branch>, u64) {
    let mut members = members.into_iter();
    let Some((first, about)) = members.next() else {
        return (Vec::new(), 0);
    };
    let single = |branches: &[Branch]| matches!(branches, [branch] if branch.iter().all(|part| part.posting));
    if about <= FEW || !single(&first) {
        return (first, about);
    }
    let mut branch: Branch = first.into_iter().flatten().collect();
    for (other, _) in members {
        if branch.len() >= TOGETHER {
            break;
        }
        if single(&other) {
            branch.extend(other.into_iter().flatten());
        }
    }
    branch.truncate(TOGETHER);
    (vec![branch], about)
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
