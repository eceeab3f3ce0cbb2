//! Writes of chunks that are encoded already, as files of other formats have them: they are stored as they are. And reads
//! of chunks as they are stored, for such files.
//!
//! Each chunk is a request of its own (`write`), and all of one call are sent together, one message a server, and
//! committed together. A chunk may reach beyond the part of the object that it is for, as the chunks at the edges of an
//! HDF5 dataset do; its record shows only that part.
//!
//! The bytes are not decoded here. A chunk that cannot be decoded is found by the reads of it, which fail with EIO.

use std::sync::Arc;

use slabfs_mdserver::api::Stored;
use slabfs_model::chunk_stream::ChunkHead;
use slabfs_model::layout::tiling::{Record, Tiling};
use slabfs_model::{Codec, Coords, Hyperslab, MAX_BYTES, Region};
use slabfs_objstore::StoreError;
use slabfs_objstore::codec::coded::{ONE_BLOCK_MAX, Table, end_of_one_block};

use super::batch::OnThisThread;
use super::core;
use super::memory::Memory;
use super::plan::{Encoded, Plan};
use super::run::run;
use crate::client::error::FsError;
use crate::client::handle::{Handle, Written};
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings;

/// A chunk in its encoded form.
#[derive(Debug, Clone)]
pub struct EncodedChunk<'a> {
    /// Its box of the object, in elements; it may reach beyond the object.
    pub chunk: Region,
    /// The part of it that becomes the object's, in elements of the object.
    pub shown: Region,
    /// How `bytes` are encoded: all elements of the chunk as one block, in row-major order.
    pub codec: Codec,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl Handle {
    /// Stores chunks as they are encoded, and makes them part of the object; later ones over earlier ones.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection or an appending one, an object that is not `aligned`, another rank, an
    /// empty part, one that is not within its chunk, or chunks above 64 MiB; `TooBig` beyond the object's dims; errors
    /// of the servers. Some of the chunks may have become part of the object then.
    pub fn write_chunks(self: &Arc<Self>, chunks: &[EncodedChunk<'_>]) -> Result<Written, FsError> {
        self.check()?;
        if self.selected.is_some() || self.append {
            return Err(FsError::Invalid(
                "encoded chunks have places in an entire object; this handle shows a selection, or appends".into(),
            ));
        }
        self.client.admit(&self.object)?;
        let plans: Vec<Plan> = chunks
            .iter()
            .map(|chunk| self.plan_encoded(chunk))
            .collect::<Result<_, _>>()?;
        let size = self.size();
        let bytes = chunks.iter().map(|chunk| chunk.bytes);
        core::with_buffers(plans.into_iter().zip(bytes), |begun| {
            run(&self.client, &OnThisThread, begun);
        })?;
        self.note_written();
        Ok(Written {
            size_changed: self.size() > size,
        })
    }

    /// A chunk of the object as it is stored, by its number in the object's layout. `None` if there is no such chunk any
    /// more, or if it is not a box of complete elements that is encoded as one block. Its bytes may have elements that
    /// are not the object's any more: others were written over them, or the object has shrunk. So it is `None` too for
    /// a handle that cannot write, unless all of the chunk is shown.
    ///
    /// # Errors
    /// Those of the servers.
    pub fn read_chunk(&self, order: u64) -> Result<Option<(ChunkHead, Vec<u8>)>, FsError> {
        // Bytes that were written over a chunk and not flushed hide those of the chunk.
        self.client.flush_ino(self.object.ino)?;
        self.client.admit(&self.object)?;
        let (record, elem, cells) = {
            let geometry = self.object.geometry.read();
            let record =
                self.client
                    .with_tiling(&self.object, &geometry, tilings::Need::All, |tiling| {
                        let record = tiling.get(order)?;
                        (self.writable || is_shown(tiling, record)).then(|| record.clone())
                    })?;
            let elem = geometry.info.dtype.size();
            (record, elem, geometry.cells.clone())
        };
        let Some(record) = record.filter(|record| record.slab.is_box()) else {
            return Ok(None);
        };
        let (Stored::Chunk(stored), Some(bounds)) = (&record.value, record.slab.bounds()) else {
            return Ok(None);
        };
        let clip = record.clip.unwrap_or_else(|| bounds.clone());
        let shown = clip.intersect(&Region::all(&cells));
        let elements = |cells: &Region| in_elements(cells, elem);
        let boxes = elements(&bounds).zip(shown.as_ref().and_then(elements));
        let Some((chunk, shown)) = boxes else {
            return Ok(None);
        };
        self.client.ensure_known(stored.server)?;
        let read = self.client.servers();
        let mut bytes = match read.read_encoded(stored.server, &stored.name()) {
            Ok(Some(bytes)) => bytes,
            Ok(None) | Err(StoreError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let table = Table::of(&bytes).map_err(|detail| StoreError::Damaged {
            name: stored.name(),
            detail,
        })?;
        let Some(block) = table.only_packed() else {
            return Ok(None);
        };
        bytes.truncate(block.end as usize);
        let head = ChunkHead {
            chunk,
            shown,
            codec: stored.codec,
            bytes: bytes.len() as u32,
        };
        Ok(Some((head, bytes)))
    }

    fn plan_encoded(self: &Arc<Self>, chunk: &EncodedChunk<'_>) -> Result<Plan, FsError> {
        let (plan, raw) = {
            let geometry = self.object.geometry.read();
            let (cells, shown) = cells_of(chunk, &geometry).map_err(FsError::Invalid)?;
            let raw = cells.volume();
            let plan = Plan {
                handle: self.clone(),
                writes: true,
                batch: None,
                encoded: Some(Encoded {
                    chunk: Hyperslab::from_region(&cells),
                    codec: chunk.codec,
                    end: Vec::new(),
                }),
                slab: Hyperslab::from_region(&shown),
                bounds: Some(shown),
                memory: Memory::packed().fit(0, &[0], geometry.info.dtype)?,
                commits: true,
            };
            (plan, raw)
        };
        let given = chunk.bytes.len() as u64;
        let end = match chunk.codec.is_none() {
            true if given == raw => Vec::new(),
            true => {
                return Err(FsError::Invalid(format!(
                    "a chunk of {raw} bytes without a codec, and {given} bytes were given"
                )));
            }
            false => end_of_one_block(raw, given).ok_or_else(|| {
                FsError::Invalid(format!(
                    "an encoded chunk of {raw} bytes; at most {ONE_BLOCK_MAX} are possible"
                ))
            })?,
        };
        let encoded = plan.encoded.map(|encoded| Encoded { end, ..encoded });
        let plan = Plan { encoded, ..plan };
        self.check_plan(&plan)?;
        Ok(plan)
    }
}

/// Whether all cells of a record are visible.
fn is_shown(tiling: &Tiling<Stored>, record: &Record<Stored>) -> bool {
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    tiling.plan(&record.slab, &mut parts, &mut holes);
    let own = parts
        .iter()
        .filter(|part| part.record.order == record.order);
    own.map(|part| part.want.volume()).sum::<u64>() == record.slab.volume()
}

/// A box of cells in elements; `None` if it has parts of elements.
fn in_elements(cells: &Region, elem: u64) -> Option<Region> {
    let mut region = cells.clone();
    let (Some(offset), Some(shape)) = (region.offset.last_mut(), region.shape.last_mut()) else {
        return Some(region);
    };
    let is_complete = *offset % elem == 0 && *shape % elem == 0;
    *offset /= elem;
    *shape /= elem;
    is_complete.then_some(region)
}

/// The boxes of a chunk and of what is shown of it, in cells of the object.
fn cells_of(chunk: &EncodedChunk<'_>, geometry: &Geometry) -> Result<(Region, Region), String> {
    let rank = geometry.info.dims.len();
    let limits = Coords::from_elem(MAX_BYTES, rank);
    let cells = |region: &Region| {
        region
            .validate(&limits)
            .map_err(|error| error.to_string())?;
        let slab = Hyperslab::from_region(region).to_cells(geometry.info.dtype.size());
        let bounds = slab.map_err(|error| error.to_string())?.bounds();
        bounds.ok_or_else(|| "a chunk, or what is shown of it, is empty".to_owned())
    };
    if !chunk.codec.is_valid() {
        return Err("a chunk of an unknown codec".to_owned());
    }
    let (all, shown) = (cells(&chunk.chunk)?, cells(&chunk.shown)?);
    match all.contains(&shown) {
        true => Ok((all, shown)),
        false => Err("what is to be shown of a chunk is not within it".to_owned()),
    }
}
