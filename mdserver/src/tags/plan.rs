//! Plans a search: selects from all possible lookups of a query those that are made.
//!
//! A plan consists of ranges of the index, one after the other, and after them *joins*: several postings that are
//! read together. The estimated number of entries decides which members of an `and` are read; the others are left to
//! the verification of each hit. So a common tag together with a rare one costs what the rare one costs. An `and` of
//! postings only is read together completely: a seek per candidate is cheaper than reading its tags.
//!
//! An inode may have many windows that begin with a short infix, and different ones after its text changes. Unless
//! there are too many, a page gathers the inodes of all of them, and reads these in order like a posting: so each is
//! examined once, and one that has the infix all the time is found whatever else of its text changes between two
//! pages. If there are too many, all inodes that have the key are examined; or, if these are far more, the windows
//! are read in their order.
//!
//! Ranges are in the order of the index and do not overlap; joins are in the order of their numbers, which are
//! derived from what they read. So a position in a plan is an entry or a join's number, whatever else the plan has,
//! and each page of a search plans again. Its cursor carries the [`Choices`], a few bytes for most queries. Plans
//! with equal choices differ only by keys of tags that were added or removed since.

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
/// Most keys that a key pattern is expanded to.
const MAX_KEYS: usize = 64;
/// Most keys that all patterns of a query are expanded to.
const ALL_KEYS: usize = 4096;
/// Most keys read from the index for the patterns of a query that have a prefix, and the same for the others
/// together; each read costs a seek.
const LOOKS: usize = 4096;
/// Most comparisons of keys with the patterns of a query.
const FITS: usize = 1 << 20;
/// Most windows of an infix that are gathered, as far as they can be counted. Few in tests, so that all cases occur.
pub(super) const GATHERED: u64 = if cfg!(test) { 8 } else { 1 << 18 };
/// Most parts of a query whose number of entries is estimated.
const ESTIMATES: usize = 1 << 12;

/// What a search reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Plan {
    /// All inodes.
    Scan,
    /// Parts of the index.
    Reads(Reads),
}

/// Parts of the index that contain all candidates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Reads {
    /// Ascending, none overlapping another.
    pub(super) ranges: Vec<Range>,
    /// By number.
    pub(super) joins: Vec<Join>,
    /// They contain no other candidates than the query's lookups.
    pub(super) exact: bool,
}

/// Postings that are read together (their intersection); or the windows of a short infix, which are gathered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Join {
    /// Derived from what it reads.
    pub(super) number: u128,
    pub(super) postings: Vec<Range>,
}

/// The decisions made when a search began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Choices {
    /// For each key pattern, whether it is expanded to the matching keys.
    patterns: Vec<bool>,
    /// For each `and`, how many members are read, and which.
    ands: Vec<u32>,
    /// Hash of the members of each `and`.
    shape: u64,
    /// How each short infix is read.
    infixes: Vec<Infix>,
}

/// How the windows of a short infix are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Infix {
    /// Their inodes, in order.
    Gathered,
    /// All inodes that have the key are examined.
    Key,
    /// The windows in order.
    Windows,
}

/// Plans a query; `before` are the decisions made for its first page, unless this is the first.
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
        Some(before) if *before != choices => Err(restart_search()),
        _ => Ok((plan, choices)),
    }
}

/// Takes the next of the earlier decisions; `None` if this is the first page.
fn decided<T: Copy>(before: &mut Option<&[T]>) -> Result<Option<T>, MdError> {
    let Some(left) = before else {
        return Ok(None);
    };
    let (&next, rest) = left.split_first().ok_or_else(restart_search)?;
    *left = rest;
    Ok(Some(next))
}

/// The error of a search that cannot continue.
pub(super) fn restart_search() -> MdError {
    MdError::Invalid("the search cannot continue here: start it again".to_owned())
}

/// The lookups of an access.
struct Way {
    /// They contain all candidates, together with the joins.
    ranges: Vec<Range>,
    joins: Vec<Vec<Range>>,
    /// The estimated number of these, if it was requested.
    about: u64,
    /// They contain no others than the access describes.
    exact: bool,
}

impl Way {
    /// Ranges that contain no others.
    fn of(ranges: Vec<Range>, about: u64) -> Self {
        Self {
            ranges,
            joins: Vec::new(),
            about,
            exact: true,
        }
    }

    /// Its postings, if it consists of nothing else.
    fn postings(&self) -> Option<&[Range]> {
        match (&self.ranges[..], &self.joins[..]) {
            ([range], []) if range.posting => Some(&self.ranges),
            ([], [join]) if join.iter().all(|part| part.posting) => Some(join),
            _ => None,
        }
    }

    /// In order, without overlaps.
    fn reads(self) -> Reads {
        let mut all = self.ranges;
        // A range that contains others comes before them.
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
        // Dropped if all of it is read with a range.
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
            exact: self.exact,
        }
    }
}

/// State of planning.
struct Planner<'a> {
    live: &'a Live,
    /// Earlier decisions that are not used yet.
    before: Option<&'a [u32]>,
    infixes_before: Option<&'a [Infix]>,
    infixes: Vec<Infix>,
    /// The decisions.
    ands: Vec<u32>,
    shape: Xxh3,
    /// Number of estimates left.
    estimates: usize,
}

impl Planner<'_> {
    /// The lookups of an access, with an estimate of their size if `counted`.
    fn way(&mut self, access: Access, counted: bool) -> Result<Way, MdError> {
        Ok(match access {
            // Handled at the top level only.
            Access::Scan => Way {
                exact: false,
                ..Way::of(Vec::new(), u64::MAX)
            },
            Access::Range(range) if range.windows => self.infix(range)?,
            Access::Range(range) => {
                let about = if counted { self.estimate(&range) } else { 0 };
                Way::of(vec![range], about)
            }
            Access::Or(any) => {
                let mut all = Way::of(Vec::with_capacity(any.len()), 0);
                for access in any {
                    let more = self.way(access, counted)?;
                    all.ranges.extend(more.ranges);
                    all.joins.extend(more.joins);
                    all.about = all.about.saturating_add(more.about);
                    all.exact &= more.exact;
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

    /// The lookups for the windows of a short infix.
    fn infix(&mut self, range: Range) -> Result<Way, MdError> {
        let key = entry::key_of(&range.from).ok_or_else(restart_search)?;
        let all = Range {
            unsure: true,
            ..entry::has_key(key)
        };
        let (how, about) = match decided(&mut self.infixes_before)? {
            Some(how) => (how, 0),
            None => match self.estimate(&range) {
                few @ ..=GATHERED => (Infix::Gathered, few),
                windows => match self.estimate(&all) {
                    all if all / 2 <= windows => (Infix::Key, all),
                    _ => (Infix::Windows, windows),
                },
            },
        };
        self.infixes.push(how);
        Ok(match how {
            Infix::Gathered => Way {
                joins: vec![vec![range]],
                ..Way::of(Vec::new(), about)
            },
            Infix::Key => Way::of(vec![all], about),
            Infix::Windows => Way::of(vec![range], about),
        })
    }

    fn estimate(&mut self, range: &Range) -> u64 {
        match self.estimates.checked_sub(1) {
            Some(left) => {
                self.estimates = left;
                self.live.estimate(&range.from, &range.to)
            }
            // There are so many parts that it does not matter which one is read first.
            None => u64::from(u32::MAX),
        }
    }

    /// The members of an `and` that are read together, or a single one.
    fn and(&mut self, members: Vec<Way>) -> Result<Way, MdError> {
        let mut chosen = Vec::new();
        match decided(&mut self.before)? {
            None => chosen = choose(&members),
            Some(count) => {
                for _ in 0..count {
                    chosen.extend(decided(&mut self.before)?.map(|member| member as usize));
                }
            }
        }
        self.ands.push(chosen.len() as u32);
        self.ands.extend(chosen.iter().map(|&member| member as u32));
        let everything = chosen.len() == members.len();
        let mut members: Vec<_> = members.into_iter().map(Some).collect();
        let mut take = |member: usize| {
            let way = members.get_mut(member).and_then(Option::take);
            way.ok_or_else(restart_search)
        };
        let mut chosen = chosen.into_iter();
        let first = take(chosen.next().ok_or_else(restart_search)?)?;
        if chosen.len() == 0 {
            let exact = first.exact && everything;
            return Ok(Way { exact, ..first });
        }
        let mut exact = first.exact && everything;
        let mut join = first.postings().ok_or_else(restart_search)?.to_vec();
        for member in chosen {
            let more = take(member)?;
            join.extend_from_slice(more.postings().ok_or_else(restart_search)?);
            exact &= more.exact;
        }
        exact &= join.len() <= TOGETHER;
        join.truncate(TOGETHER);
        Ok(Way {
            ranges: Vec::new(),
            joins: vec![join],
            about: first.about,
            exact,
        })
    }
}

/// All members of an `and` together, if they are postings and few; otherwise the cheapest alone, or with others that
/// narrow it down.
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

/// Expands key patterns, within the limits of one request.
struct Keys<'a> {
    live: &'a Live,
    before: Option<&'a [bool]>,
    chosen: Vec<bool>,
    looks: usize,
    fits: usize,
    given: usize,
    /// All keys, once they were read; `Some(None)` if there are too many.
    all: Option<Option<Vec<String>>>,
    /// The most keys returned for one pattern.
    most: usize,
}

impl<'a> Keys<'a> {
    fn new(live: &'a Live, before: Option<&'a Choices>) -> Self {
        // Some keys may have been added since the search began.
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

    /// The keys that match a pattern; `None` if there are too many.
    fn of(&mut self, pattern: &KeyPattern) -> Result<Option<Vec<String>>, MdError> {
        let keys = match decided(&mut self.before)? {
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
                // Does not use up the budget of patterns that match few keys.
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

    /// Up to `most` keys that begin with `prefix`; `None` if that takes too many reads.
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
