//! Reads of chunks of other processes that are read here: their servers have lent their files
//! (docs/decisions/lending.md).
//!
//! Such a read is answered like one in a filesystem of one process: nothing is fetched ahead, and no block is
//! kept, since both would be copies of what the page cache has. It is answered at once, on the thread that was asked, if the
//! pages are in memory; else a thread that may wait for a disk does it. It has to lie in committed chunks alone, one place of the
//! object, with nothing newer here; every other read goes the way of far chunks.

use slabfs_mdserver::api::Stored;
use slabfs_model::Hyperslab;
use slabfs_model::layout::boxes_of_run;
use slabfs_objstore::client::Servers;

use super::Client;
use super::committed::{Committed, Piece};
use super::geometry::Geometry;
use super::handle::Handle;
use super::object::Object;

/// Pieces of a read that is answered at once: what has more is not short.
const FEW: usize = 16;

impl Handle {
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

impl Handle {
    /// Whether a read is answered without waiting for a server or a disk: its bytes are near, together, and in memory.
    pub(super) fn is_shown_at_once(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: usize,
    ) -> bool {
        let Some(plan) = self.near(geometry, size, offset, len) else {
            return false;
        };
        match plan.pieces.as_slice() {
            [piece] => self.client.servers().is_in_memory(
                piece.server,
                &piece.name,
                &piece.form,
                &piece.chunk,
            ),
            _ => false,
        }
    }
}

impl Client {
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
        // Of a lattice each piece would be looked up by itself: many of them are better fetched at once.
        let near = |piece: &Piece| !piece.over && servers.is_near(piece.server, &piece.name);
        self.pieces.iter().all(near)
    }
}
