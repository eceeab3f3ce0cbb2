//! What a request moves: the object, the direction, the pattern in the object, and the pattern in memory.
//!
//! The pattern in the object is a selection, or a nested batch of pieces. For conflicts with other requests a batch is a
//! selection of all rows from its first byte to its last. If the length of the rows has changed before it runs, it is
//! refused.

use std::ops::Range;
use std::sync::Arc;

use slabfs_model::batch::{self, Plan as Pattern};
use slabfs_model::layout::{Grid, boxes_of_run};
use slabfs_model::{Codec, Coords, GeometryError, Hyperslab, Region};

use super::memory::{Fitted, Memory};
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::handle::write::too_big;
use crate::client::object::geometry::Geometry;

/// The maximum number of pieces of a batch that are examined one by one.
const FEW: usize = 1024;
/// Bytes of the object between pieces beyond which they count as far apart, if chunks have no fixed size.
const FAR: u64 = 16 << 20;

/// The data a request moves.
#[derive(Debug)]
pub(in crate::client) struct Plan {
    /// The object, held open.
    pub(in crate::client) handle: Arc<Handle>,
    pub(in crate::client) writes: bool,
    /// A batch instead of selections. `slab` is then its bounding box, and `memory` is empty.
    pub(in crate::client) batch: Option<Batched>,
    /// The bytes are a chunk as it is encoded, of which `slab` is shown. `memory` is empty then.
    pub(in crate::client) encoded: Option<Encoded>,
    /// The selection of the object, in its cells.
    pub(in crate::client) slab: Hyperslab,
    /// The bounding box of `slab`.
    pub(in crate::client) bounds: Option<Region>,
    pub(in crate::client) memory: Fitted,
    /// Whether a write in place is committed before it ends, and not with the next sync, as plain writes are.
    pub(in crate::client) commits: bool,
}

/// A chunk whose bytes are encoded.
#[derive(Debug)]
pub(in crate::client) struct Encoded {
    /// Its cells in the object; parts of it may lie outside.
    pub(in crate::client) chunk: Hyperslab,
    pub(in crate::client) codec: Codec,
    /// What follows the caller's bytes in the stored chunk.
    pub(in crate::client) end: Vec<u8>,
}

/// The bytes of a batch that a request moves.
#[derive(Debug, Clone)]
pub(in crate::client) struct Batched {
    pub(in crate::client) plan: Pattern,
    /// Their range in the packed bytes.
    pub(in crate::client) packed: Range<u64>,
    /// The position of the caller's memory in the buffer that the plan refers to.
    pub(in crate::client) base: u64,
    /// The start and the end of its bytes in the object; `None` if there are none.
    pub(in crate::client) span: Option<(u64, u64)>,
}

impl Handle {
    /// The plan of a transfer of a selection into or out of a buffer of `len` bytes.
    pub(in crate::client) fn plan_transfer(
        self: &Arc<Self>,
        writes: bool,
        slab: &Hyperslab,
        memory: &Memory,
        len: usize,
    ) -> Result<Plan, FsError> {
        if writes {
            self.check()?;
        }
        let dtype = {
            let geometry = self.object.geometry.read();
            shaped(&geometry, slab)?;
            geometry.info.dtype
        };
        let memory = memory.fit(len, &slab.packed_shape(), dtype)?;
        // Dtypes that cannot be converted are refused here.
        match writes {
            true => memory.inward()?,
            false => memory.outward()?,
        };
        let slab = slab.to_cells(dtype.size()).map_err(invalid)?;
        let bounds = slab.bounds();
        let plan = Plan {
            handle: self.clone(),
            writes,
            batch: None,
            encoded: None,
            slab,
            bounds,
            memory,
            commits: true,
        };
        self.check_plan(&plan)?;
        Ok(plan)
    }

    /// Checks a plan against the object's form as it is known.
    pub(super) fn check_plan(&self, plan: &Plan) -> Result<(), FsError> {
        let fits = |this: &Self| {
            let geometry = this.object.geometry.read();
            plan.check(&geometry, this.object.size(&geometry))
        };
        // Another mount may have extended the object; under a right this is checked again in any case.
        match fits(self) {
            Err(FsError::Invalid(_) | FsError::TooBig(_)) if !self.client.shared() => {
                self.client.refresh(&self.object)?;
                fits(self)?;
            }
            Err(_) if self.client.shared() => {}
            other => other?,
        }
        Ok(())
    }

    /// The plan of a request for some packed bytes of a batch into or out of a buffer of `len` bytes. If the buffer is
    /// the packed bytes themselves, it is just those of them.
    pub(in crate::client) fn plan_batch(
        self: &Arc<Self>,
        writes: bool,
        batch: Pattern,
        packed: Range<u64>,
        len: usize,
    ) -> Result<Plan, FsError> {
        if writes {
            self.check()?;
        }
        if self.selected.is_some() || (writes && self.append) {
            return Err(FsError::Invalid(
                "a batch counts bytes of an entire object; this handle shows a selection, or appends"
                    .into(),
            ));
        }
        let (base, end) = match batch.is_packed() {
            _ if packed.is_empty() => (0, 0),
            true => (packed.start, packed.end),
            false => (0, batch.memory_span().map_or(0, |span| span.1)),
        };
        if end - base > len as u64 {
            return Err(FsError::Invalid(format!(
                "the batch reaches up to byte {} of a buffer that has {len}",
                end - base
            )));
        }
        if !writes {
            batch.check_targets()?;
        }
        let geometry = self.object.geometry.read();
        let span = batch.file_span_of(packed.clone());
        let bounds = span.and_then(|span| rows_of(span, &geometry));
        let nothing = Coords::from_elem(0, geometry.cells.len());
        let around = |bounds: &Region| Hyperslab::from_region(bounds);
        Ok(Plan {
            handle: self.clone(),
            writes,
            slab: (bounds.as_ref()).map_or_else(|| Hyperslab::all(&nothing), around),
            bounds,
            memory: Memory::packed().fit(0, &[0], geometry.info.dtype)?,
            batch: Some(Batched {
                plan: batch,
                packed,
                base,
                span,
            }),
            encoded: None,
            commits: true,
        })
    }
}

/// Checks the rank and the pattern of a selection, but not its end.
fn shaped(geometry: &Geometry, slab: &Hyperslab) -> Result<(), FsError> {
    let limits = Coords::from_elem(slabfs_model::MAX_BYTES, geometry.info.dims.len());
    slab.validate(&limits).map_err(invalid)
}

fn invalid(error: GeometryError) -> FsError {
    FsError::Invalid(format!("the selection of the object: {error}"))
}

impl Plan {
    /// Bytes it moves to or from servers.
    pub(in crate::client) fn moved(&self) -> u64 {
        match &self.batch {
            Some(batch) => batch.packed.end - batch.packed.start,
            None => self.slab.volume(),
        }
    }

    /// Whether the object, as it is now, contains the selection or may grow to contain it.
    pub(in crate::client) fn check(&self, geometry: &Geometry, size: u64) -> Result<(), FsError> {
        if geometry.info.dtype != self.memory.object || geometry.cells.len() != self.slab.rank() {
            return Err(FsError::Invalid(
                "the object's form was changed since the transfer was made".into(),
            ));
        }
        if let Some(batch) = &self.batch {
            return self.check_batch(batch, geometry, size);
        }
        if self.encoded.is_some() && geometry.grid.is_some() {
            return Err(FsError::Invalid(
                "encoded chunks are for objects of the layout `aligned`".into(),
            ));
        }
        let Some(bounds) = &self.bounds else {
            return Ok(());
        };
        let cells = geometry.cells_at(size);
        let grows = self.writes && geometry.grows();
        for axis in 0..cells.len() {
            let end = bounds.end(axis);
            if end <= cells[axis]
                || (grows && axis == 0 && self.reach(geometry) <= geometry.size_limit())
            {
                continue;
            }
            let dims = slabfs_model::format_dims(&geometry.dims_at(size));
            let text = format!(
                "the selection reaches beyond the object, whose dims are {dims}, on axis {axis}; dims grow only \
                 along an unlimited slowest axis, or with `slabfs set --dims`"
            );
            return Err(match self.writes {
                true => FsError::TooBig(text),
                false => FsError::Invalid(text),
            });
        }
        Ok(())
    }

    /// As `check`, and whether its bytes lie in the rows that were assumed for conflicts.
    fn check_batch(&self, batch: &Batched, geometry: &Geometry, size: u64) -> Result<(), FsError> {
        if !has_rows(batch.span, &self.bounds, geometry) {
            return Err(FsError::Invalid(
                "the object's dims were changed after the batch was made, so that its bytes are others; make it again"
                    .into(),
            ));
        }
        let end = batch.span.map_or(0, |span| span.1);
        match self.writes {
            true if end > geometry.size_limit() => Err(too_big(false, geometry.size_limit())),
            false if end > size => Err(FsError::Invalid(format!(
                "a batch reads up to byte {end} of an object of {size} bytes"
            ))),
            _ => Ok(()),
        }
    }

    /// The first and the last byte of a batch.
    pub(in crate::client) fn span(&self) -> Option<(u64, u64)> {
        self.batch.as_ref()?.span
    }

    /// The minimum size in bytes of an object that contains the selection, in complete rows.
    pub(in crate::client) fn reach(&self, geometry: &Geometry) -> u64 {
        let Some(bounds) = &self.bounds else {
            return 0;
        };
        let end = bounds.end(0);
        match geometry.cells.len() {
            1 => geometry.full_rows(end),
            _ => end.saturating_mul(geometry.row),
        }
    }

    /// Boxes that contain all its bytes in an object of these cells. If a batch has few pieces and they are far apart,
    /// a box around each: the gaps may be any number of chunks.
    pub(in crate::client) fn boxes(&self, geometry: &Geometry, cells: &Coords) -> Vec<Region> {
        let Some(batch) = &self.batch else {
            return self.bounds.iter().cloned().collect();
        };
        let chunk = |grid: &Grid| grid.chunk.iter().copied().fold(1, u64::saturating_mul);
        let far = geometry.grid.as_ref().map_or(FAR, chunk);
        let mut boxes = Vec::new();
        for (from, to) in batch.plan.file_stretches_of(batch.packed.clone(), FEW, far) {
            boxes_of_run(cells, from, to - from, &mut boxes);
        }
        boxes
    }

    /// The cells that it needs a right to: those of `boxes`; all from the first to the last byte of a batch that is
    /// written, since bytes between its pieces may be written back with them.
    pub(in crate::client) fn needed(&self, geometry: &Geometry, size: u64) -> Vec<Region> {
        let cells = geometry.cells_at(size.max(self.reach(geometry)));
        let (true, Some((from, to))) = (self.writes, self.span()) else {
            return self.boxes(geometry, &cells);
        };
        let mut boxes = Vec::new();
        boxes_of_run(&cells, from, to - from, &mut boxes);
        boxes
    }
}

impl Batched {
    /// Calls `each` with the start and the end of each piece, in bytes of the object, of those that remain visible.
    pub(in crate::client) fn for_each_piece(&self, each: &mut dyn FnMut(u64, u64)) {
        for run in self.runs() {
            for number in shown(&run) {
                let at = run
                    .file
                    .wrapping_add_signed(run.file_stride.wrapping_mul(number));
                each(at, at + run.bytes);
            }
        }
    }

    /// Its pieces, as runs of equal ones.
    pub(in crate::client) fn runs(&self) -> impl Iterator<Item = batch::Run> + '_ {
        let all = 0..i64::MAX as u64;
        self.plan.runs_within(all, self.packed.clone())
    }
}

/// The repetitions of a run that remain visible after the write: of repetitions in one place, only the last.
pub(in crate::client) fn shown(run: &batch::Run) -> Range<i64> {
    let count = run.count as i64;
    match run.file_stride {
        0 => (count - 1).max(0)..count,
        _ => 0..count,
    }
}

/// Whether the bytes of a batch still lie in these rows of the object.
pub(in crate::client) fn has_rows(
    span: Option<(u64, u64)>,
    rows: &Option<Region>,
    geometry: &Geometry,
) -> bool {
    span.and_then(|span| rows_of(span, geometry)) == *rows
}

/// The rows of the object that contain a span of bytes.
fn rows_of((from, to): (u64, u64), geometry: &Geometry) -> Option<Region> {
    let rank = geometry.cells.len();
    let mut offset = Coords::from_elem(0, rank);
    let mut shape = geometry.cells.clone();
    let row = match rank {
        0 => return None,
        1 => 1,
        _ => geometry.row.max(1),
    };
    offset[0] = from / row;
    shape[0] = to.div_ceil(row) - offset[0];
    Some(Region { offset, shape })
}
