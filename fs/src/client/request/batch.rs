//! Batches: nested strided patterns of bytes of an object's canonical order.
//!
//! A batch is one request to each data server that holds part of it; no pieces are listed.
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
use slabfs_model::batch::Plan as Pattern;

use super::core::{self, Begun, Buffer};
use super::group::Ends;
use super::plan::{Batched, Plan, has_rows};
use super::run::run;
use crate::client::FORM_TRIES;
use crate::client::coherence::rights::{By, Need, Span};
use crate::client::error::FsError;
use crate::client::handle::write::too_big;
use crate::client::handle::{Handle, Written};
use crate::client::object::geometry::Geometry;

/// The maximum number of pieces of an `aligned` object that become dirty runs.
const FEW_PIECES: u64 = 1024;

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
        let packed = within(packed, pattern);
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
        let packed = within(packed, pattern);
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
        let need = Need {
            by: By::Program,
            mode: RightMode::Write,
            long: true,
            span: Some(Span::of(begins, ends - begins)),
            cells: &|geometry, size| self.write_needs(geometry, size, Some(begins), ends - begins),
        };
        loop {
            let epoch = self.client.admit(&self.object)?;
            if self.client.over_budget() {
                self.client.relieve(&self.object)?;
            }
            let op = self.client.enter(&self.object, &need)?;
            let written = self.write_following(&op, &need, epoch, &|geometry| {
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

/// The part of a range that is in the packed bytes of a batch.
fn within(range: Range<u64>, pattern: &Pattern) -> Range<u64> {
    let start = range.start.min(pattern.bytes());
    start..range.end.clamp(start, pattern.bytes())
}

/// Ends requests of which only the calling thread knows.
pub(super) struct OnThisThread;

impl Ends for OnThisThread {
    fn end(&self, done: Vec<(Begun, Result<(), FsError>)>) {
        done.into_iter()
            .for_each(|(begun, result)| begun.end(result));
    }
}
