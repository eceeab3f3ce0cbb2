//! From what a query can look up to what is looked up.
//!
//! A plan is ranges of the index, one after the other, and behind them *joins*: several postings that
//! are read together. Which members of an `and` are read is decided by how many entries they have
//! about: the rest is left to the verification of each hit. So a common tag beside a rare one costs what
//! the rare one costs. An `and` of postings only is read together whole: a seek a candidate is less than
//! reading its tags.
//!
//! An inode may have many windows that begin with a short infix, and others when its text is changed. Where they are
//! not too many a page gathers the inodes of all of them, and reads these in their order like a posting: so each
//! is looked at once, and one that has the infix all the while is found whatever else of its text is changed
//! between two pages. Where they are too many all that have the key are asked; or, where these are far more,
//! the windows are read as they come.
//!
//! Ranges are in the order of the index and do not overlap, joins are in the order of their numbers,
//! which are made of what they read. So a place in a plan is an entry or a join's number, whatever else
//! the plan has, and each page of a search plans anew: what its cursor carries are the [`Choices`],
//! a few bytes for most queries. Plans of equal choices differ only by keys of tags that came or went
//! since.

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::entry::{self, Range};
use super::live::Live;
use super::query::{Access, KeyPattern, Query};
use crate::api::MdError;

/// Most postings that are read together.
const TOGETHER: usize = 4;
/// Fewer candidates than this are verified rather than narrowed down.
const FEW: u64 = 64;
/// Keys that a pattern of keys is looked up for one by one.
const MAX_KEYS: usize = 64;
/// Keys that all patterns of a query are looked up for one by one.
const ALL_KEYS: usize = 4096;
/// Keys read from the index for those patterns of a query that have a beginning, and for the others
/// together; a look at each costs a seek.
const LOOKS: usize = 4096;
/// Comparisons of keys with the patterns of a query.
const FITS: usize = 1 << 20;
/// Windows of an infix that are gathered, as far as they can be counted. Few in tests, so that these come by all ways.
pub(super) const GATHERED: u64 = if cfg!(test) { 8 } else { 1 << 18 };
/// Parts of a query of which it is asked how many entries they have.
const ESTIMATES: usize = 1 << 12;

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// All inodes.
    Scan,
    /// Parts of the index.
    Reads(Reads),
}

/// Parts of the index that have all candidates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reads {
    /// Ascending, none overlapping another.
    pub(super) ranges: Vec<Range>,
    /// By number.
    pub(super) joins: Vec<Join>,
    /// They have no candidates but those that the query asks of the index.
    pub(super) whole: bool,
}

/// Postings that are read together: what is in all of them. Or the windows of a short infix, which are gathered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Join {
    /// Made of what it reads.
    pub(super) number: u128,
    pub(super) postings: Vec<Range>,
}

/// What was decided when a search began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Choices {
    /// Of each pattern of keys, whether the keys that fit are looked up one by one.
    patterns: Vec<bool>,
    /// Of each `and`, how many members are read, and which.
    ands: Vec<u32>,
    /// Of what each `and` consisted.
    shape: u64,
    /// How each short infix is read.
    infixes: Vec<Infix>,
}

/// How the windows of a short infix are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Infix {
    /// Their inodes, in order.
    Gathered,
    /// All that have the key are asked.
    Key,
    /// One after the other.
    Windows,
}

/// Plans for a query; `before` is what was decided for its first page, if this is not that.
pub(super) fn plan(
    live: &Live,
    query: &Query,
    before: Option<&Choices>,
) -> Result<(Plan, Choices), MdError> {
    let mut keys = Keys::new(live, before);
    let mut failed = None;
    let access = query.access_with(&mut |pattern| {
        keys.of(pattern).unwrap_or_else(|error| {
            failed.get_or_insert(error);
            None
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let mut planner = Planner {
        live,
        before: before.map(|before| &before.ands[..]),
        infixes_before: before.map(|before| &before.infixes[..]),
        infixes: Vec::new(),
        ands: Vec::new(),
        shape: Xxh3::new(),
        estimates: ESTIMATES,
    };
    let plan = match access {
        Access::Scan => Plan::Scan,
        access => Plan::Reads(planner.way(access, false)?.reads()),
    };
    let choices = Choices {
        patterns: keys.chosen,
        ands: planner.ands,
        shape: planner.shape.digest(),
        infixes: planner.infixes,
    };
    match before {
        Some(before) if *before != choices => Err(begin_anew()),
        _ => Ok((plan, choices)),
    }
}

/// What a search says that cannot go on.
pub(super) fn begin_anew() -> MdError {
    MdError::Invalid("the search cannot go on here: begin anew".to_owned())
}

/// How an access is read.
struct Way {
    /// They have all candidates, with the joins.
    ranges: Vec<Range>,
    joins: Vec<Vec<Range>>,
    /// About how many these are, if that was asked.
    about: u64,
    /// They have no others than the access says.
    whole: bool,
}

impl Way {
    /// The postings it consists of, if it is nothing else.
    fn postings(&self) -> Option<&[Range]> {
        match (&self.ranges[..], &self.joins[..]) {
            ([range], []) if range.posting => Some(&self.ranges),
            ([], [join]) if join.iter().all(|part| part.posting) => Some(join),
            _ => None,
        }
    }

    /// In order, each part once.
    fn reads(self) -> Reads {
        let mut all = self.ranges;
        // What has others within it comes before them.
        all.sort_by(|a, b| (&a.from, Reverse(&a.to)).cmp(&(&b.from, Reverse(&b.to))));
        let mut ranges: Vec<Range> = Vec::with_capacity(all.len());
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.to <= last.to => last.unsure |= range.unsure,
                Some(last) if range.from < last.to => {
                    last.to = range.to;
                    last.posting = false;
                    last.unsure |= range.unsure;
                }
                _ => ranges.push(range),
            }
        }
        let numbered = self.joins.into_iter().map(|postings| {
            let mut parts: Vec<_> = postings.iter().map(|part| &part.from[..]).collect();
            parts.sort();
            let mut bytes = Vec::new();
            for part in parts {
                bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
                bytes.extend_from_slice(part);
            }
            let number = xxh3_128(&bytes);
            Join { number, postings }
        });
        let mut joins: Vec<Join> = numbered.collect();
        joins.sort_by_key(|join| join.number);
        joins.dedup_by_key(|join| join.number);
        // All of it is read with a range.
        joins.retain(|join| {
            let within = |part: &Range| {
                let at = ranges.partition_point(|range| range.from <= part.from);
                at > 0 && part.to <= ranges[at - 1].to
            };
            !join.postings.iter().any(within)
        });
        Reads {
            ranges,
            joins,
            whole: self.whole,
        }
    }
}

/// A plan in the making.
struct Planner<'a> {
    live: &'a Live,
    /// What was decided before, as far as it is not used up.
    before: Option<&'a [u32]>,
    infixes_before: Option<&'a [Infix]>,
    infixes: Vec<Infix>,
    /// What is decided.
    ands: Vec<u32>,
    shape: Xxh3,
    /// Looks at how many entries there are that are left.
    estimates: usize,
}

impl Planner<'_> {
    /// How to read an access, and about how much that is if it is `counted`.
    fn way(&mut self, access: Access, counted: bool) -> Result<Way, MdError> {
        Ok(match access {
            // Not within the others.
            Access::Scan => Way {
                ranges: Vec::new(),
                joins: Vec::new(),
                about: u64::MAX,
                whole: false,
            },
            Access::Range(range) if range.windows => self.infix(range)?,
            Access::Range(range) => Way {
                about: if counted { self.estimate(&range) } else { 0 },
                ranges: vec![range],
                joins: Vec::new(),
                whole: true,
            },
            Access::Or(any) => {
                let mut all = Way {
                    ranges: Vec::with_capacity(any.len()),
                    joins: Vec::new(),
                    about: 0,
                    whole: true,
                };
                for access in any {
                    let more = self.way(access, counted)?;
                    all.ranges.extend(more.ranges);
                    all.joins.extend(more.joins);
                    all.about = all.about.saturating_add(more.about);
                    all.whole &= more.whole;
                }
                all
            }
            Access::And(all) => {
                self.shape.update(&(all.len() as u64).to_le_bytes());
                for member in &all {
                    if let Access::Range(range) = member {
                        self.shape.update(&range.from);
                    }
                }
                let counted = self.before.is_none();
                let members: Result<Vec<_>, _> = all
                    .into_iter()
                    .map(|access| self.way(access, counted))
                    .collect();
                self.and(members?)?
            }
        })
    }

    /// How to read the windows of a short infix.
    fn infix(&mut self, range: Range) -> Result<Way, MdError> {
        let key = entry::key_of(&range.from).ok_or_else(begin_anew)?;
        let all = Range {
            unsure: true,
            ..entry::has_key(key)
        };
        let (how, about) = match self.infixes_before {
            Some(before) => {
                let (&how, rest) = before.split_first().ok_or_else(begin_anew)?;
                self.infixes_before = Some(rest);
                (how, 0)
            }
            None => match self.estimate(&range) {
                few @ ..=GATHERED => (Infix::Gathered, few),
                windows => match self.estimate(&all) {
                    all if all / 2 <= windows => (Infix::Key, all),
                    _ => (Infix::Windows, windows),
                },
            },
        };
        self.infixes.push(how);
        let (ranges, joins) = match how {
            Infix::Gathered => (Vec::new(), vec![vec![range]]),
            Infix::Key => (vec![all], Vec::new()),
            Infix::Windows => (vec![range], Vec::new()),
        };
        Ok(Way {
            ranges,
            joins,
            about,
            whole: true,
        })
    }

    fn estimate(&mut self, range: &Range) -> u64 {
        match self.estimates.checked_sub(1) {
            Some(left) => {
                self.estimates = left;
                self.live.estimate(&range.from, &range.to)
            }
            // So much is asked that it does not matter which part is read first.
            None => u64::from(u32::MAX),
        }
    }

    /// Members of an `and` that are read together, or one by itself.
    fn and(&mut self, members: Vec<Way>) -> Result<Way, MdError> {
        let chosen = match self.before {
            None => choose(&members),
            Some(before) => {
                let (&count, rest) = before.split_first().ok_or_else(begin_anew)?;
                let count = count as usize;
                let (chosen, rest) = rest.split_at_checked(count).ok_or_else(begin_anew)?;
                self.before = Some(rest);
                chosen.iter().map(|&member| member as usize).collect()
            }
        };
        self.ands.push(chosen.len() as u32);
        self.ands.extend(chosen.iter().map(|&member| member as u32));
        let everything = chosen.len() == members.len();
        let mut members: Vec<_> = members.into_iter().map(Some).collect();
        let mut take = |member: usize| {
            let way = members.get_mut(member).and_then(Option::take);
            way.ok_or_else(begin_anew)
        };
        let mut chosen = chosen.into_iter();
        let first = take(chosen.next().ok_or_else(begin_anew)?)?;
        if chosen.len() == 0 {
            let whole = first.whole && everything;
            return Ok(Way { whole, ..first });
        }
        let mut whole = first.whole && everything;
        let mut join = first.postings().ok_or_else(begin_anew)?.to_vec();
        for member in chosen {
            let more = take(member)?;
            join.extend_from_slice(more.postings().ok_or_else(begin_anew)?);
            whole &= more.whole;
        }
        whole &= join.len() <= TOGETHER;
        join.truncate(TOGETHER);
        Ok(Way {
            ranges: Vec::new(),
            joins: vec![join],
            about: first.about,
            whole,
        })
    }
}

/// All members of an `and` together, if they are postings and few; else the cheapest by itself, or with
/// others that narrow it down.
fn choose(members: &[Way]) -> Vec<usize> {
    let parts = |member: usize| members[member].postings().map_or(0, <[Range]>::len);
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|&member| members[member].about);
    let all: usize = order.iter().map(|&member| parts(member)).sum();
    let fits = order.iter().all(|&member| parts(member) > 0) && all <= TOGETHER;
    let first = order[0];
    if parts(first) == 0 || members[first].about <= FEW && !fits {
        return vec![first];
    }
    let mut read = 0;
    order.retain(|&member| {
        let takes = parts(member) > 0 && read < TOGETHER;
        read += if takes { parts(member) } else { 0 };
        takes
    });
    order
}

/// The keys of tags that fit patterns, within what one request may look at.
struct Keys<'a> {
    live: &'a Live,
    before: Option<&'a [bool]>,
    chosen: Vec<bool>,
    looks: usize,
    fits: usize,
    given: usize,
    /// All keys, once they were read; nothing if they are too many.
    all: Option<Option<Vec<String>>>,
    /// The most keys that are given for one pattern.
    most: usize,
}

impl<'a> Keys<'a> {
    fn new(live: &'a Live, before: Option<&'a Choices>) -> Self {
        // Some more may have come since the search began.
        let more = if before.is_some() { 2 } else { 1 };
        Self {
            live,
            before: before.map(|before| &before.patterns[..]),
            chosen: Vec::new(),
            looks: LOOKS * more,
            fits: FITS * more,
            given: ALL_KEYS * more,
            all: None,
            most: MAX_KEYS * more,
        }
    }

    /// The keys to look up for a pattern one by one; nothing when there are too many.
    fn of(&mut self, pattern: &KeyPattern) -> Result<Option<Vec<String>>, MdError> {
        let decided = match self.before {
            Some(before) => {
                let (&first, rest) = before.split_first().ok_or_else(begin_anew)?;
                self.before = Some(rest);
                Some(first)
            }
            None => None,
        };
        let keys = match decided {
            Some(false) => None,
            _ => self.fitting(pattern)?,
        };
        self.chosen.push(keys.is_some());
        Ok(keys)
    }

    fn fitting(&mut self, pattern: &KeyPattern) -> Result<Option<Vec<String>>, MdError> {
        let most = self.most.min(self.given);
        let prefix = pattern.prefix();
        let keys = if prefix.is_empty() {
            if self.all.is_none() {
                // Not at the expense of patterns that fit few.
                let left = self.looks;
                self.all = Some(self.read("", usize::MAX)?);
                self.looks = left;
            }
            let Some(Some(all)) = &self.all else {
                return Ok(None);
            };
            let Some(left) = self.fits.checked_sub(all.len()) else {
                return Ok(None);
            };
            self.fits = left;
            let fitting = all.iter().filter(|key| pattern.fits(key));
            Some(fitting.take(most + 1).cloned().collect())
        } else {
            self.read(prefix, most + 1)?
        };
        let keys = keys.filter(|keys| keys.len() <= most);
        self.given -= keys.as_ref().map_or(0, Vec::len);
        Ok(keys)
    }

    /// Up to `most` keys that begin with `prefix`; nothing when that is too much to look at.
    fn read(&mut self, prefix: &str, most: usize) -> Result<Option<Vec<String>>, MdError> {
        let all = entry::keys(prefix);
        let mut iter = self.live.iter(&all.from, &all.to)?;
        let mut keys = Vec::new();
        while keys.len() < most {
            let Some(left) = self.looks.checked_sub(1) else {
                return Ok(None);
            };
            self.looks = left;
            let found = iter.next().map_err(|error| self.live.failed(error))?;
            let Some(key) = found.and_then(entry::key_of) else {
                break;
            };
            keys.push(key.to_owned());
            let beyond = entry::has_key(key).to;
            iter.seek(&beyond)
                .map_err(|error| self.live.failed(error))?;
        }
        Ok(Some(keys))
    }
}
