//! The rows of a slab of an object that is also a slab of a chunk: cells that are contiguous in both.
//!
//! Any row is computed from its number, and the rows that touch a range of the object are found by bisection: they
//! are never listed. All sums are checked when the rows are built, so the input may come from the wire.

use crate::hyperslab::gcd;
use crate::{Axis, Coords, Hyperslab};

/// Cells that are contiguous both in the object and in the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The offset of the first, in bytes of the object's canonical order.
    pub file: u64,
    /// The offset of the first, in bytes of the chunk.
    pub chunk: u64,
    /// The number of bytes; not 0.
    pub len: u64,
}

/// One axis of the slab.
#[derive(Debug, Clone, Copy)]
struct Line {
    file: Axis,
    chunk: Axis,
    file_pitch: u64,
    chunk_pitch: u64,
    /// The number of steps: cells, or segments of cells on the innermost axis.
    steps: u64,
    /// The cells of a step.
    segment: u64,
}

/// The rows, in canonical order.
#[derive(Debug, Clone)]
pub struct Rows {
    lines: smallvec::SmallVec<[Line; 4]>,
    count: u64,
    len: u64,
}

/// The slabs have different shapes, lie outside, or reach beyond 2^63-1 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the slabs of the object and of the chunk do not fit each other")]
pub struct Misfit;

impl Rows {
    /// The rows of `want`, in an object of these `cells` (dims, last axis in bytes), which is `slab` of a chunk of
    /// this `shape`.
    ///
    /// # Errors
    /// See [`Misfit`].
    pub fn new(
        cells: &[u64],
        want: &Hyperslab,
        shape: &[u64],
        slab: &Hyperslab,
    ) -> Result<Rows, Misfit> {
        let packed = want.packed_shape();
        let fits = want.validate(cells).is_ok()
            && slab.validate(shape).is_ok()
            && packed == slab.packed_shape()
            && !packed.is_empty();
        if !fits {
            return Err(Misfit);
        }
        let mut rows = Rows {
            lines: smallvec::SmallVec::new(),
            count: 0,
            len: 0,
        };
        if want.is_empty() {
            return Ok(rows);
        }
        let file_pitches = pitches(cells, want)?;
        let chunk_pitches = pitches(shape, slab)?;
        let mut inner = packed.len() - 1;
        // As long as an axis is covered in full on both sides, its cells continue where the previous index ends.
        while inner > 0 && packed[inner] == cells[inner] && packed[inner] == shape[inner] {
            inner -= 1;
        }
        let mut count = 1u64;
        for axis in 0..=inner {
            let (file, chunk) = (want.axes[axis].normal(), slab.axes[axis].normal());
            let segment = match (axis == inner, file.count, chunk.count) {
                (false, ..) => 1,
                (true, 1, 1) => packed[axis],
                (true, 1, _) => chunk.block,
                (true, _, 1) => file.block,
                (true, ..) => gcd(file.block, chunk.block),
            };
            let steps = packed[axis] / segment;
            count = count.checked_mul(steps).ok_or(Misfit)?;
            rows.lines.push(Line {
                file,
                chunk,
                file_pitch: file_pitches[axis],
                chunk_pitch: chunk_pitches[axis],
                steps,
                segment,
            });
        }
        rows.count = count;
        rows.len = rows
            .lines
            .last()
            .map_or(0, |line| line.segment * line.file_pitch);
        Ok(rows)
    }

    /// The number of rows.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The row with a number below [`Rows::count`].
    pub fn get(&self, number: u64) -> Row {
        let mut rest = number;
        let (mut file, mut chunk) = (0, 0);
        for line in self.lines.iter().rev() {
            let step = match line.steps {
                1 => 0,
                steps => {
                    let step = rest % steps;
                    rest /= steps;
                    step * line.segment
                }
            };
            file += line.file.cell(step) * line.file_pitch;
            chunk += line.chunk.cell(step) * line.chunk_pitch;
        }
        Row {
            file,
            chunk,
            len: self.len,
        }
    }

    /// The number of the first row that ends after a byte of the object.
    pub fn first_behind(&self, file: u64) -> u64 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).file + self.len > file {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    /// The span of the object from the first byte to the end of the last; empty if there is no row.
    pub fn file_span(&self) -> std::ops::Range<u64> {
        match self.count {
            0 => 0..0,
            count => self.get(0).file..self.get(count - 1).file + self.len,
        }
    }
}

/// The bytes from one index to the next, for each axis; everything the slab reaches fits 63 bits.
fn pitches(cells: &[u64], slab: &Hyperslab) -> Result<Coords, Misfit> {
    let mut pitches = Coords::from_elem(1, cells.len());
    for axis in (0..cells.len().saturating_sub(1)).rev() {
        let pitch = pitches[axis + 1].checked_mul(cells[axis + 1]);
        pitches[axis] = pitch.ok_or(Misfit)?;
    }
    let bounds = slab.bounds().ok_or(Misfit)?;
    let mut last = 0u64;
    for (axis, pitch) in pitches.iter().enumerate() {
        let reach = bounds.end(axis).checked_mul(*pitch);
        last = reach
            .and_then(|reach| last.checked_add(reach))
            .ok_or(Misfit)?;
    }
    match last <= i64::MAX as u64 {
        true => Ok(pitches),
        false => Err(Misfit),
    }
}
