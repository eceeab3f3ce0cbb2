//! Nested batches: one request for a nested strided pattern, however many pieces it has.
//!
//! The structure is Galley's (N. Nieuwejaar and D. Kotz, "The Galley parallel file system", 1996:
//! `struct gfs_batch`), in 64 bits: a [`Batch`] has an offset in the object and one in memory, the number of
//! repetitions of the pattern, their strides, and the pattern: bytes, or a vector of batches. Vectors, trees, vectors
//! of trees and trees of vectors all are `[Batch]`.
//!
//! **Offsets.** An absolute offset counts from the start of the object (of the buffer), also below a pattern that is
//! repeated: each repetition then means the same place. A relative one counts from the previous element's offset, and
//! that of the first element of a vector from the start of the current repetition of its parent. The offset of an
//! element is the start of its first repetition.
//!
//! **Order.** Pieces are processed as nested loops would: the elements in order, and for each element its repetitions
//! in order. If two pieces of a write select the same bytes of the object, the later one wins.
//!
//! **The packed bytes** of a batch are the bytes of all its pieces, concatenated in that order. Each node knows how
//! many it has, so a walk can be restricted to a range of them, or to a range of the object.
//!
//! The stages: a batch is written down as `[Batch]`, checked once by [`Plan::new`] (`check`: overflow, offsets below
//! 0, limits), and then walked by ranges of the object without being listed (`walk`). `overlap` refuses reads that
//! select bytes of memory twice; `flat` is the wire form of the object side; `parts` and `rows` give the pieces in a
//! part of a chunk in the order in which bytes are sent; `pack` has the loops that copy. A plan has as many nodes as
//! the batch, whatever the number of pieces.

mod check;
mod flat;
mod overlap;
mod pack;
mod parts;
mod rows;
mod slab;
mod span;
#[cfg(test)]
mod tests;
mod walk;

use serde::{Deserialize, Serialize};

pub use check::Plan;
pub use flat::{Flat, FlatNode, FlatWhat, decode_bounded};
pub use overlap::MAX_LISTED;
pub use pack::{Steps, carry, pack, unpack};
pub use parts::{Cursor, Part, Parts};
pub use rows::{Misfit, Row, Rows};
pub use walk::{Run, Runs};

/// The most nodes of a batch: elements of all its vectors together.
pub const MAX_NODES: usize = 1 << 16;
/// The most levels of nested vectors.
pub const MAX_DEPTH: usize = 64;

/// One element of a batched request: a pattern and its repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Its position in the object.
    pub file: Place,
    /// Its position in the buffer.
    pub memory: Place,
    /// The number of repetitions; 0 selects nothing.
    pub count: u64,
    /// The repeated pattern.
    pub pattern: Pattern,
}

/// Offset and stride of a [`Batch`], in units of the request: bytes or elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// The start of the first repetition.
    pub offset: i64,
    /// Whether the offset counts from the start, instead of from the previous element or the parent.
    pub absolute: bool,
    /// The distance from one repetition to the next; may be 0 or negative.
    pub stride: i64,
}

/// The pattern of a [`Batch`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// A contiguous piece of this size, in units of the request.
    Data(u64),
    /// Batches, in order.
    Vector(Vec<Batch>),
}

impl Place {
    /// An offset from the start.
    pub const fn at(offset: i64) -> Place {
        Place {
            offset,
            absolute: true,
            stride: 0,
        }
    }

    /// An offset from the previous element, or from the parent.
    pub const fn after(offset: i64) -> Place {
        Place {
            offset,
            absolute: false,
            stride: 0,
        }
    }

    /// The same with a stride.
    pub const fn every(self, stride: i64) -> Place {
        Place { stride, ..self }
    }
}

impl Batch {
    /// One piece of `size` units: a standard request.
    pub const fn data(file: Place, memory: Place, size: u64) -> Batch {
        Batch::repeated(file, memory, 1, Pattern::Data(size))
    }

    /// A pattern, repeated by the strides of `file` and `memory`.
    pub const fn repeated(file: Place, memory: Place, count: u64, pattern: Pattern) -> Batch {
        Batch {
            file,
            memory,
            count,
            pattern,
        }
    }
}

/// The side of a batch that an error refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The object.
    File,
    /// The caller's buffer.
    Memory,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Side::File => "the object",
            Side::Memory => "the buffer",
        })
    }
}

/// The errors of a batch. Elements are named by their number, counted in the order in which they are written down,
/// from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum BatchError {
    /// Too many elements.
    #[error("a batch has at most {MAX_NODES} elements, and this has more; make several of it")]
    TooLarge,
    /// From the wire: the numbers of children do not match the number of elements.
    #[error("elements of the batch are missing")]
    Broken,
    /// Vectors nested too deep.
    #[error("vectors of a batch are nested at most {MAX_DEPTH} deep, and these are deeper")]
    TooDeep,
    /// A sum exceeds 64 bits.
    #[error(
        "element {0} of the batch reaches beyond 2^63-1 bytes; look at its offsets, strides and count"
    )]
    Overflow(u32),
    /// An offset below 0.
    #[error("element {element} of the batch begins {by} bytes before the start of {side}")]
    Negative {
        /// Its number.
        element: u32,
        /// The offset's side.
        side: Side,
        /// The distance below 0.
        by: u64,
    },
    /// Bytes of memory that a read selects twice.
    #[error("{} of the batch read into the same bytes of the buffer", pieces_of(*one, *other))]
    Overlap {
        /// An element's number.
        one: u32,
        /// The other's; the same number if its own repetitions overlap.
        other: u32,
    },
    /// The overlap check would take too long.
    #[error(
        "whether {} of the batch read into the same bytes of the buffer cannot be determined in reasonable time; let \
         strides in memory be multiples of each other, or make several batches of it",
        pieces_of(*one, *other)
    )]
    Unclear {
        /// An element's number.
        one: u32,
        /// The other's.
        other: u32,
    },
}

/// Names two elements, or one whose repetitions overlap.
fn pieces_of(one: u32, other: u32) -> String {
    match one == other {
        true => format!("pieces of element {one}"),
        false => format!("elements {one} and {other}"),
    }
}

impl BatchError {
    /// The numbers of the elements that the error names.
    pub fn elements(&self) -> Vec<u32> {
        match *self {
            BatchError::TooLarge | BatchError::Broken | BatchError::TooDeep => Vec::new(),
            BatchError::Overflow(element) | BatchError::Negative { element, .. } => vec![element],
            BatchError::Overlap { one, other } | BatchError::Unclear { one, other } => {
                match one == other {
                    true => vec![one],
                    false => vec![one, other],
                }
            }
        }
    }
}

/// The path of the element with a number: its index in the top vector, then in the vector below, and so on; `None` if
/// there is no such element.
pub fn path_of(batches: &[Batch], number: u32) -> Option<Vec<u32>> {
    fn within(batches: &[Batch], left: &mut u32, path: &mut Vec<u32>) -> bool {
        for (index, batch) in (0..).zip(batches) {
            path.push(index);
            if *left == 0 {
                return true;
            }
            *left -= 1;
            if let Pattern::Vector(below) = &batch.pattern
                && within(below, left, path)
            {
                return true;
            }
            path.pop();
        }
        false
    }
    let (mut left, mut path) = (number, Vec::new());
    within(batches, &mut left, &mut path).then_some(path)
}
