//! Batches that are written into grids as they are, except that repetitions in one place are written once.
//!
//! A selection that is written together with batches becomes a pattern of its packed bytes, so that one message a server
//! has all of them in order.
//!
//! A *long* batch is sent one portion after the other, so that it can be cancelled and no message has more of it than
//! fits.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Instant;

use slabfs_model::batch::{Batch, Parts, Plan as Pattern, Rows};
use slabfs_model::{Coords, Hyperslab, Region};
use slabfs_objstore::client::{TOO_SCATTERED, Verifiers};
use slabfs_objstore::wire::MAX_DATA;

use super::core::Begun;
use super::plan::Batched;
use crate::client::Client;
use crate::client::buffer::payload::Slices;
use crate::client::commit::{BatchWrite, GridWrite};
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::{Geometry, moved};
use crate::client::stored::committed::grid_parts;

/// Bytes of a message for each data server.
pub(in crate::client) const A_SERVER: u64 = MAX_DATA as u64;

/// A batch into a grid with more bytes is long, and is sent in portions of as many bytes for each server as a message
/// has.
const LONG: u64 = 256 << 20;
/// A portion is at most a second or two of work for a server: at most this many runs of pieces, and pieces that span at
/// most this many bytes of chunks, which the server reads and writes including the gaps. A batch with more is long,
/// too.
const RUNS: u64 = 1 << 24;
const REACH: u64 = 4 << 30;
/// Pieces farther apart than this are accessed one by one.
const APART: u64 = 128 << 10;
/// A batch of fewer bytes is never examined for this.
const SHORT: u64 = 1 << 20;
/// Runs that are examined; later ones are assumed to be alike.
const LOOKED_AT: usize = 1 << 10;

/// How the bytes of a transfer are sent.
pub(super) enum Sent<'a> {
    /// As the parts of its selection.
    Selection,
    /// As these chunks of an `aligned` object.
    Chunks(Vec<(Hyperslab, Vec<u8>)>),
    /// As a batch, into the chunks of a grid.
    InPlace(InPlace<'a>),
}

/// A batch that is written into a grid.
pub(super) struct InPlace<'a> {
    pattern: Pattern,
    packed: Range<u64>,
    base: u64,
    /// The object's dims, the last in bytes, extended as far as the batch reaches.
    cells: Coords,
    /// Boxes that contain all its bytes.
    boxes: Vec<Region>,
    memory: Cow<'a, [u8]>,
}

impl InPlace<'_> {
    /// The approximate number of packed bytes, starting at `from`, that keep a server busy for no more than a portion
    /// may.
    fn portion(&self, from: u64) -> u64 {
        let packed = from..self.packed.end;
        let runs = self.pattern.runs_within(0..i64::MAX as u64, packed);
        let (mut count, mut bytes, mut reach) = (0u64, 0u64, 0u64);
        for run in runs.take(LOOKED_AT) {
            count += 1;
            bytes = bytes.saturating_add(run.count.saturating_mul(run.bytes));
            let step = run.file_stride.unsigned_abs().min(APART).max(run.bytes);
            reach = reach.saturating_add(run.count.saturating_mul(step));
        }
        if count < LOOKED_AT as u64 && reach <= REACH {
            return u64::MAX;
        }
        let of = |most: u64, all: u64| {
            let part = u128::from(bytes) * u128::from(most) / u128::from(all.max(1));
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        of(RUNS, count).min(of(REACH, reach)).max(1)
    }
}

impl InPlace<'_> {
    /// What is sent to the servers of these parts of chunks.
    fn write<'a>(&'a self, parts: &'a [GridWrite<'a>]) -> BatchWrite<'a> {
        BatchWrite {
            pattern: &self.pattern,
            packed: self.packed.clone(),
            base: self.base,
            cells: &self.cells,
            memory: &self.memory,
            parts,
        }
    }
}

impl Sent<'_> {
    /// What is sent of a batch to the servers of these parts of chunks.
    pub(super) fn as_batch<'a>(&'a self, parts: &'a [GridWrite<'a>]) -> Option<BatchWrite<'a>> {
        match self {
            Sent::InPlace(sent) => Some(sent.write(parts)),
            Sent::Selection | Sent::Chunks(_) => None,
        }
    }

    /// Whether it has more than `most` bytes, the capacity of one message a server, or would keep a server busy for too
    /// long, so that it is sent by itself, in portions.
    pub(super) fn is_long(&self, most: u64) -> bool {
        match self {
            Sent::InPlace(sent) => {
                let bytes = sent.packed.end - sent.packed.start;
                bytes > LONG.max(most)
                    || (bytes >= SHORT && bytes > sent.portion(sent.packed.start))
            }
            Sent::Selection | Sent::Chunks(_) => false,
        }
    }
}

impl Client {
    /// A batch that is written into a grid as it is.
    pub(super) fn batch_in_place<'a>(
        &self,
        object: &Object,
        geometry: &Geometry,
        begun: &'a Begun,
    ) -> Sent<'a> {
        let Some(batch) = begun
            .plan
            .batch
            .as_ref()
            .filter(|batch| batch.span.is_some())
        else {
            return Sent::Selection;
        };
        let reach = object.size(geometry).max(begun.plan.reach(geometry));
        let cells = geometry.cells_at(reach);
        Sent::InPlace(InPlace {
            boxes: begun.plan.boxes(geometry, &cells),
            pattern: batch.plan.clone(),
            packed: shown_of(batch),
            base: batch.base,
            cells,
            memory: Cow::Borrowed(begun.bytes()),
        })
    }

    /// A selection that is written into a grid together with batches.
    pub(super) fn selection_in_place<'a>(
        &self,
        object: &Object,
        geometry: &Geometry,
        begun: &'a Begun,
        packed: Slices<'a>,
    ) -> Result<Sent<'a>, FsError> {
        let reach = object.size(geometry).max(begun.plan.reach(geometry));
        let cells = geometry.cells_at(reach);
        let pattern = Pattern::packed(&Batch::of_slab(&cells, &begun.plan.slab), 1);
        let pattern = pattern?;
        let memory = match packed {
            Slices::Owned(bytes) => Cow::Owned(bytes),
            Slices::Borrowed(parts) if parts.len() == 1 => Cow::Borrowed(parts[0]),
            Slices::Borrowed(parts) => Cow::Owned(parts.concat()),
        };
        Ok(Sent::InPlace(InPlace {
            packed: 0..pattern.bytes(),
            pattern,
            base: 0,
            cells,
            boxes: begun.plan.bounds.iter().cloned().collect(),
            memory,
        }))
    }

    /// Appends the chunks of a grid that a batch touches to `into`.
    pub(super) fn parts_in_place<'a>(
        &self,
        object: &Object,
        geometry: &Geometry,
        sent: &InPlace<'_>,
        into: &mut Vec<GridWrite<'a>>,
    ) -> Result<(), FsError> {
        let Some(grid) = &geometry.grid else {
            return Ok(());
        };
        let until = Instant::now() + self.options.io_timeout;
        for region in &sent.boxes {
            let slab = Hyperslab::from_region(region);
            for part in grid_parts(grid, &slab)? {
                if Instant::now() > until {
                    return Err(FsError::Invalid(TOO_SCATTERED.to_owned()));
                }
                let want = moved(&part.want, &slab);
                let rows = Rows::new(&sent.cells, &want, &grid.chunk, &part.chunk)
                    .map_err(|error| FsError::Invalid(error.to_string()))?;
                let by_pieces = Parts::few_pieces(&sent.pattern, &sent.packed, &rows);
                let packed = sent.packed.clone();
                let mut named = Parts::new(&sent.pattern, packed, &rows, by_pieces);
                if named.next().is_some() {
                    into.push(GridWrite {
                        chunk: self.grid_chunk(object, geometry, grid, part.at)?,
                        want: Some(want),
                        slab: part.chunk,
                        data: Slices::Borrowed(Vec::new()),
                    });
                }
            }
        }
        Ok(())
    }

    /// Sends a long batch into its chunks, portion by portion in its order.
    pub(super) fn write_long_batch(
        &self,
        begun: &Begun,
        sent: &Sent<'_>,
        parts: &[GridWrite<'_>],
    ) -> Result<Verifiers, FsError> {
        let mut verifiers = Verifiers::new();
        let Sent::InPlace(sent) = sent else {
            return Ok(verifiers);
        };
        let servers: BTreeSet<_> = parts.iter().map(|part| part.chunk.server).collect();
        let mut from = sent.packed.start;
        while from < sent.packed.end {
            if begun.is_cancelled() {
                return Err(FsError::Cancelled);
            }
            let most = sent
                .portion(from)
                .min(A_SERVER * servers.len().max(1) as u64);
            let to = sent.packed.end.min(from + most);
            let portion = BatchWrite {
                packed: from..to,
                ..sent.write(parts)
            };
            verifiers.extend(self.send(&[], &[], &[portion])?);
            from = to;
        }
        verifiers.dedup();
        Ok(verifiers)
    }
}

/// The packed bytes of a batch that remain visible after the write, if it consists of repetitions in one place.
fn shown_of(batch: &Batched) -> Range<u64> {
    let mut runs = batch.runs();
    match (runs.next(), runs.next()) {
        (Some(run), None) if run.count > 1 && run.file_stride == 0 => {
            let from = run.packed + (run.count - 1) * run.bytes;
            from..from + run.bytes
        }
        _ => batch.packed.clone(),
    }
}
