//! Converts a hyperslab of an array to a batch.

use super::{Batch, Pattern, Place};
use crate::Hyperslab;

impl Batch {
    /// The elements of `slab` in an array of `dims`, packed in row-major order, in units of elements. Empty for a
    /// slab without elements.
    ///
    /// `slab` lies within `dims`, and these have at most 2^63-1 elements: then nothing here overflows.
    pub fn of_slab(dims: &[u64], slab: &Hyperslab) -> Vec<Batch> {
        // From the innermost axis outwards: the pattern of one index of the next outer axis, its number of elements,
        // and the distance from one index to the next.
        let (mut inner, mut packed, mut step) = (Pattern::Data(1), 1u64, 1u64);
        for (axis, dim) in slab.axes.iter().zip(dims).rev() {
            if axis.count == 0 || axis.block == 0 {
                return Vec::new();
            }
            // The indices of a block are contiguous if one index covers a full step.
            inner = match inner {
                Pattern::Data(size) if size == step => Pattern::Data(size * axis.block),
                inner if axis.block == 1 => inner,
                inner => repeated(0, step, packed, axis.block, inner),
            };
            packed *= axis.block;
            if axis.start > 0 || axis.count > 1 {
                let stride = if axis.count > 1 { axis.stride } else { 0 };
                inner = repeated(axis.start * step, stride * step, packed, axis.count, inner);
            }
            packed *= axis.count;
            step = step.saturating_mul(*dim);
        }
        match inner {
            Pattern::Vector(batches) => batches,
            Pattern::Data(size) => vec![Batch::data(Place::after(0), Place::after(0), size)],
        }
    }
}

/// A vector with one repeated pattern.
fn repeated(offset: u64, stride: u64, packed: u64, count: u64, pattern: Pattern) -> Pattern {
    let file = Place::after(offset as i64).every(stride as i64);
    let memory = Place::after(0).every(packed as i64);
    Pattern::Vector(vec![Batch::repeated(file, memory, count, pattern)])
}
