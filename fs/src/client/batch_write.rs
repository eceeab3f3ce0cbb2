//! Batch writes.
//!
//! - A grid takes a batch in place: one message to each data server that holds part of it, which writes the pieces of a
//!   chunk under the chunk's lock.
//! - In an `aligned` object, a batch of few pieces becomes dirty runs, which a flush combines into boxes and lattices;
//!   if two places of the buffer go to the same byte, the later one is stored. A batch of many pieces would cost much
//!   memory and much time under the object's lock; it goes directly to the servers, as a transfer does
//!   (`transfer/put_batch.rs`).
//!
//! A batch is not one atomic write: concurrent reads may see part of it. If it fails, part of it may be written. A
//! batch that reaches beyond the object's maximum size writes nothing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slabfs_mdserver::api::RightMode;
use slabfs_model::Hyperslab;
use slabfs_model::batch::{Parts, Plan, Rows};
use slabfs_model::layout::Grid;
use slabfs_objstore::client::{BatchAsk, BatchPart, BatchPiece};

use super::batch::stretches;
use super::committed::grid_parts;
use super::error::FsError;
use super::geometry::{Geometry, moved};
use super::grid_io::GridChunk;
use super::handle::{Handle, Want, Written};
use super::object::ends_of;
use super::rights::Span;
use super::transfer::scope;
use super::write::too_big;

/// The maximum number of pieces of an `aligned` object that become dirty runs.
const FEW_PIECES: u64 = 1024;

/// A request in progress.
struct Request<'a> {
    plan: &'a Plan,
    packed: Range<u64>,
    span: (u64, u64),
    from: &'a [u8],
    /// The position of `from` in the buffer that the plan refers to.
    base: u64,
}

/// The result of a step of a request.
enum Step {
    Done(Written),
    /// The operation has to restart.
    Restart,
}

impl Handle {
    /// Writes the part of a batch within a range of its packed bytes. `from` is the buffer from its start; if the
    /// buffer is the packed bytes themselves, it is just that range of them.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection or an appending one, and a buffer that is too small; `TooBig` for a batch
    /// that reaches beyond the object's maximum size; errors of the servers.
    pub fn write_batch(
        self: &Arc<Self>,
        plan: &Plan,
        packed: Range<u64>,
        from: &[u8],
    ) -> Result<Written, FsError> {
        self.check()?;
        if self.selected.is_some() || self.append {
            return Err(FsError::Invalid(
                "a batch counts bytes of an entire object; this handle shows a selection, or appends"
                    .into(),
            ));
        }
        let packed = packed.start..packed.end.min(plan.bytes());
        let Some(span) = plan.file_span_of(packed.clone()) else {
            return Ok(Written {
                size_changed: false,
            });
        };
        let (base, end) = match plan.is_packed() {
            true => (packed.start, packed.end),
            false => (0, plan.memory_span().map_or(0, |span| span.1)),
        };
        if end - base > from.len() as u64 {
            return Err(FsError::Invalid(format!(
                "a batch of {} bytes of a buffer that has {}",
                end - base,
                from.len()
            )));
        }
        if self.object.geometry.read().grid.is_none() && has_many_pieces(plan, &packed) {
            return self.write_batch_through(plan, packed, from);
        }
        let bytes = packed.end - packed.start;
        let request = Request {
            plan,
            packed,
            span,
            from,
            base,
        };
        let needs = |geometry: &Geometry, size| {
            self.write_needs(geometry, size, Some(span.0), span.1 - span.0)
        };
        loop {
            let epoch = self.client.admit(&self.object)?;
            if self.client.over_budget() {
                self.client.relieve(&self.object)?;
            }
            let op = self.client.enter_long(
                &self.object,
                RightMode::Write,
                Some(Span::of(span.0, span.1 - span.0)),
                &needs,
            )?;
            let covers = |geometry: &Geometry| {
                let size = self.object.size(geometry);
                epoch == self.client.epoch()
                    && op.covers(geometry.form(size), || needs(geometry, size))
            };
            if let Step::Done(written) = self.write_batch_in(&covers, &request)? {
                self.note_written();
                self.client.counters().write.transfer(bytes);
                return Ok(written);
            }
        }
    }

    /// The same, by a transfer and a wait for it.
    fn write_batch_through(
        self: &Arc<Self>,
        plan: &Plan,
        packed: Range<u64>,
        from: &[u8],
    ) -> Result<Written, FsError> {
        let size = self.size();
        scope(|scope| -> Result<(), FsError> {
            let write = scope.write_batch_part(self, plan.clone(), packed, from)?;
            write.wait()?;
            Ok(())
        })?;
        self.note_written();
        Ok(Written {
            size_changed: self.size() > size,
        })
    }

    fn write_batch_in(
        &self,
        covers: &dyn Fn(&Geometry) -> bool,
        request: &Request<'_>,
    ) -> Result<Step, FsError> {
        let mut asked = self.client.alone() || self.client.strict();
        for _ in 0..super::FORM_TRIES {
            let result = {
                let geometry = self.object.geometry.read();
                if !covers(&geometry) {
                    return Ok(Step::Restart);
                }
                self.waiting.check_locks()?;
                self.write_batch_shaped(&geometry, request)
            };
            match result {
                Err(error) if error.is_stale() => self.client.refresh(&self.object)?,
                // Another mount may have extended it since.
                Err(FsError::TooBig(_)) if !asked => {
                    asked = true;
                    self.client.refresh(&self.object)?;
                }
                other => return other,
            }
        }
        Err(FsError::Unsettled("a write of a batch gave up".into()))
    }

    fn write_batch_shaped(
        &self,
        geometry: &Geometry,
        request: &Request<'_>,
    ) -> Result<Step, FsError> {
        let size = self.object.size(geometry);
        let limit = geometry.size_limit();
        if request.span.1 > limit {
            return Err(too_big(false, limit));
        }
        let written = Written {
            size_changed: request.span.1 > size,
        };
        match &geometry.grid {
            Some(grid) => self.write_batch_in_place(geometry, grid, size, request)?,
            None => self.remember_batch(geometry, request),
        }
        Ok(Step::Done(written))
    }

    /// Writes into memory, piece by piece: there are few.
    fn remember_batch(&self, geometry: &Geometry, request: &Request<'_>) {
        let all = 0..i64::MAX as u64;
        let mut state = self.object.state.lock();
        for run in request.plan.runs_within(all, request.packed.clone()) {
            for number in 0..run.count as i64 {
                let step =
                    |at: u64, stride: i64| at.wrapping_add_signed(stride.wrapping_mul(number));
                let memory = (step(run.memory, run.memory_stride) - request.base) as usize;
                let file = step(run.file, run.file_stride);
                let piece = &request.from[memory..memory + run.bytes as usize];
                state.runs.insert(file, piece, self.id);
                state.overlaps.note(file, file + run.bytes);
                self.object.grow(geometry, file + run.bytes);
            }
        }
        self.client.account(&mut state);
    }

    /// Writes directly into the chunks of a grid.
    fn write_batch_in_place(
        &self,
        geometry: &Geometry,
        grid: &Grid,
        size: u64,
        request: &Request<'_>,
    ) -> Result<(), FsError> {
        let (client, object) = (&self.client, &*self.object);
        let (from, to) = request.span;
        let reach = size.max(geometry.full_rows(to));
        let cells = geometry.cells_at(reach);
        let boxes = stretches(request.plan, &request.packed, geometry, &cells);
        let _shared = object.flushing.read();
        let allowed = client.allowed(object, geometry)?;
        client.reserve(object, geometry, to)?;
        let running = object.begin_direct();
        let mut chunks: Vec<(GridChunk, Hyperslab, Hyperslab)> = Vec::new();
        for region in &boxes {
            let slab = Hyperslab::from_region(region);
            for part in grid_parts(grid, &slab)? {
                let want = moved(&part.want, &slab);
                let rows = Rows::new(&cells, &want, &grid.chunk, &part.chunk)
                    .map_err(|error| FsError::Invalid(error.to_string()))?;
                let by_pieces = Parts::few_pieces(request.plan, &request.packed, &rows);
                let mut named = Parts::new(request.plan, request.packed.clone(), &rows, by_pieces);
                if named.next().is_some() {
                    let chunk = client.grid_chunk(object, geometry, grid, part.at)?;
                    chunks.push((chunk, want, part.chunk));
                }
            }
        }
        let pieces: Vec<BatchPiece<'_>> = chunks
            .iter()
            .map(|(chunk, want, slab)| BatchPiece {
                server: chunk.server,
                name: &chunk.name,
                form: &chunk.form,
                want,
                slab,
                stage: 0,
                found: true,
            })
            .collect();
        client.note_unsynced(object, chunks.iter().map(|(chunk, ..)| chunk));
        let part = BatchPart {
            plan: request.plan,
            packed: request.packed.clone(),
            cells: &cells,
            base: request.base,
        };
        let ask = BatchAsk {
            part,
            pieces,
            memory: request.from,
        };
        client.servers().write_batches(&[], &[ask])?;
        let bytes = request.packed.end - request.packed.start;
        object.stored.fetch_add(bytes, Ordering::AcqRel);
        allowed.end()?;
        for region in &boxes {
            object.note_placed(&ends_of(region));
        }
        object.touched.store(true, Ordering::Release);
        object.grow(geometry, to);
        object.epoch.fetch_add(1, Ordering::AcqRel);
        let wants: Vec<Want> = boxes.into_iter().map(Want::all).collect();
        client.cache().forget_slabs(object, geometry, reach, &wants);
        let mut state = object.state.lock();
        let held = !state.runs.is_empty();
        running.end(&mut state, |wrote| {
            if !held {
                return;
            }
            for run in request.plan.runs_within(from..to, request.packed.clone()) {
                for number in 0..run.count as i64 {
                    let moved = run.file_stride.wrapping_mul(number);
                    let at = run.file.wrapping_add_signed(moved);
                    wrote(at, at + run.bytes);
                }
            }
        });
        client.account(&mut state);
        Ok(())
    }
}

/// Whether these bytes of a batch have more pieces than may become dirty runs.
fn has_many_pieces(plan: &Plan, packed: &Range<u64>) -> bool {
    let mut pieces = 0u64;
    let mut runs = plan.runs_within(0..i64::MAX as u64, packed.clone());
    runs.any(|run| {
        pieces = pieces.saturating_add(run.count);
        pieces > FEW_PIECES
    })
}
