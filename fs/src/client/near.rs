//! Reads of chunks of other processes that are read here: their servers have lent their files
//! (docs/decisions/lending.md).
//!
//! Such a read is answered like one in a filesystem of one process: nothing is fetched ahead, and no block is
//! kept, since both would be copies of what the page cache has. It is answered at once, on the thread that was asked, if the
//! pages are in memory; else a thread that may wait for a disk does it. It has to lie in committed chunks alone, one place of the
//! object, with nothing newer here, and in no lattice, of which many pieces are better fetched at once; every other read
//! goes the way of far chunks.

use slabfs_mdserver::api::Stored;
use slabfs_model::Hyperslab;
use slabfs_model::layout::boxes_of_run;
use slabfs_objstore::client::Servers;

use super::Client;
use super::block_cache::BLOCK;
use super::committed::{Committed, Piece};
use super::geometry::Geometry;
use super::handle::{Handle, ReadSink};
use super::object::Object;

/// Pieces of a read that is answered at once: what has more is not short.
const FEW: usize = 16;

/// How a read is answered that must not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtOnce {
    /// From memory of this process, or from its own servers.
    Here,
    /// From a chunk that is near, if all of it that counts is in memory.
    Near,
}

impl Handle {
    /// How a read of `len` bytes at `offset` may be answered at once, as it looks before it has begun.
    pub(super) fn at_once(&self, offset: u64, len: usize) -> Option<AtOnce> {
        if self.client.local() {
            return Some(AtOnce::Here);
        }
        if self.selected.is_some() || self.client.lapsed() || self.due(offset, len) {
            return None;
        }
        let geometry = self.object.geometry.try_read()?;
        let end = (offset + len as u64).min(self.object.size(&geometry));
        let state = self.object.state.lock();
        if !state.streams.is_empty() || state.taken.is_some() {
            return None;
        }
        if !state.runs.overlaps(offset, end) && self.is_ahead(offset, len) {
            return Some(AtOnce::Here);
        }
        let cached = len as u64 <= BLOCK
            && (state.runs.covers(offset, end)
                || self.client.cache().holds(&self.object, offset, end));
        match cached {
            true => Some(AtOnce::Here),
            false => self.client.servers().are_any_lent().then_some(AtOnce::Near),
        }
    }

    /// Where a read finds its bytes, if all of them are near. Never waits for a server.
    pub(super) fn near(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Option<Committed> {
        if self.selected.is_some() || !self.client.servers().are_any_lent() {
            return None;
        }
        let end = (offset + len as u64).min(size);
        if offset >= end {
            return None;
        }
        {
            let state = self.object.state.lock();
            let newer = state.taken.is_some() || !state.streams.is_empty();
            if newer || state.runs.overlaps(offset, end) {
                return None;
            }
        }
        // After that look: what has been flushed since is in the tiling.
        let mut boxes = Vec::new();
        boxes_of_run(&geometry.cells_at(size), offset, end - offset, &mut boxes);
        let [one] = boxes.as_slice() else { return None };
        self.client
            .plan_near(&self.object, geometry, &Hyperslab::from_region(one))
    }
}

/// Chunks of an object beyond which all files are given back, not only its own.
const MANY: usize = 4096;

impl Client {
    /// Gives the bytes of a plan of near pieces, if they lie together in one chunk and in memory.
    pub(super) fn show_at_once(&self, plan: &Committed, sink: &mut dyn ReadSink) -> bool {
        let [piece] = plan.pieces.as_slice() else {
            return false;
        };
        self.servers().show_at_once(
            piece.server,
            &piece.name,
            &piece.form,
            &piece.chunk,
            &mut |bytes| sink.give(bytes),
        )
    }

    /// Others are about to write to an object: the files of its chunks are given back, since those that are replaced take
    /// room for as long as somebody has them.
    pub(super) fn give_back_files(&self, object: &Object) {
        let servers = self.servers();
        if !servers.are_any_lent() {
            return;
        }
        let chunks = object.tiling.read();
        if chunks.tiling.len() > MANY {
            return servers.give_back_all();
        }
        let stored = chunks
            .tiling
            .iter()
            .filter_map(|record| match &record.value {
                Stored::Chunk(stored) => Some((stored.server, stored.name())),
                Stored::Fill => None,
            });
        servers.give_back(&stored.collect::<Vec<_>>());
    }

    /// The chunks of `slab`, if the tiling is here and they are few and near.
    fn plan_near(
        &self,
        object: &Object,
        geometry: &Geometry,
        slab: &Hyperslab,
    ) -> Option<Committed> {
        if geometry.grid.is_some() || !self.has_tiling(object, geometry) {
            return None;
        }
        let mut plan = Committed::default();
        self.plan(object, geometry, slab, &mut plan).ok()?;
        let few = !plan.pieces.is_empty() && plan.pieces.len() <= FEW;
        (few && plan.holes.is_empty() && plan.is_near(self.servers())).then_some(plan)
    }

    /// Whether the tiling is known as it is to be, and nobody changes it just now.
    fn has_tiling(&self, object: &Object, geometry: &Geometry) -> bool {
        object.tiling.try_read().is_some_and(|chunks| {
            (chunks.version).is_some_and(|version| version >= geometry.info.tiling)
        })
    }
}

impl Committed {
    fn is_near(&self, servers: &Servers) -> bool {
        let near = |piece: &Piece| !piece.lattice && servers.is_near(piece.server, &piece.name);
        self.pieces.iter().all(near)
    }
}
