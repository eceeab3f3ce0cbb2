//! The search: from a query to a page of hits.
//!
//! The index returns candidates. Each is read from the store and checked: whether it matches the query, and whether
//! the caller could have listed it. The index alone is trusted only if the caller may read the tags. No lock is held
//! meanwhile except for a lookup of a directory. A page ends when it is full or when it took [`SLICE`], with a cursor
//! that names the position to continue from; so no request takes long, whatever the query, and no state is stored
//! here between two pages.
//!
//! The cursor contains the decisions made when the search was planned, and the position; each page plans again. An
//! inode may occur at several positions of a plan: within a page it is returned once, and in later pages only if no
//! earlier page returned it (`seen`).

use serde::{Deserialize, Serialize};
use slabfs_model::{ObjectId, Tag};
use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

use super::candidates::{Candidates, Step};
use super::paths::Paths;
use super::plan::{Choices, Join, Plan, Reads, plan, restart_search};
use super::query::{Builtin, Query, Subject};
use super::seen::Seen;
use super::subject::{Candidate, is_object};
use crate::api::{Find, Found, Hit, Ino, MAX_HIT_TAGS, MAX_HITS, MdError, Time, op};
use crate::core::{Core, Ctx};
use crate::keys as stored;
use crate::kv::pairs;
use crate::records::{InodeHead, decode_head};

/// How long one page may take.
const SLICE: Duration = Duration::from_millis(150);
/// Bytes of paths and tags after which a page is full. With a last hit of [`MAX_HIT_TAGS`] it fits a reply of a
/// mount, which has 8 MiB, even if all of it are control characters, each of which takes six bytes in JSON.
const PAGE_BYTES: usize = 1 << 20;
/// Inodes read from the store at a time when the index does not help.
const SCANNED: usize = 256;

/// Longest cursor that is accepted: that of a query of ten thousand comparisons is shorter.
const MAX_CURSOR: usize = 1 << 20;

/// The position from which a search continues.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Cursor {
    /// Hash of the query's text.
    digest: u64,
    choices: Choices,
    at: At,
}

/// A position in a plan: the first that was not examined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum At {
    /// In a scan.
    Inode(Ino),
    /// In the ranges.
    Entry(Vec<u8>),
    /// In the joins: the number of one, and the inode in it.
    Join(u128, Ino),
}

/// Searches.
pub(crate) fn find(core: &Core, _: &Ctx, find: op::Find) -> Result<Found, MdError> {
    let until = Instant::now() + SLICE;
    let query = Query::parse_with(&find.query, &is_user)
        .map_err(|error| MdError::Invalid(error.to_string()))?;
    if let Some((share, of)) = find.part
        && share >= of
    {
        return Err(MdError::Invalid(format!(
            "there is no share {share} of {of}: shares are 0 to one less than there are"
        )));
    }
    let mut search = Search {
        core,
        query: &query,
        find: &find,
        kinds: query.names(Builtin::Kind),
        precise: false,
        paths: RefCell::new(Paths::new(core, find.who.as_ref(), find.under)),
        until,
        now: Time::now(),
        seen: HashSet::new(),
        found: Found::default(),
        bytes: 0,
    };
    if let Some(only) = find.only {
        return search.only(only);
    }
    let digest = xxh3_64(find.query.as_bytes());
    let before = match &find.after {
        Some(after) if after.len() <= MAX_CURSOR => {
            let cursor: Cursor = postcard::from_bytes(after).map_err(|_| restart_search())?;
            if cursor.digest != digest {
                return Err(restart_search());
            }
            Some(cursor)
        }
        Some(_) => return Err(restart_search()),
        None => None,
    };
    let (plan, choices) = plan(
        &core.tags,
        &query,
        before.as_ref().map(|cursor| &cursor.choices),
    )?;
    let at = before.map(|cursor| cursor.at);
    if let Some(at) = search.run(&plan, at.as_ref())? {
        let cursor = Cursor {
            digest,
            choices,
            at,
        };
        let next = postcard::to_stdvec(&cursor)
            .map_err(|error| MdError::Io(format!("cannot encode a cursor: {error}")))?;
        search.found.next = Some(next);
    }
    Ok(search.found)
}

/// Whether a user of this name exists; true if that cannot be determined.
fn is_user(name: &str) -> bool {
    !matches!(nix::unistd::User::from_name(name), Ok(None))
}

/// A page being filled.
struct Search<'a> {
    core: &'a Core,
    query: &'a Query,
    find: &'a Find,
    /// The query names kinds: it finds not only objects.
    kinds: bool,
    /// Everything that the index returns for the query is a hit.
    precise: bool,
    paths: RefCell<Paths<'a>>,
    until: Instant,
    now: Time,
    /// Inodes examined for this page: an inode may occur at many positions.
    seen: HashSet<Ino>,
    found: Found,
    bytes: usize,
}

impl Search<'_> {
    /// Examines one inode.
    fn only(mut self, ino: Ino) -> Result<Found, MdError> {
        if self.mine(ino)
            && let Some(inode) = Candidate::read(self.core, ino)?
        {
            self.consider(inode, false, |_| false)?;
        }
        Ok(self.found)
    }

    /// Fills a page; returns the start of the next one, unless this was the last.
    fn run(&mut self, plan: &Plan, at: Option<&At>) -> Result<Option<At>, MdError> {
        match (plan, at) {
            (Plan::Scan, None) => self.scan(ObjectId(0)),
            (Plan::Scan, Some(At::Inode(ino))) => self.scan(*ino),
            (Plan::Reads(reads), None | Some(At::Entry(_) | At::Join(..))) => {
                self.precise = reads.exact && self.query.is_precise();
                let seen = at.map(|at| Seen::before(reads, at));
                let next = match at {
                    Some(At::Join(..)) => None,
                    Some(At::Entry(entry)) => self.ranges(reads, entry, seen.as_ref())?,
                    _ => self.ranges(reads, &[], seen.as_ref())?,
                };
                match next {
                    Some(entry) => Ok(Some(At::Entry(entry))),
                    None => self.joins(&reads.joins, at, seen.as_ref()),
                }
            }
            _ => Err(restart_search()),
        }
    }

    fn full(&self) -> bool {
        let limit = self.find.limit.clamp(1, MAX_HITS) as usize;
        self.found.hits.len() >= limit || self.bytes >= PAGE_BYTES || Instant::now() >= self.until
    }

    /// Reads the ranges from an entry on; returns the entry to continue at if the page ended.
    fn ranges(
        &mut self,
        reads: &Reads,
        from: &[u8],
        seen: Option<&Seen<'_>>,
    ) -> Result<Option<Vec<u8>>, MdError> {
        let first = reads.ranges.partition_point(|range| range.to[..] <= *from);
        let mut entry = Vec::new();
        for (index, range) in reads.ranges.iter().enumerate().skip(first) {
            let mut candidates = Candidates::range(&self.core.tags, range, from)?;
            while let Step::Candidate(ino) = candidates.next(&mut entry)? {
                self.look_at(ino, &entry, seen, !range.unsure)?;
                if self.full() {
                    return Ok(Some(stored::after(&entry)));
                }
            }
            // Many ranges may be empty.
            let more = index + 1 < reads.ranges.len() || !reads.joins.is_empty();
            if more && self.full() {
                return Ok(Some(range.to.clone()));
            }
        }
        Ok(None)
    }

    /// Reads the joins; returns the position to continue at if the page ended.
    fn joins(
        &mut self,
        joins: &[Join],
        at: Option<&At>,
        seen: Option<&Seen<'_>>,
    ) -> Result<Option<At>, MdError> {
        let (number, from) = match at {
            Some(At::Join(number, ino)) => (*number, *ino),
            _ => (0, ObjectId(0)),
        };
        let first = joins.partition_point(|join| join.number < number);
        for (index, join) in joins.iter().enumerate().skip(first) {
            let from = if join.number == number {
                from
            } else {
                ObjectId(0)
            };
            let mut candidates = Candidates::join(&self.core.tags, join, from)?;
            loop {
                let next = match candidates.next(&mut Vec::new())? {
                    Step::End => break,
                    Step::Pause(next) => next,
                    Step::Candidate(ino) => {
                        self.look_at(ino, &[], seen, true)?;
                        ObjectId(ino.0.saturating_add(1))
                    }
                };
                if self.full() {
                    return Ok(Some(At::Join(join.number, next)));
                }
            }
            if let Some(next) = joins.get(index + 1)
                && self.full()
            {
                return Ok(Some(At::Join(next.number, ObjectId(0))));
            }
        }
        Ok(None)
    }

    /// Examines a candidate of the index, with `entry` if it is in a range; `sure`: the index has it because it fits
    /// the query.
    fn look_at(
        &mut self,
        ino: Ino,
        entry: &[u8],
        seen: Option<&Seen<'_>>,
        sure: bool,
    ) -> Result<(), MdError> {
        if !self.mine(ino) || !self.seen.insert(ino) {
            return Ok(());
        }
        let Some(inode) = Candidate::read(self.core, ino)? else {
            return Ok(());
        };
        self.consider(inode, sure && self.trusts(ino), |candidate| {
            seen.is_some_and(|seen| seen.has(candidate, entry))
        })
    }

    /// Reads all inodes from one on; returns the position to continue at if the page ended.
    fn scan(&mut self, from: Ino) -> Result<Option<At>, MdError> {
        let range = (stored::inode(from).to_vec(), stored::inodes().1);
        for pair in pairs(&*self.core.kv, range, SCANNED) {
            let (key, bytes) = pair?;
            let inode = decode_head(&key, &bytes)?;
            let ino = inode.attr.ino;
            if self.mine(ino) {
                self.consider((inode, bytes), false, |_| false)?;
            }
            if self.full() {
                return Ok(Some(At::Inode(ObjectId(ino.0.saturating_add(1)))));
            }
        }
        Ok(None)
    }

    /// Whether an inode is in the caller's share.
    fn mine(&self, ino: Ino) -> bool {
        self.find.part.is_none_or(|(share, of)| {
            xxh3_64(&ino.0.to_le_bytes()) % u64::from(of) == u64::from(share)
        })
    }

    /// Whether an inode has its names in another shard: the client asks that for paths, and leaves out what the caller could not
    /// list.
    fn nameless(&self, ino: Ino) -> bool {
        let shard = self.core.options.shard;
        shard.divided() && !shard.has_names() && ino.shard() == shard.index
    }

    /// Whether the index's entries of an inode need no verification.
    fn trusts(&self, ino: Ino) -> bool {
        self.precise && self.core.tags.is_exact(ino)
    }

    /// Adds a candidate if it is a hit (if `trusted`, it is known to be) and was not returned before.
    fn consider(
        &mut self,
        (inode, bytes): (InodeHead, Vec<u8>),
        trusted: bool,
        seen: impl Fn(&Candidate<'_, '_>) -> bool,
    ) -> Result<(), MdError> {
        if !self.kinds && !is_object(&inode) || inode.attr.nlink == 0 {
            return Ok(());
        }
        if inode.attr.ino.shard() != self.core.options.shard.index
            || self.nameless(inode.attr.ino) && !is_object(&inode)
        {
            // Its own shard finds it.
            return Ok(());
        }
        let (ino, now) = (inode.attr.ino, self.now);
        let candidate = Candidate::new(self.core, &self.paths, (inode, bytes), now);
        let hit = (trusted && candidate.readable || self.query.matches(&candidate))
            && (self.nameless(ino) || candidate.path().is_some())
            && !seen(&candidate);
        candidate.check()?;
        if !hit {
            return Ok(());
        }
        self.found.count += 1;
        if self.find.count_only {
            return Ok(());
        }
        let tag = self.find.with_tag.as_deref();
        let tag = tag
            .and_then(|key| candidate.tag(key))
            .map(|tag| tag.into_owned());
        let (tags, tags_cut) = match self.find.with_tags {
            true => candidate.first_tags(MAX_HIT_TAGS),
            false => (Vec::new(), false),
        };
        let form = self.find.with_form.then(|| candidate.form());
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
            tags_cut,
            tag,
            form,
        });
        Ok(())
    }
}
