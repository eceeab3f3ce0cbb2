//! Chunks: each id used once, and each on its server in the form its record says.
//!
//! What a data server has beyond that is explained by a lease (a mount is writing it), by a generation
//! that was set apart, or by an order to delete; or nobody names it: garbage. Garbage may go, but what
//! is newer than the metadata, an old copy then, or may be of an incarnation after the dump they were loaded from,
//! is told apart: there may be metadata elsewhere that name it.

use serde::Serialize;
use slabfs_model::layout::grid::Grid;
use slabfs_model::{ChunkId, ObjectId, ServerId};
use slabfs_objstore::store::LocalStore;
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore, StoreError};

use super::{CheckError, Class, Facts, Finding, PAGE, Walk};
use crate::api::Stored;
use crate::dump::INCARNATION;
use crate::keys;
use crate::kv::MetaKv;
use crate::records::{Body, Inode, Object, Tile, decode};

/// How a chunk id is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// By a record that shows.
    Shown,
    /// By a record of an older generation, which is being taken apart.
    Purged,
    /// Replaced; waits for a settle.
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
    /// Whether the id is leased, and whether it was committed.
    fn lease_of(&self, chunk: ChunkId) -> Option<bool> {
        let at = self.leased.partition_point(|part| part.first <= chunk.0);
        let part = self.leased.get(at.checked_sub(1)?)?;
        let bit = chunk.0 - part.first;
        (bit < u64::from(part.count)).then(|| {
            let word = part.used.get((bit / 64) as usize).copied().unwrap_or(0);
            word & (1 << (bit % 64)) != 0
        })
    }

    /// Whether a chunk id that nothing names may have been given after a dump from which this metadata was
    /// loaded: it is above all ids that the dump knew.
    fn later_chunk(&self, chunk: ChunkId) -> bool {
        let mut lives = self.later_chunks.iter();
        lives.any(|&(from, end)| (from..end).contains(&chunk.0))
    }

    /// The same for an object that is not there.
    fn later_object(&self, ino: ObjectId) -> bool {
        let mut ends = self.limits.later.iter().map(|later| later.ino);
        let Some(end) = ends.find(|&end| end > ino.0) else {
            return false;
        };
        let above = self.inodes.partition_point(|row| row.ino < ino.0);
        self.inodes.get(above).is_none_or(|row| row.ino >= end)
    }

    /// Notes for each incarnation which chunk ids it may have given that nothing names.
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

/// Each id is used once: by one record, or it waits, or it is ordered away (on several servers, where
/// it was never committed); and leased ids that were not committed not at all.
pub(super) fn check_ids(walk: &mut Walk<'_>, facts: &mut Facts) {
    facts.find_later_chunks();
    facts.leased.sort_unstable_by_key(|part| part.first);
    for pair in facts.leased.windows(2) {
        if pair[0].first + u64::from(pair[0].count) > pair[1].first {
            walk.tell(
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
            |detail: String| walk.tell(Class::ChunkId, format!("chunk {chunk}"), detail);
        let words = |claim: &Claim| match claim.used {
            Use::Shown => format!("record {} of object {}", claim.order, claim.ino),
            Use::Purged => format!("an older generation of object {}", claim.ino),
            Use::Waiting => format!("what object {} has replaced", claim.ino),
            Use::Ordered => "an order to delete".to_owned(),
        };
        if let [first, second, ..] = uses
            && first.used != Use::Ordered
        {
            wrong(format!("is in {} and in {}", words(first), words(second)));
        }
        if facts.lease_of(chunk) == Some(false) {
            wrong(format!(
                "is leased and not committed, and is in {}",
                words(&uses[0])
            ));
        }
    }
    facts
        .claims
        .sort_unstable_by_key(|claim| (claim.server, claim.chunk, claim.used));
}

/// How closely chunks are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// That they are there, in the right form.
    Heads,
    /// Their data too, against its checksums.
    Data,
}

/// What was seen on a data server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Looked {
    /// Chunks there.
    pub chunks: u64,
    /// Bytes they take.
    pub bytes: u64,
    /// Chunks nobody names, and which may be deleted.
    #[serde(skip)]
    pub garbage: Vec<ChunkName>,
    /// Chunks that were stored after this metadata was; other metadata may name them.
    #[serde(skip)]
    pub newer: Vec<ChunkName>,
}

/// One data server under the check.
struct Look<'a, 'w> {
    walk: Walk<'w>,
    facts: &'a Facts,
    server: ServerId,
    store: &'a LocalStore,
    depth: Depth,
    looked: Looked,
    /// The object that was asked for last: chunks of one object follow each other.
    object: Option<(ObjectId, Option<Inode>)>,
}

impl Facts {
    /// Holds what the metadata names on a server against what is there.
    ///
    /// # Errors
    /// When one of the stores cannot be read; what is wrong in them goes to `tell`.
    pub fn chunks(
        &self,
        kv: &dyn MetaKv,
        (server, store): (ServerId, &LocalStore),
        depth: Depth,
        tell: &mut dyn FnMut(Finding),
    ) -> Result<Looked, CheckError> {
        let from = self.claims.partition_point(|claim| claim.server < server);
        let to = self.claims.partition_point(|claim| claim.server <= server);
        let mut claims = self.claims[from..to].iter().peekable();
        let mut look = Look {
            walk: Walk { kv, tell },
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
                // Used twice was told before; the first use is the one that shows, if any does.
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
    fn tell(&mut self, class: Class, name: &ChunkName, detail: impl std::fmt::Display) {
        let server = self.server;
        self.walk
            .tell(class, format!("{name} on data server {server}"), detail);
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

    /// What is named and not there. Only what shows is missed.
    fn missing(&mut self, claim: &Claim) {
        if claim.used == Use::Shown {
            let (order, ino) = (claim.order, claim.ino);
            self.tell(
                Class::MissingChunk,
                &ChunkName::Free(claim.chunk),
                format!("is not there, and record {order} of object {ino} names it"),
            );
        }
    }

    /// A free chunk that is named.
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

    /// Its form and, if that is asked for, its data.
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
        // Elements and fill matter to packed chunks and to those with holes only.
        let same = held.form.shape == wanted.shape
            && (!sealed || held.form.codec == wanted.codec)
            && (held.form.elem == wanted.elem || !wanted.codec.shuffles());
        if !same {
            self.tell(
                Class::WrongForm,
                name,
                format!("is {}, and has to be {}", of(&held.form), of(wanted)),
            );
        } else if sealed && !held.sealed {
            self.tell(
                Class::WrongForm,
                name,
                "was never finished, and a record names it",
            );
        } else if let Some(raw) = held.raw
            && Some(raw) != wanted.volume()
        {
            self.tell(
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

    /// A chunk that could not be read: damage, or a store that fails.
    fn unread(&mut self, name: &ChunkName, error: StoreError) -> Result<(), CheckError> {
        match error {
            StoreError::Damaged { detail, .. } => self.tell(Class::DamagedChunk, name, detail),
            StoreError::Missing(_) => self.tell(Class::DamagedChunk, name, "has just vanished"),
            other => return Err(other.into()),
        }
        Ok(())
    }

    /// A free chunk that no record names.
    fn unnamed(&mut self, name: &ChunkName, chunk: ChunkId) {
        if chunk.0 >= self.facts.limits.chunk || self.facts.later_chunk(chunk) {
            self.newer(name);
        } else if self.facts.lease_of(chunk) != Some(false) {
            self.garbage(name);
        }
    }

    /// A grid chunk; the metadata names objects, not chunks.
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
        let limit = self.facts.limits.ino;
        let Some(object) = self.object(ino)? else {
            if ino.0 >= limit || self.facts.later_object(ino) {
                self.newer(name);
            } else {
                self.garbage(name);
            }
            return Ok(());
        };
        let info = &object.info;
        // Of a load: this incarnation begins where the greatest generation was set to.
        let earlier = generation / INCARNATION < object.spare / INCARNATION;
        if generation > object.spare || generation > info.generation && earlier {
            self.newer(name);
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

    fn newer(&mut self, name: &ChunkName) {
        self.tell(
            Class::NewerChunk,
            name,
            "was stored after this metadata was: the metadata is an old copy or was loaded from one, or lost commits",
        );
        self.looked.newer.push(name.clone());
    }

    fn garbage(&mut self, name: &ChunkName) {
        self.tell(Class::Garbage, name, "nobody names it");
        self.looked.garbage.push(name.clone());
    }
}
