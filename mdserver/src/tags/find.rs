//! The search: from a query to a page of hits.
//!
//! The index gives candidates, each is read from the store and asked whether it matches and whether
//! the caller could have listed it; the index's word alone is good only where he may read the tags. No lock is held meanwhile but for a look at a directory. A page
//! ends when it is full or when it took [`SLICE`], with a cursor that says where to go on; so no
//! request takes long, whatever is asked, and nothing is kept here between two pages.
//!
//! The cursor has the plan and the place in it. An inode may stand at several places of a plan (a list
//! with several members in a range, two members of an `or`): within a page it is told once, and in
//! later pages only at the first place at which it could stand.

use serde::{Deserialize, Serialize};
use slabfs_model::{ObjectId, Tag};
use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

use super::candidates::{Candidates, Step};
use super::entry::{entries, key_of};
use super::paths::Paths;
use super::plan::{Branch, Part, Plan, keys, plan};
use super::query::{Builtin, Query, Subject};
use super::subject::{Candidate, is_object};
use crate::api::{Find, Found, Hit, Ino, MAX_HITS, MdError, Reply, Time};
use crate::core::Core;
use crate::keys as stored;
use crate::records::{InodeHead, decode_head};

/// How long one page may take.
const SLICE: Duration = Duration::from_millis(150);
/// Bytes of paths and tags after which a page is full.
const PAGE_BYTES: usize = 2 << 20;
/// Inodes read from the store at a time when the index does not help.
const SCANNED: usize = 256;

/// Where a search goes on.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cursor {
    plan: Plan,
    /// The branch in the plan.
    branch: u32,
    /// The place in the branch; of a scan the last inode.
    place: Vec<u8>,
    /// The plan has all that the query asks of the index.
    whole: bool,
}

/// Searches.
pub(crate) fn find(core: &Core, find: Find) -> Result<Reply, MdError> {
    let query = Query::parse(&find.query).map_err(|error| MdError::Invalid(error.to_string()))?;
    if let Some((share, of)) = find.part
        && share >= of
    {
        return Err(MdError::Invalid(format!(
            "there is no share {share} of {of}: shares are 0 to one less than there are"
        )));
    }
    let cursor = match &find.after {
        Some(after) => postcard::from_bytes(after)
            .map_err(|_| MdError::Invalid("the search cannot go on here: begin anew".to_owned()))?,
        None if find.only.is_some() => Cursor {
            plan: Plan::Scan,
            branch: 0,
            place: Vec::new(),
            whole: false,
        },
        None => begin(core, &query)?,
    };
    let search = Search {
        core,
        query: &query,
        find: &find,
        kinds: query.names(Builtin::Kind),
        precise: cursor.whole && query.is_precise(),
        paths: RefCell::new(Paths::new(core, find.who.as_ref(), find.under)),
        until: Instant::now() + SLICE,
        now: Time::now(),
        resumed: find.after.is_some().then_some(cursor.branch as usize),
        seen: HashSet::new(),
        found: Found::default(),
        bytes: 0,
    };
    match find.only {
        Some(only) => search.only(only),
        None => search.run(cursor),
    }
    .map(Reply::Found)
}

fn begin(core: &Core, query: &Query) -> Result<Cursor, MdError> {
    let mut failed = None;
    let access = query.access_with(&mut |pattern| {
        keys(&core.tags, pattern).unwrap_or_else(|error| {
            failed = Some(error);
            None
        })
    });
    if let Some(error) = failed {
        return Err(error);
    }
    let (plan, whole) = plan(&core.tags, access);
    Ok(Cursor {
        plan,
        branch: 0,
        place: Vec::new(),
        whole,
    })
}

/// A page under way.
struct Search<'a> {
    core: &'a Core,
    query: &'a Query,
    find: &'a Find,
    /// The query speaks of kinds: not only objects are found.
    kinds: bool,
    /// All that the index has for the query are hits.
    precise: bool,
    paths: RefCell<Paths<'a>>,
    until: Instant,
    now: Time,
    /// The branch in which the page began, if it is not the first page.
    resumed: Option<usize>,
    /// What was told in this page.
    seen: HashSet<Ino>,
    found: Found,
    bytes: usize,
}

impl Search<'_> {
    /// Looks at one inode.
    fn only(mut self, ino: Ino) -> Result<Found, MdError> {
        if self.mine(ino)
            && let Some(inode) = Candidate::read(self.core, ino)?
        {
            self.consider(inode, false, |_, _| false)?;
        }
        Ok(self.found)
    }

    fn run(mut self, mut cursor: Cursor) -> Result<Found, MdError> {
        let ended = match &cursor.plan {
            Plan::Scan => self.scan(&mut cursor.place)?,
            Plan::Branches(branches) => {
                let mut at = cursor.branch as usize;
                let mut place = std::mem::take(&mut cursor.place);
                let ended = loop {
                    let Some(branch) = branches.get(at) else {
                        break true;
                    };
                    if !self.branch(branches, at, branch, &mut place)? {
                        break false;
                    }
                    place.clear();
                    at += 1;
                    // Many branches may have nothing.
                    if at < branches.len() && self.full() {
                        break false;
                    }
                };
                (cursor.branch, cursor.place) = (at as u32, place);
                ended
            }
        };
        if !ended {
            let next = postcard::to_stdvec(&cursor)
                .map_err(|error| MdError::Io(format!("cannot encode a cursor: {error}")))?;
            self.found.next = Some(next);
        }
        Ok(self.found)
    }

    fn full(&self) -> bool {
        let limit = self.find.limit.clamp(1, MAX_HITS) as usize;
        self.found.hits.len() >= limit || self.bytes >= PAGE_BYTES || Instant::now() >= self.until
    }

    /// Reads a branch from a place on; whether it came to its end.
    fn branch(
        &mut self,
        branches: &[Branch],
        at: usize,
        branch: &Branch,
        place: &mut Vec<u8>,
    ) -> Result<bool, MdError> {
        let mut candidates = Candidates::new(&self.core.tags, branch, place)?;
        loop {
            match candidates.next(place)? {
                Step::End => return Ok(true),
                Step::Pause => candidates = Candidates::new(&self.core.tags, branch, place)?,
                Step::Candidate(ino) => {
                    if self.mine(ino)
                        && !self.seen.contains(&ino)
                        && let Some(inode) = Candidate::read(self.core, ino)?
                    {
                        let told = |candidate: &Candidate<'_, '_>, resumed: Option<usize>| {
                            resumed.is_some_and(|resumed| {
                                told_before(candidate, branches, (resumed, at), place)
                            })
                        };
                        self.consider(inode, self.trusts(ino), told)?;
                    }
                }
            }
            if self.full() {
                return Ok(false);
            }
        }
    }

    /// Reads all inodes behind one; whether it came to the end.
    fn scan(&mut self, place: &mut Vec<u8>) -> Result<bool, MdError> {
        let (first, to) = stored::inodes();
        let mut from = match place[..].try_into() {
            Ok(ino) => stored::after(&stored::inode(ObjectId(u64::from_be_bytes(ino)))),
            Err(_) => first,
        };
        loop {
            let page = self.core.kv.scan(&from, &to, SCANNED)?;
            for (key, bytes) in &page {
                let inode = decode_head(key, bytes)?;
                let ino = inode.attr.ino;
                if self.mine(ino) {
                    self.consider((inode, bytes.clone()), false, |_, _| false)?;
                }
                place.clear();
                place.extend_from_slice(&ino.0.to_be_bytes());
                if self.full() {
                    return Ok(false);
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == SCANNED => from = stored::after(key),
                _ => return Ok(true),
            }
        }
    }

    /// Whether an inode is in the caller's share.
    fn mine(&self, ino: Ino) -> bool {
        self.find.part.is_none_or(|(share, of)| {
            xxh3_64(&ino.0.to_le_bytes()) % u64::from(of) == u64::from(share)
        })
    }

    /// Whether what the index says of an inode needs no verification.
    fn trusts(&self, ino: Ino) -> bool {
        self.precise && self.core.tags.is_exact(ino)
    }

    /// Takes a candidate in if it is a hit (which `trusted` says of it already) and was not told before.
    fn consider(
        &mut self,
        (inode, bytes): (InodeHead, Vec<u8>),
        trusted: bool,
        told: impl Fn(&Candidate<'_, '_>, Option<usize>) -> bool,
    ) -> Result<(), MdError> {
        if !self.kinds && !is_object(&inode) || inode.attr.nlink == 0 {
            return Ok(());
        }
        let (ino, now) = (inode.attr.ino, self.now);
        let candidate = Candidate::new(self.core, &self.paths, (inode, bytes), now);
        let hit = (trusted && candidate.readable || self.query.matches(&candidate))
            && candidate.path().is_some()
            && !told(&candidate, self.resumed);
        candidate.check()?;
        if !hit {
            return Ok(());
        }
        self.seen.insert(ino);
        self.found.count += 1;
        if self.find.count_only {
            return Ok(());
        }
        let tag = self.find.with_tag.as_deref();
        let tag = tag
            .and_then(|key| candidate.tag(key))
            .map(|tag| tag.into_owned());
        let tags = match self.find.with_tags {
            true => candidate.tags().to_vec(),
            false => Vec::new(),
        };
        candidate.check()?;
        let attr = &candidate.inode.attr;
        let (kind, size, mtime) = (attr.kind, attr.size, attr.mtime);
        let path = candidate.into_path();
        let of_tag = |tag: &Tag| tag.bytes.len() + 256;
        self.bytes += path.len()
            + 64
            + tag.as_ref().map_or(0, of_tag)
            + tags.iter().map(|(_, tag)| of_tag(tag)).sum::<usize>();
        self.found.hits.push(Hit {
            ino,
            kind,
            path,
            size,
            mtime,
            tags,
            tag,
        });
        Ok(())
    }
}

/// Whether a page before this one, which began in branch `resumed`, had the candidate that stands at
/// `place` of branch `at`: at a branch before, or at a lower place of this one.
fn told_before(
    candidate: &Candidate<'_, '_>,
    branches: &[Branch],
    (resumed, at): (usize, usize),
    place: &[u8],
) -> bool {
    let earlier = &branches[..resumed.min(branches.len())];
    let covers = |branch: &Branch| {
        !branch.is_empty()
            && branch
                .iter()
                .all(|part| first_in(candidate, part).is_some())
    };
    if earlier.iter().any(covers) {
        return true;
    }
    // Postings have an inode once.
    match &branches[at][..] {
        _ if at > resumed => branches.get(resumed).is_some_and(covers),
        [part] if !part.posting => {
            let first = first_in(candidate, part);
            first.is_some_and(|first| first[..] < *place)
        }
        _ => false,
    }
}

/// The candidate's first entry in a range of the index.
fn first_in(candidate: &Candidate<'_, '_>, part: &Part) -> Option<Vec<u8>> {
    let ino = candidate.inode.attr.ino;
    let within = |entry: &Vec<u8>| *entry >= part.from && *entry < part.to;
    // Of all keys that begin alike, or of one.
    if part.from.first() == Some(&b'k') && !part.posting {
        let mut first = None;
        candidate.each_key(&mut |key| {
            let of = entries(ino, &[(key, Tag::bytes([]))]);
            first = of.into_iter().find(within);
            first.is_some()
        });
        return first;
    }
    let key = key_of(&part.from)?;
    let tag = candidate.tag(key)?;
    let of = entries(ino, &[(key, tag.into_owned())]);
    of.into_iter().find(within)
}
