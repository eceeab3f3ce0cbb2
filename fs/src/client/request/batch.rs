//! Batches: nested strided patterns of bytes of an object's canonical order.
//!
//! A batch is one request to each data server that holds part of it; no pieces are listed. To be read, the chunks within
//! the span of the batch are looked up as for any read, and each server gets the batch and the parts of its chunks.
//! Where lattices lie over other chunks, later bytes are put over older ones when both have arrived.
//!
//! To be written, a batch of few pieces of an `aligned` object becomes dirty runs, which a flush combines into boxes and
//! lattices; if two places of the buffer go to the same byte, the later one is stored. A batch of many pieces would cost
//! much memory and much time under the object's lock; it goes directly to the servers, as batches into grids do
//! (`write`).
//!
//! A batch is not one atomic read or write: concurrent reads may see part of it. If a write fails, part of it may be
//! written. A batch that reaches beyond the object's maximum size writes nothing.

use std::ops::Range;
use std::sync::Arc;

use slabfs_mdserver::api::RightMode;
use slabfs_model::batch::{BatchError, Parts, Plan as Pattern, Rows};
use slabfs_model::{Coords, Hyperslab, Region, ServerId, intersect};
use slabfs_objstore::client::{BatchAsk, BatchPart, BatchPiece};
use slabfs_objstore::{ChunkName, StoreError};

use super::core::{self, Begun, Buffer};
use super::plan::{Batched, Plan, has_rows};
use super::run::{Ends, run};
use crate::client::committed::{Committed, MOST_PARTS, Piece, too_many};
use crate::client::error::FsError;
use crate::client::geometry::{Geometry, moved};
use crate::client::handle::{Handle, Written};
use crate::client::object::Object;
use crate::client::rights::{By, Span};
use crate::client::write::too_big;
use crate::client::{Client, FORM_TRIES};

/// The maximum number of pieces of an `aligned` object that become dirty runs.
const FEW_PIECES: u64 = 1024;

/// The maximum number of pairs of lattices that are compared to find those that overlap.
const MOST_LOOKS: u64 = 1 << 24;

impl Handle {
    /// Reads the part of a batch within a range of its packed bytes. `out` is the buffer from its start; if the buffer
    /// is the packed bytes themselves, it is just that range of them.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection, pieces that overlap in the buffer, a buffer that is too small, and a
    /// batch that reaches beyond the end of the object; errors of the servers. The content of `out` is unspecified
    /// then.
    pub fn read_batch(
        self: &Arc<Self>,
        pattern: &Pattern,
        packed: Range<u64>,
        out: &mut [u8],
    ) -> Result<(), FsError> {
        let packed = packed.start..packed.end.min(pattern.bytes());
        let plan = self.plan_batch(false, pattern.clone(), packed.clone(), out.len())?;
        let Some((from, to)) = plan.span() else {
            return Ok(());
        };
        self.client.admit(&self.object)?;
        if self.due(from, (to - from) as usize) {
            self.client.refresh(&self.object)?;
        }
        self.run_batch(plan, Buffer::Into(out))
    }

    /// Writes the part of a batch within a range of its packed bytes. `from` is the buffer from its start; if the
    /// buffer is the packed bytes themselves, it is just that range of them.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection or an appending one, and a buffer that is too small; `TooBig` for a batch
    /// that reaches beyond the object's maximum size; errors of the servers.
    pub fn write_batch(
        self: &Arc<Self>,
        pattern: &Pattern,
        packed: Range<u64>,
        from: &[u8],
    ) -> Result<Written, FsError> {
        let packed = packed.start..packed.end.min(pattern.bytes());
        let plan = self.plan_batch(true, pattern.clone(), packed, from.len())?;
        let Some(batch) = plan.batch.as_ref().filter(|batch| batch.span.is_some()) else {
            return Ok(Written {
                size_changed: false,
            });
        };
        if self.object.geometry.read().grid.is_none() && !batch.has_many_pieces() {
            return self.remember_batch(batch, from);
        }
        let size = self.size();
        self.run_batch(plan, Buffer::From(from))?;
        self.note_written();
        Ok(Written {
            size_changed: self.size() > size,
        })
    }

    /// Runs a request for a batch on this thread. Its write into a grid is committed with the next sync.
    fn run_batch(self: &Arc<Self>, plan: Plan, mut memory: Buffer<'_>) -> Result<(), FsError> {
        // Under a right, cached metadata is valid.
        let mut asked = self.client.alone() || self.client.strict();
        let (writes, batch) = (plan.writes, plan.batch.clone());
        let mut plan = Some(plan);
        for _ in 0..FORM_TRIES {
            let next = match (plan.take(), &batch) {
                (None, Some(batch)) => {
                    let (pattern, packed) = (batch.plan.clone(), batch.packed.clone());
                    self.plan_batch(writes, pattern, packed, memory.len())?
                }
                (Some(plan), _) => plan,
                (None, None) => break,
            };
            let (span, bounds) = (next.span(), next.bounds.clone());
            let next = Plan {
                commits: false,
                ..next
            };
            let ended = core::with_buffer(next, &mut memory, |begun| {
                run(&self.client, &OnThisThread, vec![begun]);
            });
            let has_rows = || has_rows(span, &bounds, &self.object.geometry.read());
            match ended {
                // The object got other dims before the request ran.
                Err(FsError::Invalid(_)) if !has_rows() => {}
                // Another mount may have extended it since.
                Err(FsError::TooBig(_)) if !asked => {
                    asked = true;
                    self.client.refresh(&self.object)?;
                }
                other => return other,
            }
        }
        Err(FsError::Unsettled("a batch gave up".into()))
    }

    /// Writes into memory, piece by piece: there are few.
    fn remember_batch(&self, batch: &Batched, from: &[u8]) -> Result<Written, FsError> {
        let (begins, ends) = batch.span.unwrap_or_default();
        let needs = |geometry: &Geometry, size| {
            self.write_needs(geometry, size, Some(begins), ends - begins)
        };
        let pages = Some(Span::of(begins, ends - begins));
        loop {
            let epoch = self.client.admit(&self.object)?;
            if self.client.over_budget() {
                self.client.relieve(&self.object)?;
            }
            let op = self
                .client
                .enter_long(&self.object, RightMode::Write, pages, &needs)?;
            let written = self.write_following(&op, By::Program, &needs, epoch, &|geometry| {
                let limit = geometry.size_limit();
                if ends > limit {
                    return Err(too_big(false, limit));
                }
                let size = self.object.size(geometry);
                self.remember_pieces(geometry, batch, from);
                Ok(Written {
                    size_changed: ends > size,
                })
            })?;
            if let Some(written) = written {
                self.note_written();
                let bytes = batch.packed.end - batch.packed.start;
                self.client.counters().write.transfer(bytes);
                return Ok(written);
            }
        }
    }

    fn remember_pieces(&self, geometry: &Geometry, batch: &Batched, from: &[u8]) {
        let mut state = self.object.state.lock();
        for run in batch.runs() {
            for number in 0..run.count as i64 {
                let step =
                    |at: u64, stride: i64| at.wrapping_add_signed(stride.wrapping_mul(number));
                let memory = (step(run.memory, run.memory_stride) - batch.base) as usize;
                let file = step(run.file, run.file_stride);
                let piece = &from[memory..memory + run.bytes as usize];
                state.runs.insert(file, piece, self.id);
                state.overlaps.note(file, file + run.bytes);
                self.object.grow(geometry, file + run.bytes);
            }
        }
        self.client.account(&mut state);
    }
}

impl Batched {
    /// Whether it has more pieces than may become dirty runs.
    fn has_many_pieces(&self) -> bool {
        let mut pieces = 0u64;
        self.runs().any(|run| {
            pieces = pieces.saturating_add(run.count);
            pieces > FEW_PIECES
        })
    }
}

/// Ends requests of which only the calling thread knows.
struct OnThisThread;

impl Ends for OnThisThread {
    fn end(&self, done: Vec<(Begun, Result<(), FsError>)>) {
        done.into_iter()
            .for_each(|(begun, result)| begun.end(result));
    }
}

/// A batch, or a range of its packed bytes, to be read, and the location of its bytes.
pub(super) struct Wanted<'a> {
    pub(super) plan: Pattern,
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
                    plan: &wanted.plan,
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
    /// The servers that have its bytes.
    pub(super) fn servers(&self) -> impl Iterator<Item = ServerId> {
        self.stages.iter().flatten().map(|piece| piece.server)
    }

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
        let by_pieces = Parts::few_pieces(&self.plan, &self.packed, &rows);
        for part in Parts::new(&self.plan, self.packed.clone(), &rows, by_pieces) {
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
