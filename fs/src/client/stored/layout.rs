//! The chunks of an object for display: what `slabfs layout` draws.

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use slabfs_mdserver::api::{Ino, RightMode, Stored};
use slabfs_model::{Coords, Hyperslab, format_dims};
use slabfs_objstore::ChunkName;

use crate::client::Client;
use crate::client::coherence::rights::{self, BoxSet, By};
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::stored::tilings::Need;

/// A grid of more chunks than this is not listed: the positions follow from the grid.
const GRID_LISTED: u64 = 100_000;

/// An object's chunks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LayoutView {
    /// dtype as NumPy writes it.
    pub dtype: String,
    /// Bytes of an element.
    pub elem: u64,
    /// Dims in elements.
    pub dims: Vec<u64>,
    /// Dims with the last axis in bytes; chunks are given in these.
    pub cells: Vec<u64>,
    /// The layout's name.
    pub layout: String,
    /// The chunks, oldest first: where two overlap, the later one is visible.
    pub chunks: Vec<ChunkView>,
    /// False if the chunks of a very large grid are not listed.
    pub complete: bool,
}

/// One chunk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChunkView {
    /// First cell of its bounding box.
    pub offset: Vec<u64>,
    /// Shape of that box, in cells.
    pub shape: Vec<u64>,
    /// The box that is still visible after a shrink: offset and shape.
    pub clip: Option<(Vec<u64>, Vec<u64>)>,
    /// Steps between blocks an axis, where the chunk is no box.
    pub step: Option<Vec<u64>>,
    /// The server that holds it; none for a punched hole.
    pub server: Option<u32>,
    /// Its name there.
    pub chunk: Option<String>,
    /// Bytes it has uncoded.
    pub bytes: u64,
    /// Its number in the object, by which a file of encoded chunks finds it; of chunks of a grid none.
    #[serde(default)]
    pub order: Option<u64>,
    /// How it is encoded, if it is.
    #[serde(default)]
    pub codec: Option<String>,
}

impl Client {
    /// The chunks of an object, those of a grid as listed by its servers, as a read would find them now: dirty data of
    /// all mounts is flushed first.
    ///
    /// # Errors
    /// For an inode without data, and of the services.
    pub fn layout(self: &Arc<Self>, ino: Ino) -> Result<LayoutView, FsError> {
        self.flush_ino(ino)?;
        let object = self.borrow(ino)?;
        self.admit(&object)?;
        let need = rights::Need {
            by: By::Program,
            mode: RightMode::Read,
            long: false,
            span: None,
            cells: &|_, _| BoxSet::All,
        };
        let _op = self.enter(&object, &need)?;
        self.layout_of(&object)
    }

    /// The same without the dirty data of other mounts.
    ///
    /// # Errors
    /// As [`Client::layout`].
    pub fn own_layout(self: &Arc<Self>, ino: Ino) -> Result<LayoutView, FsError> {
        self.flush_ino(ino)?;
        self.layout_of(&*self.borrow(ino)?)
    }

    fn layout_of(self: &Arc<Self>, object: &Object) -> Result<LayoutView, FsError> {
        self.refresh(object)?;
        let geometry = object.geometry.read();
        let info = &geometry.info;
        let mut view = LayoutView {
            dtype: info.dtype.to_string(),
            elem: info.dtype.size(),
            dims: info.dims.to_vec(),
            cells: geometry.cells.to_vec(),
            layout: info.layout.to_string(),
            chunks: Vec::new(),
            complete: true,
        };
        let all = Hyperslab::all(&geometry.cells);
        let Some(grid) = &geometry.grid else {
            self.with_tiling(object, &geometry, Need::All, |tiling| {
                view.chunks.extend(tiling.iter().map(chunk_view));
            })?;
            return Ok(view);
        };
        if info.stripe.is_empty() || all.is_empty() || !info.holds {
            return Ok(view);
        }
        let count = geometry
            .cells
            .iter()
            .zip(&grid.chunk)
            .map(|(cells, chunk)| cells.div_ceil(*chunk))
            .fold(1u64, u64::saturating_mul);
        if count > GRID_LISTED {
            view.complete = false;
            return Ok(view);
        }
        let there: HashSet<Coords> = self.existing(object, &geometry)?.into_iter().collect();
        let mut parts = Vec::new();
        grid.plan(&all, &mut parts);
        parts.retain(|part| there.contains(&part.at));
        for part in parts {
            let region = grid.chunk_region(&part.at);
            let chunk = self.grid_chunk(object, &geometry, grid, part.at)?;
            let shape: Vec<u64> = part.chunk.packed_shape().to_vec();
            view.chunks.push(ChunkView {
                offset: region.offset.to_vec(),
                bytes: shape.iter().product(),
                shape,
                clip: None,
                step: None,
                server: Some(chunk.server.0),
                chunk: Some(name_of(&chunk.name)),
                order: None,
                codec: None,
            });
        }
        Ok(view)
    }
}

fn chunk_view(record: &slabfs_model::layout::Record<Stored>) -> ChunkView {
    let bounds = record.slab.bounds();
    let stored = match &record.value {
        Stored::Chunk(stored) => Some(stored),
        Stored::Fill | Stored::Dropped => None,
    };
    let codec = stored.map(|stored| stored.codec);
    ChunkView {
        offset: bounds.as_ref().map_or_else(Vec::new, |b| b.offset.to_vec()),
        shape: bounds.as_ref().map_or_else(Vec::new, |b| b.shape.to_vec()),
        clip: record
            .clip
            .as_ref()
            .map(|clip| (clip.offset.to_vec(), clip.shape.to_vec())),
        step: (!record.slab.is_box())
            .then(|| record.slab.axes.iter().map(|axis| axis.stride).collect()),
        server: stored.map(|stored| stored.server.0),
        chunk: stored.map(|stored| name_of(&stored.name())),
        bytes: record.slab.volume(),
        order: Some(record.order),
        codec: codec
            .filter(|codec| !codec.is_none())
            .map(|codec| codec.to_string()),
    }
}

fn name_of(name: &ChunkName) -> String {
    match name {
        ChunkName::Free(id) => id.to_string(),
        ChunkName::Grid { at, generation, .. } => {
            format!("{}@{generation}", format_dims(at))
        }
    }
}
