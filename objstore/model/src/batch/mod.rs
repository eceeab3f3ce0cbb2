//! Nested batches: one request for a nested strided pattern, however many pieces it has.
//!
//! The structure is Galley's (N. Nieuwejaar and D. Kotz, "The Galley parallel file system", 1996: `struct
//! gfs_batch`), in 64 bits: a [`Batch`] names an offset in the object and one in memory, how often the
//! pattern is repeated, by which strides, and the pattern: bytes, or a vector of batches. Vectors, trees, vectors
//! of trees and trees of vectors all are `[Batch]`.
//!
//! **What an offset means.** An absolute offset counts from the start of the object (of the buffer), also below
//! a pattern that is repeated: each repetition then means the same place. A relative one counts from the previous
//! element's offset, and that of the first element of a vector from where this repetition of its parent lies.
//! The offset of an element is where its first repetition begins.
//!
//! **What happens in which order.** Pieces are taken as a program with nested loops would: elements in turn, of
//! each its repetitions in turn. Of two pieces of a write that name the same bytes of the object the later
//! one counts.
//!
//! **The packed bytes** of a batch are those of all its pieces, one behind the other in that order. Each node knows how
//! many it has, so a walk can be restricted to a range of them as it can to a range of the object.
//!
//! The life of a batch: written down as `[Batch]`, looked through once by [`Plan::new`] (`check`: overflow,
//! offsets below 0, limits), then walked by ranges of the object without being listed (`walk`); what a read
//! must not do, name bytes of memory twice, is in `overlap`; how the object side goes over a wire is in `flat`.
//! What of it lies in a part of a chunk, in the order in which bytes are sent, is in `parts` and `rows`; the loops that
//! copy are in `pack`. A plan has as many nodes as the batch has, whatever
//! the number of pieces.

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
pub use flat::{Flat, FlatNode, FlatWhat};
pub use overlap::MAX_LISTED;
pub use pack::{Steps, carry, pack, unpack};
pub use parts::{Cursor, Part, Parts};
pub use rows::{Misfit, Row, Rows};
pub use walk::{Run, Runs};

/// Nodes of a batch, elements of all its vectors together.
pub const MAX_NODES: usize = 1 << 16;
/// Vectors below each other.
pub const MAX_DEPTH: usize = 64;

/// One element of a batched request: a pattern and its repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Where it lies in the object.
    pub file: Place,
    /// Where it lies in the buffer.
    pub memory: Place,
    /// How often the pattern is repeated; 0 is nothing.
    pub count: u64,
    /// What is repeated.
    pub pattern: Pattern,
}

/// Offset and stride of a [`Batch`], in units of the request: bytes or elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Place {
    /// Where the first repetition begins.
    pub offset: i64,
    /// Whether that counts from the start, and not from the element before or the parent.
    pub absolute: bool,
    /// From one repetition to the next; may be 0 or negative.
    pub stride: i64,
}

/// What a [`Batch`] repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// So much in one piece, in units of the request.
    Data(u64),
    /// Batches, one after the other.
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

    /// An offset from the element before, or from the parent.
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

/// Which of the two sides of a batch an error is about.
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

/// Why a batch cannot be done. Elements are named by their number, all in the order in which they are written
/// down, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum BatchError {
    /// Too many elements.
    #[error("a batch has at most {MAX_NODES} elements, and this has more; make several of it")]
    TooLarge,
    /// As it came over a wire: numbers of children do not fit the elements there are.
    #[error("elements of the batch are missing")]
    Broken,
    /// Vectors nested too deep.
    #[error("vectors of a batch are nested at most {MAX_DEPTH} deep, and these are deeper")]
    TooDeep,
    /// Somewhere 64 bits do not suffice.
    #[error(
        "element {0} of the batch reaches beyond 2^63-1 bytes; look at its offsets, strides and count"
    )]
    Overflow(u32),
    /// An offset below 0.
    #[error("element {element} of the batch begins {by} bytes before the start of {side}")]
    Negative {
        /// Its number.
        element: u32,
        /// Which offset.
        side: Side,
        /// How far below 0.
        by: u64,
    },
    /// Bytes of memory that are named twice by a read.
    #[error("{} of the batch read into the same bytes of the buffer", pieces_of(*one, *other))]
    Overlap {
        /// A number.
        one: u32,
        /// May be the same number: its repetitions overlap.
        other: u32,
    },
    /// Whether they overlap would take too long to tell.
    #[error(
        "whether {} of the batch read into the same bytes of the buffer cannot be told in reasonable time; let strides \
         in memory be multiples of each other, or make several batches of it",
        pieces_of(*one, *other)
    )]
    Unclear {
        /// A number.
        one: u32,
        /// Another.
        other: u32,
    },
}

/// Two elements, or one whose repetitions it is about.
fn pieces_of(one: u32, other: u32) -> String {
    match one == other {
        true => format!("pieces of element {one}"),
        false => format!("elements {one} and {other}"),
    }
}

impl BatchError {
    /// The numbers of the elements that it names.
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

/// The path of the element of a number: its index in the top vector, then in the vector below, and so on; nothing
/// where there is no such element.
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
