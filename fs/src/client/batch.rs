//! Reading by batches: a nested strided pattern is one request to each data server that holds something of it.
//!
//! A batch counts bytes of the object's canonical order. What is newer on this mount is brought out first, then the
//! chunks within the span of the batch are found as for any read, and each server is told the batch and which parts of
//! which chunks it is to go through; nobody lists pieces. Where lattices lie over other chunks, what is older is read
//! before what is newer, and only there more than one message goes to a server.
//!
//! A batch is not one read: what others write meanwhile may be seen in part.

use std::ops::Range;

use slabfs_mdserver::api::RightMode;
use slabfs_model::batch::{Parts, Plan, Rows};
use slabfs_model::layout::boxes_of_run;
use slabfs_model::{Fill, Hyperslab, intersect};
use slabfs_objstore::client::{BatchPart, BatchPiece};
use slabfs_objstore::{ChunkName, StoreError};

use super::committed::{Committed, Piece};
use super::error::FsError;
use super::flush::Scope;
use super::geometry::{Geometry, moved};
use super::handle::Handle;
use super::rights::{By, Cells, Op};
use super::{Client, FORM_TRIES};

/// Runs that are looked at to find the span of a part of a batch; beyond that the span of all of it is taken.
pub(super) const SPAN_RUNS: usize = 4096;

/// A request that is being done.
struct Request<'a> {
    plan: &'a Plan,
    packed: Range<u64>,
    /// From the first to behind the last byte of the object.
    span: (u64, u64),
    out: &'a mut [u8],
    /// Where `out` begins in the buffer that the plan names.
    base: u64,
}

impl Request<'_> {
    fn needs(&self, geometry: &Geometry, size: u64) -> Cells {
        if self.span.1 > size {
            return Cells::All;
        }
        Cells::of(self.boxes(geometry, size))
    }

    fn boxes(&self, geometry: &Geometry, size: u64) -> Vec<slabfs_model::Region> {
        let mut boxes = Vec::new();
        let (from, to) = self.span;
        boxes_of_run(&geometry.cells_at(size), from, to - from, &mut boxes);
        boxes
    }
}

impl Handle {
    /// Reads what lies of a batch within a range of its packed bytes. `out` is the buffer from its start; if the
    /// buffer is the packed bytes themselves, it is just that range of them.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection, pieces that overlap in the buffer, a buffer that is too small, and a
    /// batch that reaches beyond the end of the object; errors of the servers. What `out` has is unspecified then.
    pub fn read_batch(
        &self,
        plan: &Plan,
        packed: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        if self.selected.is_some() {
            return Err(FsError::Invalid(
                "a batch counts bytes of a whole object, and this handle shows a selection".into(),
            ));
        }
        plan.check_targets()
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        self.read_batch_checked(plan, packed, out)
    }

    /// The same of a batch whose pieces are known not to overlap in the buffer, through a handle of the whole object.
    pub(super) fn read_batch_checked(
        &self,
        plan: &Plan,
        packed: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let packed = packed.start..packed.end.min(plan.bytes());
        let Some(span) = plan.file_span_of(packed.clone(), SPAN_RUNS) else {
            return Ok(());
        };
        let base = if plan.is_packed() { packed.start } else { 0 };
        let mut request = Request {
            plan,
            packed,
            span,
            out,
            base,
        };
        loop {
            self.client.admit(&self.object)?;
            if self.due(span.0, (span.1 - span.0) as usize) {
                self.client.refresh(&self.object)?;
            }
            if self.is_newer_here(span) {
                self.client.flush_object(&self.object, Scope::All)?;
            }
            let op = {
                let needs = |geometry: &Geometry, size| request.needs(geometry, size);
                let mode = RightMode::Read;
                self.client
                    .enter(&self.object, By::Program, mode, None, &needs)?
            };
            if self.read_batch_in(&op, &mut request)? {
                return Ok(());
            }
        }
    }

    /// Whether something of these bytes may be here that the servers have not got.
    fn is_newer_here(&self, (from, to): (u64, u64)) -> bool {
        let state = self.object.state.lock();
        let taken = state.taken.as_ref();
        state.runs.overlaps(from, to)
            || taken.is_some_and(|taken| taken.overlaps(from, to))
            || !state.streams.is_empty()
    }

    /// Reads in an operation that has begun; false if it has to begin anew.
    fn read_batch_in(&self, op: &Op, request: &mut Request<'_>) -> Result<bool, FsError> {
        let mut last = None;
        for _ in 0..FORM_TRIES {
            match self.read_batch_shaped(op, request) {
                // A chunk that was there when the tiling was read has been replaced since.
                Err(FsError::Store(StoreError::Missing(name))) => {
                    if last.as_ref() == Some(&name) {
                        return Err(FsError::Store(StoreError::Missing(name)));
                    }
                    last = Some(name);
                    self.client.refresh_tiling(&self.object)?;
                }
                other => return other,
            }
        }
        Err(FsError::Unsettled(
            "chunks vanish faster than they can be read".into(),
        ))
    }

    fn read_batch_shaped(&self, op: &Op, request: &mut Request<'_>) -> Result<bool, FsError> {
        let object = &*self.object;
        let geometry = object.geometry.read();
        let size = object.size(&geometry);
        if !op.covers(|| request.needs(&geometry, size)) {
            return Ok(false);
        }
        self.waiting.check_locks()?;
        if request.span.1 > size {
            return Err(FsError::Invalid(format!(
                "a batch reads up to byte {} of an object of {size} bytes",
                request.span.1
            )));
        }
        let bytes = request.packed.end - request.packed.start;
        self.client.counters().read.transfer(bytes);
        let cells = geometry.cells_at(size);
        let mut pieces = Vec::new();
        for region in request.boxes(&geometry, size) {
            let slab = Hyperslab::from_region(&region);
            let mut found = Committed::default();
            self.client.plan(object, &geometry, &slab, &mut found)?;
            for hole in &found.holes {
                let hole = moved(&Hyperslab::from_region(hole), &slab);
                paint(request, &cells, &hole, &geometry.info.fill)?;
            }
            pieces.extend(found.pieces.into_iter().map(|mut piece| {
                piece.want = moved(&piece.want, &slab);
                piece
            }));
        }
        for piece in &pieces {
            self.client.ensure_known(piece.server)?;
        }
        for stage in stages(&pieces) {
            self.client
                .read_batch_stage(&geometry, &cells, request, &stage)?;
        }
        Ok(true)
    }
}

impl Client {
    /// Reads pieces that do not overlap, one message a server.
    fn read_batch_stage(
        &self,
        geometry: &Geometry,
        cells: &[u64],
        request: &mut Request<'_>,
        stage: &[&Piece],
    ) -> Result<(), FsError> {
        let mut asked: Vec<BatchPiece<'_>> = stage
            .iter()
            .map(|piece| BatchPiece {
                server: piece.server,
                name: &piece.name,
                form: &piece.form,
                want: &piece.want,
                slab: &piece.chunk,
                found: true,
            })
            .collect();
        let part = BatchPart {
            plan: request.plan,
            packed: request.packed.clone(),
            cells,
            base: request.base,
        };
        self.servers()
            .read_batch(&part, &mut asked, request.out)
            .map_err(|(_, error)| error)?;
        let draining = self.known.lock().draining.clone();
        let found: Vec<bool> = asked.iter().map(|piece| piece.found).collect();
        for (piece, _) in stage.iter().zip(found).filter(|(_, found)| !found) {
            // A place of a grid that nobody wrote is fill; a chunk that the tiling names has to be there.
            if matches!(piece.name, ChunkName::Free(_)) {
                return Err(StoreError::Missing(piece.name.clone()).into());
            }
            if draining.contains(&piece.server) {
                self.unless_moved(geometry, piece)?;
            }
            paint(request, cells, &piece.want, &geometry.info.fill)?;
        }
        Ok(())
    }
}

/// Pieces, oldest first, in as few stages as need be: those of one do not overlap.
fn stages(pieces: &[Piece]) -> Vec<Vec<&Piece>> {
    let mut stages: Vec<Vec<&Piece>> = Vec::new();
    let mut pairs = Vec::new();
    let mut overlaps = |one: &Piece, other: &Piece| {
        pairs.clear();
        intersect(&one.want, &other.want, &mut pairs);
        !pairs.is_empty()
    };
    for piece in pieces {
        // Solid ones do not overlap, and what is newer than a lattice is cut out of it.
        let above = match piece.over {
            true => stages
                .iter()
                .rposition(|stage| stage.iter().any(|other| overlaps(piece, other)))
                .map_or(0, |at| at + 1),
            false => 0,
        };
        match stages.get_mut(above) {
            Some(stage) => stage.push(piece),
            None => stages.push(vec![piece]),
        }
    }
    stages
}

/// Paints what the batch names of `slab` with fill.
fn paint(
    request: &mut Request<'_>,
    cells: &[u64],
    slab: &Hyperslab,
    fill: &Fill,
) -> Result<(), FsError> {
    let rows =
        Rows::new(cells, slab, cells, slab).map_err(|error| FsError::Invalid(error.to_string()))?;
    let (plan, packed) = (request.plan, &request.packed);
    let by_pieces = Parts::few_pieces(plan, packed, &rows);
    for part in Parts::new(plan, packed.clone(), &rows, by_pieces) {
        let run = part.run;
        let mut at = (run.memory - request.base) as usize;
        let mut cell = run.file;
        for _ in 0..run.count {
            let piece = request.out.get_mut(at..at + run.bytes as usize);
            let piece = piece
                .ok_or_else(|| FsError::Invalid("the buffer is too small for the batch".into()))?;
            fill.paint(piece, cell);
            at = at.wrapping_add_signed(run.memory_stride as isize);
            cell = cell.wrapping_add_signed(run.file_stride);
        }
    }
    Ok(())
}
