//! The text of a selection, which follows the `@` of a path: `[0:10,3,::2,...]`.
//!
//! Items are Python's: `start:stop:step` with open ends and negative indices, a plain index, `...` for all axes in
//! between; axes that are not named are selected in full. As in NumPy, a slice ends where its axis ends, and an index
//! outside is an error. Two things differ, on purpose: a plain index retains its axis with length 1, so that the rank
//! stays the same; and steps are at least 1, since a selection is read and written in the order of the array.
//!
//! [`Selection`]'s `Display` is canonical: the same for texts that differ in spaces, leading zeros, defaults or
//! trailing `...`, and it reads back as the same selection. It serves as a key.

mod text;

use crate::{Axis, Hyperslab, MAX_BYTES, MAX_RANK, format_dims};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thiserror::Error;

/// One item of a selection; numbers below 0 count from the end of the axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Item {
    Index(i64),
    Slice {
        start: Option<i64>,
        stop: Option<i64>,
        step: u64,
    },
    Ellipsis,
}

/// A selection of an array whose dims are not known yet. It is serialized as its text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Selection {
    /// At most one is an ellipsis, and it is not the last unless it is the only one.
    items: SmallVec<[Item; 4]>,
}

/// The errors of a selection, by itself or for certain dims.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// No brackets around it.
    #[error("\"{text}\" is not a selection; write it in brackets, e.g. [0:10,3,::2]")]
    NoBrackets {
        /// The text as it was written.
        text: String,
    },
    /// An item that is neither an index nor a slice.
    #[error("\"{item}\" is not an index, a slice or \"...\"; write e.g. 3, 0:10, ::2 or -5:")]
    BadItem {
        /// The item as it was written.
        item: String,
    },
    /// A number that does not fit a signed 64-bit integer.
    #[error("{number} in \"{item}\" is too large: indices end at 2^63-1")]
    TooLarge {
        /// The number as it was written.
        number: String,
        /// The item it stands in.
        item: String,
    },
    /// A step of 0 or below.
    #[error(
        "the step of \"{item}\" is {step}; steps are at least 1: a selection is in the order of the array (in NumPy, reverse what was read: a[::-1])"
    )]
    BadStep {
        /// The step as it was written.
        step: String,
        /// The item it stands in.
        item: String,
    },
    /// More than one `...`.
    #[error("\"...\" stands more than once; leave one: the axes of the others are ambiguous")]
    TwoEllipses,
    /// More than [`MAX_RANK`] items.
    #[error("{items} items are too many: an object has at most {MAX_RANK} axes")]
    TooManyItems {
        /// The items without `...`.
        items: usize,
    },
    /// More items than the object has axes.
    #[error("{items} axes are selected and the object has {rank} (its dims: {dims}); leave out {}", items - rank)]
    WrongRank {
        /// The items without `...`.
        items: usize,
        /// The object's axes.
        rank: usize,
        /// The object's dims, as text.
        dims: String,
    },
    /// An index at or beyond the end of its axis.
    #[error("index {index} is outside axis {axis}, which has {len} elements{}", index_advice(*len))]
    IndexOutside {
        /// The index as it was written.
        index: i64,
        /// The axis, counted from 0.
        axis: usize,
        /// The elements of the axis.
        len: u64,
    },
    /// Dims that no object can have.
    #[error("an axis of {len} elements is too long: dims end at 2^63-1")]
    DimTooLarge {
        /// The elements of the axis.
        len: u64,
    },
}

fn index_advice(len: u64) -> String {
    match len {
        0 => "; select nothing of it with :".to_owned(),
        _ => format!("; indices go from -{len} to {}", len - 1),
    }
}

impl Selection {
    /// All of an object: `[...]`.
    pub fn all() -> Selection {
        Selection {
            items: SmallVec::from_slice(&[Item::Ellipsis]),
        }
    }

    /// The selected elements of an array of these dims, one axis for each of them.
    ///
    /// An index outside of the dims is an error; a slice is clipped to them, and selects nothing if `start` is then at
    /// or after `stop`.
    pub fn resolve(&self, dims: &[u64]) -> Result<Hyperslab, SelectionError> {
        let named = self.named();
        if named > dims.len() {
            let (rank, dims) = (dims.len(), format_dims(dims));
            return Err(SelectionError::WrongRank {
                items: named,
                rank,
                dims,
            });
        }
        let mut axes = SmallVec::with_capacity(dims.len());
        for item in &self.items {
            if *item == Item::Ellipsis {
                for _ in named..dims.len() {
                    axes.push(Axis::span(0, dims[axes.len()]));
                }
            } else {
                axes.push(resolve_item(*item, axes.len(), dims[axes.len()])?);
            }
        }
        while axes.len() < dims.len() {
            axes.push(Axis::span(0, dims[axes.len()]));
        }
        Ok(Hyperslab { axes })
    }

    /// The number of items that select one axis each.
    fn named(&self) -> usize {
        self.items
            .iter()
            .filter(|item| **item != Item::Ellipsis)
            .count()
    }
}

impl TryFrom<String> for Selection {
    type Error = SelectionError;

    fn try_from(text: String) -> Result<Selection, SelectionError> {
        text.parse()
    }
}

impl From<Selection> for String {
    fn from(value: Selection) -> String {
        value.to_string()
    }
}

fn resolve_item(item: Item, axis: usize, len: u64) -> Result<Axis, SelectionError> {
    if len > MAX_BYTES {
        return Err(SelectionError::DimTooLarge { len });
    }
    match item {
        Item::Ellipsis => Ok(Axis::span(0, len)),
        Item::Index(index) => match from_end(index, len) {
            Some(at) if at < len => Ok(Axis::span(at, 1)),
            _ => Err(SelectionError::IndexOutside { index, axis, len }),
        },
        Item::Slice { start, stop, step } => {
            let clipped = |bound: i64| from_end(bound, len).unwrap_or(0).min(len);
            let (from, to) = (start.map_or(0, clipped), stop.map_or(len, clipped));
            let selected = to.saturating_sub(from).div_ceil(step);
            Ok(Axis::every(from, step, selected))
        }
    }
}

/// An index from the end, converted to one from the start; `None` if it lies before the start.
fn from_end(index: i64, len: u64) -> Option<u64> {
    if index < 0 {
        len.checked_sub(index.unsigned_abs())
    } else {
        Some(index.unsigned_abs())
    }
}

#[cfg(test)]
mod tests;
