//! Reads of chunks through file descriptors that data servers on the same host have handed out
//! (docs/decisions/18-same-host.md).
//!
//! Such a read works like one in a filesystem of one process: no read-ahead and no block cache, since both would copy
//! the page cache. If the pages are in memory, it is answered at once on the calling thread; otherwise by a thread
//! that may wait for a disk. The read has to lie in committed chunks, be one box of the object, with no overlay here,
//! and no lattice, whose many pieces are better fetched in one request. Every other read goes through the data
//! servers.
//!
//! Consecutive rows of one chunk arrive as separate requests. So a handle remembers the position of its last read
//! ([`Place`]). It is valid for one form of the object and one version of its tiling, and is checked under the same
//! locks as the tiling itself would be.

use std::sync::Arc;

use slabfs_mdserver::api::Stored;
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Axis, Hyperslab, Region, ServerId, Version};
use slabfs_objstore::client::Servers;
use slabfs_objstore::{ChunkForm, ChunkName};

use crate::client::Client;
use crate::client::coherence::rights::By;
use crate::client::handle::{Handle, ReadSink};
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::block_cache::BLOCK;
use crate::client::stored::committed::{Committed, Piece};
use crate::client::stored::tilings::{Chunks, Need};

/// Most pieces of a read that is answered at once: a read with more is not short.
const FEW: usize = 16;

/// How a read is answered that must not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum AtOnce {
    /// From memory of this process, or from its own servers.
    Here,
    /// From a chunk on the same host, if all its data that the read needs is in memory.
    SameHost,
}

impl Handle {
    /// How a read of `len` bytes at `offset` may be answered at once, as an estimate before it begins.
    pub(in crate::client) fn at_once(&self, offset: u64, len: usize) -> Option<AtOnce> {
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
            false => self
                .client
                .servers()
                .has_same_host_files()
                .then_some(AtOnce::SameHost),
        }
    }

    /// The pieces of a read, if all of them are on the same host. Never waits for a server.
    pub(in crate::client) fn read_same_host(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Option<Committed> {
        let region = self.same_host_box(geometry, size, offset, len)?;
        let plan = self
            .client
            .plan_same_host(&self.object, geometry, &region)?;
        plan.is_same_host(self.client.servers()).then_some(plan)
    }

    /// Returns the bytes of a read, if they are contiguous in one chunk on the same host and in memory.
    pub(in crate::client) fn show_at_once(
        &self,
        geometry: &Geometry,
        size: u64,
        (by, offset, len): (By, u64, usize),
        sink: &mut dyn ReadSink,
    ) -> bool {
        let keeps = by != By::Program;
        let Some(region) = self.same_host_box(geometry, size, offset, len) else {
            return false;
        };
        let known = self.known_place(geometry);
        if let Some(place) = &known
            && let Some(chunk) = place.within(&region)
        {
            return self.show_of(&place.of, &chunk, keeps, sink);
        }
        let Some(plan) = self.client.plan_same_host(&self.object, geometry, &region) else {
            return false;
        };
        if plan.pieces.len() > 1 && self.object.coupled.in_memory() {
            // Nothing of it waits for a disk.
            let here = plan.is_same_host(self.client.servers());
            let slab = Hyperslab::from_region(&region);
            return here && self.client.show_plan(&slab, &plan, sink).unwrap_or(false);
        }
        let Ok([piece]) = <[Piece; 1]>::try_from(plan.pieces) else {
            return false;
        };
        let of = ChunkOf {
            server: piece.server,
            name: piece.name,
            form: piece.form,
        };
        let complete = !piece.lattice && piece.want.volume() == region.volume();
        if !complete || !self.show_of(&of, &piece.chunk, keeps, sink) {
            return false;
        }
        self.note_place(geometry, known, of, &piece.chunk, &region);
        true
    }

    fn show_of(
        &self,
        of: &ChunkOf,
        chunk: &Hyperslab,
        keeps: bool,
        sink: &mut dyn ReadSink,
    ) -> bool {
        self.client.servers().show_at_once(
            of.server,
            &of.name,
            &of.form,
            chunk,
            keeps,
            &mut |bytes| sink.give(bytes),
        )
    }

    /// The box of a plain read, if there is no overlay on it here and there may be chunks on the same host.
    fn same_host_box(
        &self,
        geometry: &Geometry,
        size: u64,
        offset: u64,
        len: usize,
    ) -> Option<Region> {
        if self.selected.is_some() || !self.client.servers().has_same_host_files() {
            return None;
        }
        let end = (offset + len as u64).min(size);
        if offset >= end {
            return None;
        }
        {
            let state = self.object.state.lock();
            let overlay = state.taken.is_some() || !state.streams.is_empty();
            if overlay || state.runs.overlaps(offset, end) {
                return None;
            }
        }
        // After that check: data flushed since then is in the tiling.
        let mut boxes = Vec::new();
        boxes_of_run(&geometry.cells_at(size), offset, end - offset, &mut boxes);
        match boxes.len() {
            1 => boxes.pop(),
            _ => None,
        }
    }

    /// The position of the previous read, if the object still has the same form and the same chunks.
    fn known_place(&self, geometry: &Geometry) -> Option<Arc<Place>> {
        let place = self.place.lock().clone()?;
        let chunks = self.object.tiling.try_read()?;
        let same = place.form == geometry.number
            && chunks.version == Some(place.version)
            && place.version >= geometry.info.tiling;
        same.then_some(place)
    }

    /// Records the position of a read; when the same chunk is read twice in a row, also the cells that it alone
    /// contains.
    fn note_place(
        &self,
        geometry: &Geometry,
        known: Option<Arc<Place>>,
        of: ChunkOf,
        chunk: &Hyperslab,
        region: &Region,
    ) {
        let before = known.filter(|place| place.of.name == of.name);
        if before.as_ref().is_some_and(|place| place.looked) {
            return;
        }
        let again = before.is_some();
        let Some(chunks) = self.object.tiling.try_read() else {
            return;
        };
        let Some(version) = chunks.version else {
            return;
        };
        let mut cells = Region {
            offset: region.offset.clone(),
            shape: of.form.shape.clone(),
        };
        for (offset, axis) in cells.offset.iter_mut().zip(&chunk.axes) {
            *offset = offset.saturating_sub(axis.start);
        }
        // If not all records of these cells are known, other chunks may contain some of them.
        let known = chunks.has(Need::Within(&cells));
        let own = again && known && is_of_one(&chunks, &cells, &of.name);
        *self.place.lock() = Some(Arc::new(Place {
            form: geometry.number,
            version,
            of,
            looked: again,
            own: own.then_some(cells),
        }));
    }
}

/// Whether one chunk contains all cells of a box, and no other chunk any of them.
fn is_of_one(chunks: &Chunks, cells: &Region, name: &ChunkName) -> bool {
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    let slab = Hyperslab::from_region(cells);
    let planned = chunks
        .tiling
        .plan_within(&slab, FEW, &mut parts, &mut holes);
    let [part] = parts.as_slice() else {
        return false;
    };
    let same = matches!(&part.record.value, Stored::Chunk(stored) if stored.name() == *name);
    planned.is_ok()
        && holes.is_empty()
        && part.solid
        && same
        && part.want.volume() == cells.volume()
}

/// A chunk and its server.
#[derive(Debug)]
struct ChunkOf {
    server: ServerId,
    name: ChunkName,
    form: ChunkForm,
}

/// The position of a handle's last same-host read. The next one is usually in the same chunk, and then needs no
/// lookup.
#[derive(Debug)]
pub(in crate::client) struct Place {
    /// Valid for one form of the object, whatever its size, and one version of its tiling.
    form: u64,
    version: Version,
    of: ChunkOf,
    /// Whether `own` has been determined.
    looked: bool,
    /// The box of the chunk, if no other chunk has any of its cells.
    own: Option<Region>,
}

impl Place {
    /// A box in the chunk's coordinates, if the chunk alone contains it.
    fn within(&self, region: &Region) -> Option<Hyperslab> {
        let own = self.own.as_ref()?;
        if own.rank() != region.rank() || !own.contains(region) {
            return None;
        }
        let axes = own.offset.iter().zip(&region.offset).zip(&region.shape);
        Some(Hyperslab {
            axes: axes
                .map(|((base, at), &len)| Axis::span(at - base, len))
                .collect(),
        })
    }
}

/// Chunks of an object beyond which all file descriptors are returned, not only those of the object.
const MANY: usize = 4096;

impl Client {
    /// Other mounts are about to write to an object: the file descriptors of its chunks are closed, since a replaced
    /// chunk takes up space while its file is open.
    pub(in crate::client) fn give_back_files(&self, object: &Object) {
        let servers = self.servers();
        if !servers.has_same_host_files() {
            return;
        }
        let chunks = object.tiling.read();
        if !chunks.has_all() || chunks.version.is_none() || chunks.tiling.len() > MANY {
            return servers.give_back_all();
        }
        let stored = chunks
            .tiling
            .iter()
            .filter_map(|record| match &record.value {
                Stored::Chunk(stored) => Some((stored.server, stored.name())),
                Stored::Fill | Stored::Dropped => None,
            });
        servers.give_back(&stored.collect::<Vec<_>>());
    }

    /// The chunks of a box, if the tiling is cached and they are few.
    fn plan_same_host(
        &self,
        object: &Object,
        geometry: &Geometry,
        region: &Region,
    ) -> Option<Committed> {
        if geometry.grid.is_some() || !self.has_tiling(object, geometry, region) {
            return None;
        }
        let mut plan = Committed::default();
        let slab = Hyperslab::from_region(region);
        self.plan(object, geometry, &slab, &mut plan).ok()?;
        let few = !plan.pieces.is_empty() && plan.pieces.len() <= FEW;
        (few && plan.holes.is_empty()).then_some(plan)
    }

    /// Whether the current tiling is cached, and not being changed.
    fn has_tiling(&self, object: &Object, geometry: &Geometry, region: &Region) -> bool {
        object.tiling.try_read().is_some_and(|chunks| {
            (chunks.version).is_some_and(|version| version >= geometry.info.tiling)
                && chunks.has(Need::Within(region))
        })
    }
}

impl Committed {
    fn is_same_host(&self, servers: &Servers) -> bool {
        let same_host =
            |piece: &Piece| !piece.lattice && servers.is_same_host(piece.server, &piece.name);
        self.pieces.iter().all(same_host)
    }
}
