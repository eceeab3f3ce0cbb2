//! Chunks of `aligned` objects made from batches.
//!
//! The pieces of a batch are sorted, a portion of them at a time; if two places of the buffer go to the same byte, the
//! later one is used. The sorted pieces are combined into boxes and lattices, as a flush does with dirty runs. If they
//! are so irregular that most would become a chunk each, they are *packed*: a range of the object in which they are dense
//! enough is read, and written back with them as one chunk. That needs a right to write the complete range, so it is only
//! done where mounts keep rights or this mount is alone, and where no other write of the same group touches the same
//! rows: its bytes cannot be read yet.
//!
//! Memory: the pieces of a portion, at most [`PORTION`] of 24 bytes, the boxes made of them, and the bytes to send.

use std::collections::BTreeMap;

use slabfs_model::layout::{Run, boxes_of_run};
use slabfs_model::{Coords, Hyperslab, for_each_run};

use super::core::Begun;
use super::group::Group;
use super::in_place::Sent;
use super::plan::shown;
use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;

/// Pieces that are sorted at a time.
const PORTION: usize = 1 << 18;
/// With more slabs than this in a portion, ranges are packed, if a packed range has no more than `A_SLAB` bytes per
/// slab: about the cost of a chunk's record.
const MOST_SLABS: usize = 512;
const A_SLAB: u64 = 512;
/// The longest range that is packed into one chunk.
const RANGE: u64 = 4 << 20;

impl Client {
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
        for run in batch.runs() {
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
