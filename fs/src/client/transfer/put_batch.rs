//! Writes of batches, alone or together with selections.
//!
//! A grid takes a batch in place, as it is, except that repetitions in one place are written once. A selection that is
//! written together with batches becomes a pattern of its packed bytes, so that one message a server has all of them
//! in order.
//!
//! An `aligned` object gets chunks. The pieces of a batch are sorted, a portion of them at a time; if two places of the
//! buffer go to the same byte, the later one is used. The sorted pieces are combined into boxes and lattices, as a
//! flush does with dirty runs. If they are so irregular that most would become a chunk each, they are *packed*: a range
//! of the object in which they are dense enough is read, and written back with them as one chunk. That needs a right to
//! write the complete range, so it is only done where mounts keep rights or this mount is alone, and where no other
//! write of the same group touches the same rows: its bytes cannot be read yet.
//!
//! A *long* batch into a grid is sent one portion after the other, so that it can be cancelled and no message has more
//! of it than fits.
//!
//! Memory: the pieces of a portion, at most [`PORTION`] of 24 bytes, the boxes made of them, and the bytes to send.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use slabfs_model::batch::{self, Batch, Parts, Plan as Pattern, Rows};
use slabfs_model::layout::{Run, boxes_of_run};
use slabfs_model::{Coords, Hyperslab, Region, for_each_run};
use slabfs_objstore::StoreError;
use slabfs_objstore::client::{BatchAsk, BatchPart, BatchPiece, WriteKind, WritePiece};

use super::super::Client;
use super::super::batch::invalid_batch;
use super::super::commit::{GridWrite, NewChunk};
use super::super::committed::grid_parts;
use super::super::error::FsError;
use super::super::geometry::{Geometry, moved};
use super::super::object::Object;
use super::super::payload::Slices;
use super::batched::Batched;
use super::core::Begun;
use super::engine::A_SERVER;
use super::run::Group;

/// Pieces that are sorted at a time.
const PORTION: usize = 1 << 18;
/// With more slabs than this in a portion, ranges are packed, if a packed range has no more than `A_SLAB` bytes per
/// slab: about the cost of a chunk's record.
const MOST_SLABS: usize = 512;
const A_SLAB: u64 = 512;
/// The longest range that is packed into one chunk.
const RANGE: u64 = 4 << 20;

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
    pattern: Arc<Pattern>,
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

impl Sent<'_> {
    /// Whether it has more than `most` bytes, the capacity of one message a server, or would keep a server busy for too
    /// long, so that it is sent by itself, in portions.
    pub(super) fn is_long(&self, most: u64) -> bool {
        match self {
            Sent::InPlace(sent) => {
                let bytes = sent.packed.end - sent.packed.start;
                bytes > LONG.max(most) || (bytes > SHORT && bytes > sent.portion(sent.packed.start))
            }
            Sent::Selection | Sent::Chunks(_) => false,
        }
    }
}

impl Batched {
    /// Calls `each` with the start and the end of each piece, in bytes of the object.
    pub(super) fn for_each_piece(&self, each: &mut dyn FnMut(u64, u64)) {
        for run in self
            .plan
            .runs_within(0..i64::MAX as u64, self.packed.clone())
        {
            for number in shown(&run) {
                let moved = run.file_stride.wrapping_mul(number);
                let at = run.file.wrapping_add_signed(moved);
                each(at, at + run.bytes);
            }
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
        let batch = begun.plan.batch.as_ref();
        let Some((batch, (from, to))) = batch.and_then(|batch| Some((batch, batch.span?))) else {
            return Sent::Selection;
        };
        let reach = object.size(geometry).max(begun.plan.reach(geometry));
        let cells = geometry.cells_at(reach);
        let mut boxes = Vec::new();
        boxes_of_run(&cells, from, to - from, &mut boxes);
        Sent::InPlace(InPlace {
            pattern: batch.plan.clone(),
            packed: shown_of(batch),
            base: batch.base,
            cells,
            boxes,
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
        let pattern = pattern.map_err(invalid_batch)?;
        let memory = match packed {
            Slices::Owned(bytes) => Cow::Owned(bytes),
            Slices::Borrowed(parts) if parts.len() == 1 => Cow::Borrowed(parts[0]),
            Slices::Borrowed(parts) => Cow::Owned(parts.concat()),
        };
        Ok(Sent::InPlace(InPlace {
            packed: 0..pattern.bytes(),
            pattern: Arc::new(pattern),
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
        for region in &sent.boxes {
            let slab = Hyperslab::from_region(region);
            for part in grid_parts(grid, &slab)? {
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
    ) -> Result<(), FsError> {
        let Sent::InPlace(sent) = sent else {
            return Ok(());
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
            let portion = Sent::InPlace(InPlace {
                pattern: sent.pattern.clone(),
                packed: from..to,
                base: sent.base,
                cells: sent.cells.clone(),
                boxes: Vec::new(),
                memory: Cow::Borrowed(&*sent.memory),
            });
            self.write_batches(&[], [(&portion, parts)])?;
            from = to;
        }
        Ok(())
    }

    /// Sends chunks, and batches that are written into grids, one message a server.
    pub(super) fn write_batches<'a>(
        &self,
        chunks: &[NewChunk<'_>],
        batches: impl IntoIterator<Item = (&'a Sent<'a>, &'a [GridWrite<'a>])>,
    ) -> Result<(), StoreError> {
        let slices: Vec<_> = chunks.iter().map(|chunk| chunk.data.io()).collect();
        let puts: Vec<WritePiece<'_>> = chunks
            .iter()
            .zip(&slices)
            .map(|(chunk, data)| WritePiece {
                server: chunk.stored.server,
                name: &chunk.name,
                form: &chunk.form,
                kind: WriteKind::Put,
                data,
            })
            .collect();
        let mut asks = Vec::new();
        for (sent, parts) in batches {
            let Sent::InPlace(sent) = sent else { continue };
            let pieces = parts.iter().filter_map(|part| {
                Some(BatchPiece {
                    server: part.chunk.server,
                    name: &part.chunk.name,
                    form: &part.chunk.form,
                    want: part.want.as_ref()?,
                    slab: &part.slab,
                    stage: 0,
                    found: true,
                })
            });
            asks.push(BatchAsk {
                part: BatchPart {
                    plan: &sent.pattern,
                    packed: sent.packed.clone(),
                    cells: &sent.cells,
                    base: sent.base,
                },
                pieces: pieces.collect(),
                memory: &*sent.memory,
            });
        }
        self.servers().write_batches(&puts, &asks)
    }

    /// A batch as chunks of an `aligned` object.
    pub(super) fn batch_as_chunks<'a>(
        &self,
        group: &Group,
        geometry: &Geometry,
        begun: &'a Begun,
    ) -> Result<Sent<'a>, FsError> {
        let Some(batch) = &begun.plan.batch else {
            return Ok(Sent::Selection);
        };
        let object = &*group.object;
        let reach = object.size(geometry).max(begun.plan.reach(geometry));
        let mut making = Making {
            client: self,
            object,
            geometry,
            cells: geometry.cells_at(reach),
            memory: begun.bytes(),
            may_pack: (self.alone() || self.strict()) && group.has_for_itself(begun),
            chunks: Vec::new(),
        };
        let mut portion = Vec::new();
        let pieces = batch
            .plan
            .runs_within(0..i64::MAX as u64, batch.packed.clone());
        for run in pieces {
            for number in shown(&run) {
                let step =
                    |at: u64, stride: i64| at.wrapping_add_signed(stride.wrapping_mul(number));
                portion.push(Piece {
                    file: step(run.file, run.file_stride),
                    bytes: run.bytes,
                    memory: step(run.memory, run.memory_stride) - batch.base,
                });
                if portion.len() == PORTION {
                    // A batch of few elements may name more pieces than can ever be completed.
                    if begun.is_cancelled() {
                        return Err(FsError::Cancelled);
                    }
                    making.add(&mut portion)?;
                }
            }
        }
        making.add(&mut portion)?;
        Ok(Sent::Chunks(making.chunks))
    }
}

/// The repetitions of a run that remain visible after the write: of repetitions in one place, only the last.
fn shown(run: &batch::Run) -> Range<i64> {
    let count = run.count as i64;
    match run.file_stride {
        0 => (count - 1).max(0)..count,
        _ => 0..count,
    }
}

/// The packed bytes of a batch that remain visible after the write, if it consists of repetitions in one place.
fn shown_of(batch: &Batched) -> Range<u64> {
    let packed = batch.packed.clone();
    let mut runs = batch.plan.runs_within(0..i64::MAX as u64, packed.clone());
    match (runs.next(), runs.next()) {
        (Some(run), None) if run.count > 1 && run.file_stride == 0 => {
            let from = run.packed + (run.count - 1) * run.bytes;
            from..from + run.bytes
        }
        _ => packed,
    }
}

/// A piece of a batch: its position in the object and in memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    file: u64,
    bytes: u64,
    memory: u64,
}

impl Piece {
    fn end(&self) -> u64 {
        self.file + self.bytes
    }
}

/// Chunks being made from a batch, oldest first.
struct Making<'a> {
    client: &'a Client,
    object: &'a Object,
    geometry: &'a Geometry,
    cells: Coords,
    memory: &'a [u8],
    /// No other write touches the bytes between the pieces meanwhile.
    may_pack: bool,
    chunks: Vec<(Hyperslab, Vec<u8>)>,
}

impl Making<'_> {
    /// Makes chunks of pieces, and empties the list.
    fn add(&mut self, portion: &mut Vec<Piece>) -> Result<(), FsError> {
        let pieces = in_order(portion);
        portion.clear();
        let runs: Vec<Run> = pieces
            .iter()
            .map(|piece| Run {
                offset: piece.file,
                len: piece.bytes,
            })
            .collect();
        let client = self.client;
        let slabs = client.slabs_of_runs(self.object, self.geometry, &self.cells, &runs);
        drop(runs);
        if slabs.len() > MOST_SLABS && self.may_pack {
            drop(slabs);
            return self.add_packed(&pieces);
        }
        for slab in slabs {
            self.add_slab(slab, &pieces);
        }
        Ok(())
    }

    /// Adds a chunk for a slab that the pieces cover completely.
    fn add_slab(&mut self, slab: Hyperslab, pieces: &[Piece]) {
        let mut bytes = Vec::with_capacity(slab.volume() as usize);
        for_each_run(&self.cells, &slab, &mut |start, len| {
            let (mut at, end) = (start as u64, (start + len) as u64);
            let first = pieces.partition_point(|piece| piece.end() <= at);
            for piece in &pieces[first..] {
                if at == end {
                    break;
                }
                let from = (piece.memory + (at - piece.file)) as usize;
                let upto = piece.end().min(end);
                bytes.extend_from_slice(&self.memory[from..from + (upto - at) as usize]);
                at = upto;
            }
        });
        self.chunks.push((slab, bytes));
    }

    /// Packs ranges in which the pieces are dense enough into chunks; other pieces become chunks of their own.
    fn add_packed(&mut self, pieces: &[Piece]) -> Result<(), FsError> {
        let mut rest = pieces;
        while let Some(first) = rest.first() {
            let most = RANGE.min(self.client.chunk_limit());
            let dense = |number: usize, end: u64| {
                let bytes = end - first.file;
                bytes <= most && bytes <= A_SLAB.saturating_mul(number as u64)
            };
            // Extends the range piece by piece while it stays dense.
            let ends = (1..).zip(rest);
            let count = ends
                .take_while(|(number, piece)| *number == 1 || dense(*number, piece.end()))
                .count();
            let (some, others) = rest.split_at(count.max(1));
            rest = others;
            let (from, to) = (first.file, some.last().unwrap_or(first).end());
            let mut boxes = Vec::new();
            boxes_of_run(&self.cells, from, to - from, &mut boxes);
            // With placement `region` a chunk lies in one block.
            for region in self.client.split(self.geometry, boxes) {
                let slab = Hyperslab::from_region(&region);
                if some.len() == 1 {
                    self.add_slab(slab, some);
                    continue;
                }
                let mut bytes = vec![0; slab.volume() as usize];
                self.client
                    .read_committed(self.object, self.geometry, &slab, &mut bytes)?;
                let mut packed = 0;
                for_each_run(&self.cells, &slab, &mut |start, len| {
                    let (start, end) = (start as u64, (start + len) as u64);
                    let first = some.partition_point(|piece| piece.end() <= start);
                    for piece in some[first..].iter().take_while(|piece| piece.file < end) {
                        let (from, to) = (piece.file.max(start), piece.end().min(end));
                        let memory = (piece.memory + (from - piece.file)) as usize;
                        let len = (to - from) as usize;
                        let at = packed + (from - start) as usize;
                        bytes[at..at + len].copy_from_slice(&self.memory[memory..memory + len]);
                    }
                    packed += len;
                });
                self.chunks.push((slab, bytes));
            }
        }
        Ok(())
    }
}

/// The pieces sorted by their place in the object; bytes named by several of them belong to the last one.
fn in_order(pieces: &[Piece]) -> Vec<Piece> {
    let mut sorted = pieces.to_vec();
    sorted.sort_by_key(|piece| piece.file);
    if sorted.windows(2).all(|pair| pair[0].end() <= pair[1].file) {
        return sorted;
    }
    drop(sorted);
    // From the last piece to the first: the parts not yet covered.
    let mut covered: BTreeMap<u64, u64> = BTreeMap::new();
    let mut result = Vec::with_capacity(pieces.len());
    for piece in pieces.iter().rev() {
        let (mut at, end) = (piece.file, piece.end());
        let mut joined = (at, end);
        if let Some((&from, &to)) = covered.range(..=at).next_back()
            && to >= at
        {
            joined = (from, end.max(to));
            at = at.max(to);
        }
        let mut within = Vec::new();
        for (&from, &to) in covered.range(piece.file..=end) {
            if from > at {
                result.push(part(piece, at, from));
            }
            at = at.max(to);
            joined.1 = joined.1.max(to);
            within.push(from);
        }
        if at < end {
            result.push(part(piece, at, end));
        }
        for from in within {
            covered.remove(&from);
        }
        covered.insert(joined.0, joined.1);
    }
    result.sort_unstable_by_key(|piece| piece.file);
    result
}

fn part(piece: &Piece, from: u64, to: u64) -> Piece {
    Piece {
        file: from,
        bytes: to - from,
        memory: piece.memory + (from - piece.file),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_last_piece_wins(all in prop::collection::vec((0u64..60, 1u64..20), 0..30)) {
            let mut memory = 0;
            let pieces: Vec<Piece> = all
                .into_iter()
                .map(|(file, bytes)| {
                    memory += bytes;
                    Piece { file, bytes, memory: memory - bytes }
                })
                .collect();
            let mut naive = [None; 80];
            for piece in &pieces {
                for byte in 0..piece.bytes {
                    naive[(piece.file + byte) as usize] = Some(piece.memory + byte);
                }
            }
            let result = in_order(&pieces);
            prop_assert!(result.windows(2).all(|pair| pair[0].end() <= pair[1].file));
            let mut found = [None; 80];
            for piece in result {
                for byte in 0..piece.bytes {
                    found[(piece.file + byte) as usize] = Some(piece.memory + byte);
                }
            }
            prop_assert_eq!(found, naive);
        }
    }
}
