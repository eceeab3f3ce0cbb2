//! Determines whether an earlier page has returned a candidate.
//!
//! An inode may occur at several positions of a plan: a list with several members in a range, two members of an `or`.
//! No state is stored between two pages; but pages read a plan in its order, so a candidate was returned before if
//! one of its entries is in a range before the start of this page, or if all postings of a join before it contain it.
//! The candidate's entries are derived from its tags.

use slabfs_model::Tag;
use std::collections::{HashMap, HashSet};

use super::entry::{entries, key_of};
use super::find::At;
use super::plan::{Join, Reads};
use super::query::Subject;
use super::subject::Candidate;
use crate::api::Ino;

/// Bytes of the number at the end of an entry.
const INO: usize = 8;
/// Up to this many keys are queried one by one.
const FEW_KEYS: usize = 8;

/// What was read before a page.
pub(super) struct Seen<'a> {
    reads: &'a Reads,
    /// Of the ranges, everything before this entry; everything if `None`.
    upto: Option<&'a [u8]>,
    /// Of the joins, all before this one, and of this one all before this inode.
    join: Option<(u128, Ino)>,
    /// Keys of the tags concerned.
    keys: HashSet<&'a str>,
    /// Ranges over keys are included.
    any_key: bool,
    /// The joins by their first posting.
    joins: HashMap<&'a [u8], Vec<usize>>,
    /// Joins of gathered windows.
    gathered: Vec<&'a Join>,
    /// It is the start of one posting and nothing else.
    posting: bool,
}

impl<'a> Seen<'a> {
    /// Before a page that begins at `at`.
    pub(super) fn before(reads: &'a Reads, at: &'a At) -> Self {
        let (upto, join) = match at {
            At::Inode(_) => (Some(&[][..]), None),
            At::Entry(entry) => (Some(&entry[..]), None),
            At::Join(number, ino) => (None, Some((*number, *ino))),
        };
        let ranges = match upto {
            Some(upto) => reads.ranges.partition_point(|range| range.from[..] < *upto),
            None => reads.ranges.len(),
        };
        let ranges = &reads.ranges[..ranges];
        let mut seen = Self {
            reads,
            upto,
            join,
            keys: HashSet::new(),
            any_key: false,
            joins: HashMap::new(),
            gathered: Vec::new(),
            posting: matches!((ranges, upto), ([range], Some(upto)) if range.posting && *upto < range.to[..]),
        };
        for range in ranges {
            match range.from.first() {
                Some(b'k') if !range.posting => seen.any_key = true,
                _ => seen.keys.extend(key_of(&range.from)),
            }
        }
        let joins = join.map_or(0, |(number, _)| {
            reads.joins.partition_point(|join| join.number <= number)
        });
        for (index, join) in reads.joins[..joins].iter().enumerate() {
            for posting in &join.postings {
                seen.keys.extend(key_of(&posting.from));
            }
            if let Some(first) = join.postings.first() {
                if first.windows {
                    seen.gathered.push(join);
                    continue;
                }
                seen.joins.entry(&first.from).or_default().push(index);
            }
        }
        seen
    }

    /// Whether a candidate, with `entry` if it is in a range, was returned.
    pub(super) fn has(&self, candidate: &Candidate<'_, '_>, entry: &[u8]) -> bool {
        // A posting contains an inode once.
        if self.posting && !entry.is_empty() && *entry < self.reads.ranges[0].to[..] {
            return false;
        }
        let ino = candidate.inode.attr.ino;
        if self.any_key {
            let read = candidate.each_key(&mut |key| {
                let of_key = entries(ino, &[(key, Tag::bytes([]))]);
                let mut of_key = of_key.iter().filter(|entry| entry[0] == b'k');
                of_key.any(|entry| self.was_read(entry))
            });
            if read {
                return true;
            }
        }
        let mut postings = HashSet::new();
        let mut read = |key: &str| {
            let Some(tag) = candidate.tag(key) else {
                return false;
            };
            let entries = entries(ino, &[(key, tag.into_owned())]);
            if entries.iter().any(|entry| self.was_read(entry)) {
                return true;
            }
            let mut gathered = self.gathered.iter();
            if gathered.any(|join| self.reached(join, ino) && stands_in(&entries, join)) {
                return true;
            }
            if !self.joins.is_empty() {
                let posting = |mut entry: Vec<u8>| {
                    entry.truncate(entry.len() - INO);
                    entry
                };
                postings.extend(entries.into_iter().map(posting));
            }
            false
        };
        if self.keys.len() <= FEW_KEYS {
            if self.keys.iter().any(|key| read(key)) {
                return true;
            }
        } else {
            let mut keys = Vec::new();
            candidate.each_key(&mut |key| {
                keys.extend(self.keys.get(key).copied());
                false
            });
            if keys.into_iter().any(read) {
                return true;
            }
        }
        let mut joins = postings
            .iter()
            .filter_map(|first| self.joins.get(&first[..]))
            .flatten();
        joins.any(|&join| {
            let join = &self.reads.joins[join];
            let mut parts = join.postings.iter();
            self.reached(join, ino) && parts.all(|part| postings.contains(&part.from))
        })
    }

    /// Whether a join was read up to and beyond an inode.
    fn reached(&self, join: &Join, ino: Ino) -> bool {
        self.join
            .is_none_or(|(number, at)| number != join.number || ino < at)
    }

    fn was_read(&self, entry: &[u8]) -> bool {
        let ranges = &self.reads.ranges;
        let at = ranges.partition_point(|range| range.from[..] <= *entry);
        self.upto.is_none_or(|upto| entry < upto) && at > 0 && *entry < ranges[at - 1].to[..]
    }
}

/// Whether one of the ascending entries is among those that a join gathers.
fn stands_in(entries: &[Vec<u8>], join: &Join) -> bool {
    join.postings.iter().any(|part| {
        let at = entries.partition_point(|entry| *entry < part.from);
        entries.get(at).is_some_and(|entry| *entry < part.to)
    })
}
