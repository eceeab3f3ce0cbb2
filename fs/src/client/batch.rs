//! Batch reads: a nested strided pattern is one request to each data server that holds part of it.
//!
//! A batch counts bytes of the object's canonical order. The overlay of this mount is written back first; then the
//! chunks within the span of the batch are looked up as for any read, and each server gets the batch and the parts of
//! its chunks to read; no pieces are listed. Where lattices lie over other chunks, later bytes are put over older ones
//! when both have arrived.
//!
//! A batch is not one atomic read: it may see part of a concurrent write.

use std::ops::Range;

use slabfs_mdserver::api::{MAX_RIGHT_BOXES, RightMode};
use slabfs_model::batch::{BatchError, Parts, Plan, Rows};
use slabfs_model::layout::{Grid, boxes_of_run};
use slabfs_model::{Coords, Hyperslab, Region, intersect};
use slabfs_objstore::client::{BatchAsk, BatchPart, BatchPiece};
use slabfs_objstore::{ChunkName, StoreError};

use super::committed::{Committed, MOST_PARTS, Piece, too_many};
use super::error::FsError;
use super::flush::Scope;
use super::geometry::{Geometry, moved};
use super::handle::Handle;
use super::object::Object;
use super::rights::{BoxSet, Op};
use super::{Client, FORM_TRIES};

/// The maximum number of pieces that are examined one by one.
const FEW: usize = 1024;
/// Bytes of the object between pieces beyond which they count as far apart, if chunks have no fixed size.
const FAR: u64 = 16 << 20;

/// The maximum number of pairs of lattices that are compared to find those that overlap.
const MOST_LOOKS: u64 = 1 << 24;

/// A request in progress.
struct Request<'a> {
    plan: &'a Plan,
    packed: Range<u64>,
    /// The start and the end of its bytes in the object.
    span: (u64, u64),
    out: &'a mut [u8],
    /// The position of `out` in the buffer that the plan refers to.
    base: u64,
}

impl Request<'_> {
    fn needs(&self, geometry: &Geometry, size: u64) -> BoxSet {
        if self.span.1 > size {
            return BoxSet::All;
        }
        BoxSet::of(self.boxes(geometry, size)).bounded(MAX_RIGHT_BOXES)
    }

    fn boxes(&self, geometry: &Geometry, size: u64) -> Vec<Region> {
        stretches(self.plan, &self.packed, geometry, &geometry.cells_at(size))
    }
}

/// Boxes that contain the bytes of a batch. If there are few pieces and they are far apart, a box around each: the gaps
/// may be any number of chunks.
pub(super) fn stretches(
    plan: &Plan,
    packed: &Range<u64>,
    geometry: &Geometry,
    cells: &Coords,
) -> Vec<Region> {
    let chunk = |grid: &Grid| grid.chunk.iter().copied().fold(1, u64::saturating_mul);
    let far = geometry.grid.as_ref().map_or(FAR, chunk);
    let mut boxes = Vec::new();
    for (from, to) in plan.file_stretches_of(packed.clone(), FEW, far) {
        boxes_of_run(cells, from, to - from, &mut boxes);
    }
    boxes
}

impl Handle {
    /// Reads the part of a batch within a range of its packed bytes. `out` is the buffer from its start; if the buffer
    /// is the packed bytes themselves, it is just that range of them.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection, pieces that overlap in the buffer, a buffer that is too small, and a
    /// batch that reaches beyond the end of the object; errors of the servers. The content of `out` is unspecified
    /// then.
    pub fn read_batch(
        &self,
        plan: &Plan,
        packed: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        if self.selected.is_some() {
            return Err(FsError::Invalid(
                "a batch counts bytes of an entire object, and this handle shows a selection"
                    .into(),
            ));
        }
        plan.check_targets().map_err(invalid_batch)?;
        let packed = packed.start..packed.end.min(plan.bytes());
        let Some(span) = plan.file_span_of(packed.clone()) else {
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
            if self.object.has_overlay(span) {
                self.client.flush_object(&self.object, Scope::All)?;
            }
            let op = {
                let needs = |geometry: &Geometry, size| request.needs(geometry, size);
                let mode = RightMode::Read;
                self.client.enter_long(&self.object, mode, None, &needs)?
            };
            if self.read_batch_in(&op, &mut request)? {
                return Ok(());
            }
        }
    }

    /// Reads within an operation that has begun; false if it has to restart.
    fn read_batch_in(&self, op: &Op, request: &mut Request<'_>) -> Result<bool, FsError> {
        let mut last = None;
        for _ in 0..FORM_TRIES {
            match self.read_batch_shaped(op, request) {
                // A chunk of the tiling that was read has been replaced since.
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
        if !op.covers(geometry.form(size), || request.needs(&geometry, size)) {
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
        let boxes = request.boxes(&geometry, size);
        let mut wanted = Wanted {
            plan: request.plan,
            packed: request.packed.clone(),
            base: request.base,
            cells: geometry.cells_at(size),
            geometry: &geometry,
            stages: Vec::new(),
        };
        self.client
            .find_batch(object, &mut wanted, &boxes, request.out)?;
        let mut all = [(&wanted, &mut *request.out)];
        let failed = self.client.read_wanted(&mut all)?;
        match failed.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(true),
        }
    }
}

/// A batch, or a range of its packed bytes, to be read, and the location of its bytes.
pub(super) struct Wanted<'a> {
    pub(super) plan: &'a Plan,
    pub(super) packed: Range<u64>,
    /// The position of the destination memory in the buffer that the plan refers to.
    pub(super) base: u64,
    /// The object's dims, the last in bytes.
    pub(super) cells: Coords,
    pub(super) geometry: &'a Geometry,
    /// The pieces of one stage do not overlap, and are older than those of later stages that they overlap.
    pub(super) stages: Vec<Vec<Piece>>,
}

impl Object {
    /// Whether there may be an overlay on these bytes that the servers do not have.
    pub(super) fn has_overlay(&self, (from, to): (u64, u64)) -> bool {
        let state = self.state.lock();
        let taken = state.taken.as_ref();
        state.runs.overlaps(from, to)
            || taken.is_some_and(|taken| taken.overlaps(from, to))
            || !state.streams.is_empty()
    }
}

impl Client {
    /// Finds the chunks of a batch whose bytes all lie in `boxes`, and fills the parts without stored data.
    pub(super) fn find_batch(
        &self,
        object: &Object,
        wanted: &mut Wanted<'_>,
        boxes: &[Region],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let mut pieces = Vec::new();
        for region in boxes {
            let slab = Hyperslab::from_region(region);
            let mut found = Committed::default();
            self.plan(object, wanted.geometry, &slab, &mut found)?;
            for hole in &found.holes {
                let hole = moved(&Hyperslab::from_region(hole), &slab);
                wanted.paint(&hole, out)?;
            }
            pieces.extend(found.pieces.into_iter().map(|mut piece| {
                piece.want = moved(&piece.want, &slab);
                piece
            }));
        }
        for piece in &pieces {
            self.ensure_known(piece.server)?;
        }
        if pieces.len() > MOST_PARTS {
            return Err(too_many());
        }
        wanted.stages = stages(pieces)?;
        Ok(())
    }

    /// Reads several batches, one message a server; returns the batches that failed individually.
    ///
    /// # Errors
    /// Of the messages: the state of all batches is unknown then.
    pub(super) fn read_wanted(
        &self,
        all: &mut [(&Wanted<'_>, &mut [u8])],
    ) -> Result<Vec<(usize, FsError)>, FsError> {
        let mut asks = Vec::with_capacity(all.len());
        for (wanted, out) in all.iter_mut() {
            let wanted = *wanted;
            asks.push(BatchAsk {
                part: BatchPart {
                    plan: wanted.plan,
                    packed: wanted.packed.clone(),
                    cells: &wanted.cells,
                    base: wanted.base,
                },
                pieces: wanted.asked().collect(),
                memory: &mut **out,
            });
        }
        self.servers()
            .read_batches(&mut asks)
            .map_err(|(_, error)| error)?;
        let missing: Vec<Vec<usize>> = asks
            .iter()
            .map(|ask| {
                let pieces = ask.pieces.iter().enumerate();
                let missing = pieces.filter(|(_, piece)| !piece.found);
                missing.map(|(at, _)| at).collect()
            })
            .collect();
        drop(asks);
        let mut failed = Vec::new();
        for (number, missing) in missing.into_iter().enumerate() {
            let (wanted, out) = &mut all[number];
            if let Err(error) = self.settle_missing(wanted, &missing, out) {
                failed.push((number, error));
            }
        }
        Ok(failed)
    }

    /// Fills pieces whose chunks do not exist, if they may be missing.
    fn settle_missing(
        &self,
        wanted: &Wanted<'_>,
        missing: &[usize],
        out: &mut [u8],
    ) -> Result<(), FsError> {
        if missing.is_empty() {
            return Ok(());
        }
        let pieces: Vec<&Piece> = wanted.stages.iter().flatten().collect();
        for piece in missing.iter().map(|&at| pieces[at]) {
            // A grid chunk that was never written reads as fill, and no later piece lies over it. A chunk in the tiling
            // must exist.
            if matches!(piece.name, ChunkName::Free(_)) {
                return Err(StoreError::Missing(piece.name.clone()).into());
            }
            let draining = self.known.lock().draining.contains(&piece.server);
            if draining {
                self.unless_moved(wanted.geometry, piece)?;
            }
            wanted.paint(&piece.want, out)?;
        }
        Ok(())
    }
}

impl Piece {
    fn asked(&self, stage: usize) -> BatchPiece<'_> {
        BatchPiece {
            server: self.server,
            name: &self.name,
            form: &self.form,
            want: &self.want,
            slab: &self.chunk,
            stage,
            found: true,
        }
    }
}

/// Distributes pieces, oldest first, over as few stages as necessary: the pieces of one stage do not overlap.
fn stages(pieces: Vec<Piece>) -> Result<Vec<Vec<Piece>>, FsError> {
    let mut stages: Vec<Vec<Piece>> = Vec::new();
    let mut pairs = Vec::new();
    let looked = std::cell::Cell::new(0u64);
    let mut overlaps = |one: &Piece, other: &Piece| {
        looked.set(looked.get() + 1);
        pairs.clear();
        intersect(&one.want, &other.want, &mut pairs);
        !pairs.is_empty()
    };
    for piece in pieces {
        // Solid pieces do not overlap, and later chunks are cut out of a lattice.
        let above = match piece.over {
            true => stages
                .iter()
                .rposition(|stage| stage.iter().any(|other| overlaps(&piece, other)))
                .map_or(0, |at| at + 1),
            false => 0,
        };
        match stages.get_mut(above) {
            Some(stage) => stage.push(piece),
            None => stages.push(vec![piece]),
        }
        if looked.get() > MOST_LOOKS {
            return Err(too_many());
        }
    }
    Ok(stages)
}

impl Wanted<'_> {
    /// Its pieces, stage by stage.
    fn asked(&self) -> impl Iterator<Item = BatchPiece<'_>> {
        let stages = self.stages.iter().enumerate();
        stages.flat_map(|(stage, pieces)| pieces.iter().map(move |piece| piece.asked(stage)))
    }

    /// Fills the parts of `slab` that the batch names.
    fn paint(&self, slab: &Hyperslab, out: &mut [u8]) -> Result<(), FsError> {
        let fill = &self.geometry.info.fill;
        let cells = &self.cells;
        let rows = Rows::new(cells, slab, cells, slab)
            .map_err(|error| FsError::Invalid(error.to_string()))?;
        let by_pieces = Parts::few_pieces(self.plan, &self.packed, &rows);
        for part in Parts::new(self.plan, self.packed.clone(), &rows, by_pieces) {
            let run = part.run;
            let mut at = (run.memory - self.base) as usize;
            let mut cell = run.file;
            for _ in 0..run.count {
                let piece = out.get_mut(at..at + run.bytes as usize);
                let piece = piece.ok_or_else(|| {
                    FsError::Invalid("the buffer is too small for the batch".into())
                })?;
                fill.paint(piece, cell);
                at = at.wrapping_add_signed(run.memory_stride as isize);
                cell = cell.wrapping_add_signed(run.file_stride);
            }
        }
        Ok(())
    }
}

/// The error for an invalid batch.
pub(crate) fn invalid_batch(error: BatchError) -> FsError {
    FsError::Batch {
        error,
        elements: Vec::new(),
    }
}
