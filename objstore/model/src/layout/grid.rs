//! The `grid` and `canonical` layouts: chunks of one shape, whose position and server are computed.
//!
//! Chunk `at` holds the cells from `at * chunk` on. `canonical` is the grid of one chunk: along the slowest axis it
//! is as long as any object can be, so it never moves when the object grows there.
//!
//! A plan cuts the axes of the selection at the chunk boundaries and combines the cuts; it never examines single
//! cells, and a selection with wide steps skips the chunks between.
//!
//! Deliberately elsewhere: whether a chunk exists. Only its data server knows, and a missing chunk reads as fill.

use crate::hyperslab::{Pieces, cut_axis, for_each_choice};
use crate::{
    Axis, Coords, GeometryError, Hyperslab, Layout, MAX_BYTES, ObjectId, Region, ServerId, Space,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

/// A regular cut of an object into chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grid {
    /// The shape of each chunk, in cells; at least 1 on each axis.
    pub chunk: Coords,
}

/// A part of one chunk of a grid that a selection needs; both sides have the same packed shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridPart {
    /// The chunk: its index along each axis.
    pub at: Coords,
    /// The destination of the cells: packed coordinates of the selection.
    pub want: Hyperslab,
    /// The source of the cells: coordinates within the chunk.
    pub chunk: Hyperslab,
}

/// The increment of the server number for one step along each axis but the fastest, from the second fastest on.
///
/// The fastest axis adds 1. These are the primes after 2^16: none is a multiple of a number of servers, so along
/// every axis neighbours go to different servers.
const STEPS: [u64; crate::MAX_RANK - 1] = [
    65_537, 65_539, 65_543, 65_551, 65_557, 65_563, 65_579, 65_581, 65_587, 65_599, 65_609, 65_617,
    65_629, 65_633, 65_647, 65_651, 65_657, 65_677, 65_687, 65_699, 65_701, 65_707, 65_713, 65_717,
    65_719, 65_729, 65_731, 65_761, 65_777, 65_789, 65_809,
];

impl Grid {
    /// The grid of an object with this layout; `None` for `aligned`, which has none.
    ///
    /// Fails where the space is not valid, where the chunk's shape has another rank than the object,
    /// or where a chunk would exceed 2^63-1 bytes.
    pub fn of(layout: &Layout, space: &Space) -> Result<Option<Grid>, GeometryError> {
        let mut cells = space.cells()?;
        match layout {
            Layout::Aligned => Ok(None),
            Layout::Grid(shape) => {
                if shape.len() != space.dims.len() {
                    let (got, want) = (shape.len(), space.dims.len());
                    return Err(GeometryError::RankMismatch { got, want });
                }
                let shape: Coords = shape.iter().map(|&len| len.max(1)).collect();
                Ok(Some(Grid {
                    chunk: Space::new(&shape, space.elem).cells()?,
                }))
            }
            Layout::Canonical => {
                for len in &mut cells {
                    *len = (*len).max(1);
                }
                // A dim of 0 on another axis can hide a product beyond 64 bits; nothing is stored then.
                let row = cells[1..]
                    .iter()
                    .fold(1u64, |row, &len| row.saturating_mul(len));
                match (space.dims.len(), cells.len()) {
                    (0, _) => {}
                    (_, 1) => cells[0] = MAX_BYTES / space.elem * space.elem,
                    _ => cells[0] = (MAX_BYTES / row).max(1),
                }
                Ok(Some(Grid { chunk: cells }))
            }
        }
    }

    /// The cells of a chunk, including those beyond the end of the object.
    pub fn chunk_region(&self, at: &[u64]) -> Region {
        let offset = at
            .iter()
            .zip(&self.chunk)
            .map(|(&at, &len)| at.saturating_mul(len));
        Region {
            offset: offset.collect(),
            shape: self.chunk.clone(),
        }
    }

    /// Appends the parts of chunks that hold `want`, chunk by chunk in row-major order.
    ///
    /// One part a chunk, or a few where a chunk boundary cuts blocks of a lattice. None for a selection of another
    /// rank.
    pub fn plan(&self, want: &Hyperslab, out: &mut Vec<GridPart>) {
        if want.rank() != self.chunk.len() || want.is_empty() {
            return;
        }
        let axes: SmallVec<[Vec<AxisChunk>; 4]> = want
            .axes
            .iter()
            .zip(&self.chunk)
            .map(|(axis, &len)| cut(axis, len.max(1)))
            .collect();
        for_each_choice(&axes, |chunks| {
            let chunks: SmallVec<[&AxisChunk; 4]> = chunks.collect();
            let pieces: SmallVec<[&[(u64, Axis)]; 4]> =
                chunks.iter().map(|chunk| &chunk.pieces[..]).collect();
            for_each_choice(&pieces, |pieces| {
                let mut part = GridPart {
                    at: chunks.iter().map(|chunk| chunk.at).collect(),
                    want: Hyperslab::default(),
                    chunk: Hyperslab::default(),
                };
                for &(from, cells) in pieces {
                    part.want.axes.push(Axis::span(from, cells.len()));
                    part.chunk.axes.push(cells);
                }
                out.push(part);
            });
        });
    }

    /// The server of a chunk, among those the object is striped over: round robin along each axis, the first one by
    /// the object's number.
    ///
    /// It does not depend on anything that changes when the object grows. With an empty stripe the result is
    /// `ServerId(0)`: such an object has no chunks.
    pub fn server(&self, object: ObjectId, at: &[u64], stripe: &[ServerId]) -> ServerId {
        let count = stripe.len() as u64;
        if count == 0 {
            return ServerId(0);
        }
        let steps = std::iter::once(&1).chain(&STEPS);
        let first = first_of(object, stripe.len()) as u64;
        let sum = at.iter().rev().zip(steps).fold(first, |sum, (&at, &step)| {
            // Server numbers fit 32 bits, so the product fits 64.
            (sum + (at % count) * (step % count)) % count
        });
        stripe[sum as usize]
    }
}

/// The index in a stripe of `count` servers of the first chunk of an object; 0 for an empty stripe.
#[must_use]
pub fn first_of(object: ObjectId, count: usize) -> usize {
    (xxh3_64(&object.0.to_le_bytes()) % (count as u64).max(1)) as usize
}

/// What one axis of a selection has in one chunk.
struct AxisChunk {
    at: u64,
    /// First packed index, and cells within the chunk.
    pieces: Pieces<(u64, Axis)>,
}

/// Cuts an axis of a selection at the chunk boundaries.
fn cut(axis: &Axis, len: u64) -> Vec<AxisChunk> {
    let axis = axis.normal();
    let (mut chunks, mut index) = (Vec::new(), 0);
    while index < axis.len() {
        let at = axis.cell(index) / len;
        let low = at * len;
        let end = axis.index_range(low, low.saturating_add(len)).end;
        let mut pieces = cut_axis(&axis, index, end);
        for (_, cells) in &mut pieces {
            cells.start -= low;
        }
        chunks.push(AxisChunk { at, pieces });
        index = end;
    }
    chunks
}

#[cfg(test)]
mod tests;
