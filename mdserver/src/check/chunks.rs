//! Checks chunks: each id is used once, and each chunk is on its server in the form that its record describes.
//!
//! Any other chunk on a data server is accounted for by a lease (a mount is writing it), by a reserved generation or by
//! an order to delete; otherwise it is garbage. Garbage may be deleted. Chunks that were stored after the metadata are
//! reported separately: the metadata is then an old copy, or was loaded from a dump and the chunk may be of a later
//! incarnation. Other metadata may refer to such chunks.

use serde::Serialize;
use slabfs_model::layout::grid::Grid;
use slabfs_model::{ChunkId, ObjectId, ServerId, ShardId};
use slabfs_objstore::store::Inspect;
use slabfs_objstore::{ChunkForm, ChunkName, StoreError};

use super::{CheckError, Class, Facts, Finding, PAGE, Walk};
use crate::api::Stored;
use crate::dump::INCARNATION;
use crate::keys;
use crate::kv::MetaKv;
use crate::records::{Body, Inode, Object, Tile, decode};

/// How a chunk id is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// By a record of the current generation.
    Shown,
    /// By a record of an older generation, which is being purged.
    Purged,
    /// Replaced; waits for its settle.
    Waiting,
    /// Ordered to be deleted.
    Ordered,
}

/// One use of a chunk id.
#[derive(Debug, Clone)]
pub(super) struct Claim {
    pub(super) server: ServerId,
    pub(super) chunk: ChunkId,
    pub(super) ino: ObjectId,
    pub(super) generation: u32,
    pub(super) order: u64,
    pub(super) used: Use,
}

/// A part of a lease.
#[derive(Debug)]
pub(super) struct LeasedPart {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) used: Vec<u64>,
}

impl Facts {
    /// Returns whether the id was committed; `None` if it is not leased.
    fn lease_of(&self, chunk: ChunkId) -> Option<bool> {
        let at = self.leased.partition_point(|part| part.first <= chunk.0);
        let part = self.leased.get(at.checked_sub(1)?)?;
        let bit = chunk.0 - part.first;
        (bit < u64::from(part.count)).then(|| {
            let word = part.used.get((bit / 64) as usize).copied().unwrap_or(0);
            word & (1 << (bit % 64)) != 0
        })
    }

    /// True if an unreferenced chunk id may have been allocated after the dump from which this metadata was loaded: it
    /// is above all ids in the dump.
    fn later_chunk(&self, chunk: ChunkId) -> bool {
        let mut ranges = self.later_chunks.iter();
        ranges.any(|&(from, end)| (from..end).contains(&chunk.0))
    }

    /// The same for an object that does not exist.
    fn later_object(&self, ino: ObjectId) -> bool {
        let mut ends = self.limits.later.iter().map(|later| later.ino);
        let Some(end) = ends.find(|&end| end > ino.0) else {
            return false;
        };
        let above = self.inodes.partition_point(|row| row.ino < ino.0);
        self.inodes.get(above).is_none_or(|row| row.ino >= end)
    }

    /// Computes for each incarnation the range of unreferenced chunk ids that it may have allocated.
    fn find_later_chunks(&mut self) {
        let mut begin = 0;
        for later in &self.limits.later {
            let incarnation = begin..later.chunk;
            let claimed = self.claims.iter().map(|claim| claim.chunk.0 + 1);
            let leased = self.leased.iter();
            let leased = leased.map(|part| part.first + u64::from(part.count));
            let known = claimed
                .chain(leased)
                .filter(|next| incarnation.contains(next));
            let from = known.max().unwrap_or(begin);
            self.later_chunks.push((from, later.chunk));
            begin = later.chunk;
        }
    }
}

/// Checks that each id is used once: by one record, as a replaced chunk, or in orders to delete (on several servers, if
/// it was never committed); and that leased ids that were not committed are not used.
pub(super) fn check_ids(walk: &mut Walk<'_>, facts: &mut Facts) {
    facts.find_later_chunks();
    facts.leased.sort_unstable_by_key(|part| part.first);
    for pair in facts.leased.windows(2) {
        if pair[0].first + u64::from(pair[0].count) > pair[1].first {
            walk.report(
                Class::ChunkId,
                format!("chunk {}", pair[1].first),
                "is leased twice",
            );
        }
    }
    facts
        .claims
        .sort_unstable_by_key(|claim| (claim.chunk, claim.used));
    for uses in facts.claims.chunk_by(|a, b| a.chunk == b.chunk) {
        let chunk = uses[0].chunk;
        let mut wrong =
            |detail: String| walk.report(Class::ChunkId, format!("chunk {chunk}"), detail);
        let describe = |claim: &Claim| match claim.used {
            Use::Shown => format!("record {} of object {}", claim.order, claim.ino),
            Use::Purged => format!("an older generation of object {}", claim.ino),
            Use::Waiting => format!("the replaced chunks of object {}", claim.ino),
            Use::Ordered => "an order to delete".to_owned(),
        };
        if let [first, second, ..] = uses
            && first.used != Use::Ordered
        {
            wrong(format!(
                "is in {} and in {}",
                describe(first),
                describe(second)
            ));
        }
        if facts.lease_of(chunk) == Some(false) {
            wrong(format!(
                "is leased and not committed, and is in {}",
                describe(&uses[0])
            ));
        }
    }
    facts
        .claims
        .sort_unstable_by_key(|claim| (claim.server, claim.chunk, claim.used));
}

/// How thoroughly chunks are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Their existence and form.
    Heads,
    /// Their data and checksums too.
    Data,
}

/// The result of checking a data server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// The number of chunks.
    pub chunks: u64,
    /// The bytes they take.
    pub bytes: u64,
    /// Unreferenced chunks, which may be deleted.
    #[serde(skip)]
    pub garbage: Vec<ChunkName>,
    /// Chunks that were stored after this metadata; other metadata may refer to them.
    #[serde(skip)]
    pub newer: Vec<ChunkName>,
}

/// The check of one data server.
struct Look<'a, 'w> {
    walk: Walk<'w>,
    facts: &'a Facts,
    server: ServerId,
    store: &'a dyn Inspect,
    depth: Depth,
    looked: Looked,
    /// The object that was looked up last: chunks of one object follow each other.
    object: Option<(ObjectId, Option<Inode>)>,
}

impl Facts {
    /// Compares the chunks that the metadata names on a server with those that exist; `seen` gets the bytes checked
    /// so far.
    ///
    /// # Errors
    /// If one of the stores cannot be read. Errors in their contents go to `report`.
    pub fn chunks(
        &self,
        kv: &dyn MetaKv,
        (server, store): (ServerId, &dyn Inspect),
        depth: Depth,
        report: &mut dyn FnMut(Finding),
        seen: &mut dyn FnMut(u64),
    ) -> Result<Looked, CheckError> {
        let from = self.claims.partition_point(|claim| claim.server < server);
        let to = self.claims.partition_point(|claim| claim.server <= server);
        let mut claims = self.claims[from..to].iter().peekable();
        let mut look = Look {
            walk: Walk { kv, report },
            facts: self,
            server,
            store,
            depth,
            looked: Looked::default(),
            object: None,
        };
        let mut after = None;
        loop {
            let page = store.list(after, PAGE)?;
            for (name, bytes) in &page {
                seen(look.looked.bytes);
                look.looked.chunks += 1;
                look.looked.bytes += bytes;
                let ChunkName::Free(chunk) = name else {
                    for claim in claims.by_ref() {
                        look.missing(claim);
                    }
                    look.grid(name)?;
                    continue;
                };
                while let Some(claim) = claims.next_if(|claim| claim.chunk < *chunk) {
                    look.missing(claim);
                }
                let Some(claim) = claims.next_if(|claim| claim.chunk == *chunk) else {
                    look.unnamed(name, *chunk);
                    continue;
                };
                // Double use was reported before; the first use is the current one, if any is.
                while claims.next_if(|claim| claim.chunk == *chunk).is_some() {}
                look.free(name, claim)?;
            }
            match page.last() {
                Some((name, _)) if page.len() == PAGE => after = Some(name.clone()),
                _ => break,
            }
        }
        claims.for_each(|claim| look.missing(claim));
        Ok(look.looked)
    }
}

impl Look<'_, '_> {
    fn report(&mut self, class: Class, name: &ChunkName, detail: impl std::fmt::Display) {
        let server = self.server;
        self.walk
            .report(class, format!("{name} on data server {server}"), detail);
    }

    fn object(&mut self, ino: ObjectId) -> Result<Option<&Object>, CheckError> {
        if self.object.as_ref().is_none_or(|(known, _)| *known != ino) {
            self.object = Some((ino, self.walk.inode(ino)?));
        }
        let inode = self.object.as_ref().and_then(|(_, inode)| inode.as_ref());
        Ok(inode.and_then(|inode| match &inode.body {
            Body::Object(object) => Some(&**object),
            _ => None,
        }))
    }

    /// A chunk that is named and missing; reported only if a current record names it.
    fn missing(&mut self, claim: &Claim) {
        if claim.used == Use::Shown {
            let (order, ino) = (claim.order, claim.ino);
            self.report(
                Class::MissingChunk,
                &ChunkName::Free(claim.chunk),
                format!("is missing, and record {order} of object {ino} names it"),
            );
        }
    }

    /// A chunk of an aligned layout that a record names.
    fn free(&mut self, name: &ChunkName, claim: &Claim) -> Result<(), CheckError> {
        if claim.used != Use::Shown {
            return Ok(());
        }
        let key = keys::tile(claim.ino, claim.generation, claim.order);
        let tile = self.walk.kv.get(&key)?;
        let tile: Option<Tile> = tile.and_then(|value| decode(&key, &value).ok());
        let (Some(tile), Some(object)) = (tile, self.object(claim.ino)?) else {
            return Ok(());
        };
        let Stored::Chunk(stored) = &tile.value else {
            return Ok(());
        };
        let wanted = stored.form(&tile.slab, &object.info);
        self.form(name, &wanted, true)
    }

    /// Checks the chunk's form and, if requested, its data.
    fn form(
        &mut self,
        name: &ChunkName,
        wanted: &ChunkForm,
        sealed: bool,
    ) -> Result<(), CheckError> {
        let held = match self.store.describe(name) {
            Ok(held) => held,
            Err(error) => return self.unread(name, error),
        };
        let of = |form: &ChunkForm| format!("{:?}, {:?}", &form.shape[..], form.codec);
        // Element size and fill value matter only to packed chunks and to chunks with holes.
        let same = held.form.shape == wanted.shape
            && (!sealed || held.form.codec == wanted.codec)
            && (held.form.elem == wanted.elem || !wanted.codec.shuffles());
        if !same {
            self.report(
                Class::WrongForm,
                name,
                format!("is {}, and should be {}", of(&held.form), of(wanted)),
            );
        } else if sealed && !held.sealed {
            self.report(
                Class::WrongForm,
                name,
                "was never finished, and a record names it",
            );
        } else if let Some(raw) = held.raw
            && Some(raw) != wanted.volume()
        {
            self.report(
                Class::WrongForm,
                name,
                format!("has {raw} bytes, and its form {:?}", wanted.volume()),
            );
        } else if self.depth == Depth::Data
            && let Err(error) = self.store.verify(name)
        {
            return self.unread(name, error);
        }
        Ok(())
    }

    /// Handles a chunk that could not be read: reports damage, returns other errors of the store.
    fn unread(&mut self, name: &ChunkName, error: StoreError) -> Result<(), CheckError> {
        match error {
            StoreError::Damaged { detail, .. } => self.report(Class::DamagedChunk, name, detail),
            StoreError::Missing(_) => {
                self.report(Class::DamagedChunk, name, "was removed during the check")
            }
            other => return Err(other.into()),
        }
        Ok(())
    }

    /// A chunk of an aligned layout that no record names.
    fn unnamed(&mut self, name: &ChunkName, chunk: ChunkId) {
        if self.of_another(chunk.shard()) {
            return;
        }
        if chunk.0 >= self.facts.limits.chunk || self.facts.later_chunk(chunk) {
            self.stored_later(name);
        } else if self.facts.lease_of(chunk) != Some(false) {
            self.garbage(name);
        }
    }

    /// A grid chunk; the metadata records objects, not chunks.
    fn grid(&mut self, name: &ChunkName) -> Result<(), CheckError> {
        let &ChunkName::Grid {
            object: ino,
            generation,
            ..
        } = name
        else {
            return Ok(());
        };
        let ordered = self.facts.grids.get(&(self.server, ino.0));
        if ordered.is_some_and(|&below| u64::from(generation) < below) {
            return Ok(());
        }
        if self.of_another(ino.shard()) {
            return Ok(());
        }
        let limit = match self.facts.limits.shard.has_names() {
            true => self.facts.limits.ino,
            // The shard of names assigns the numbers of objects.
            false => u64::MAX,
        };
        let Some(object) = self.object(ino)? else {
            if ino.0 >= limit || self.facts.later_object(ino) {
                self.stored_later(name);
            } else {
                self.garbage(name);
            }
            return Ok(());
        };
        let info = &object.info;
        // After a load: this incarnation begins at the value to which `spare` was set.
        let earlier = generation / INCARNATION < object.spare / INCARNATION;
        if generation > object.spare || generation > info.generation && earlier {
            self.stored_later(name);
        } else if generation < info.generation || generation == info.generation && !info.is_grid() {
            self.garbage(name);
        } else if generation == info.generation
            && let Ok(Some(grid)) = Grid::of(&info.layout, &info.space())
        {
            let wanted = ChunkForm {
                shape: grid.chunk,
                elem: info.dtype.size() as u32,
                codec: info.codec,
                fill: info.fill.clone(),
            };
            self.form(name, &wanted, false)?;
        }
        Ok(())
    }

    /// Whether a chunk belongs to another shard of the filesystem.
    fn of_another(&self, shard: ShardId) -> bool {
        let mine = self.facts.limits.shard;
        mine.divided() && mine.index != shard
    }

    fn stored_later(&mut self, name: &ChunkName) {
        self.report(
            Class::NewerChunk,
            name,
            "was stored after this metadata: the metadata is an old copy or was loaded from one, or lost commits",
        );
        self.looked.newer.push(name.clone());
    }

    fn garbage(&mut self, name: &ChunkName) {
        self.report(Class::Garbage, name, "no record refers to it");
        self.looked.garbage.push(name.clone());
    }
}
