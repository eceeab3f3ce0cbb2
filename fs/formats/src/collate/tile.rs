//! A tile: one of the files that are joined, without its data.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use crate::hdf5::Filter;

/// Attributes that say what numbers mean: tiles that differ in one of them do not fit together.
pub(super) const PACKING: [&str; 5] = [
    "units",
    "scale_factor",
    "add_offset",
    "_FillValue",
    "missing_value",
];
/// The attribute with the place of a tile: the first and last index of everything, then those of the tile, from any origin.
pub(super) const DECOMPOSITION: &str = "domain_decomposition";

/// A file with a part of the variables.
#[derive(Debug, Clone, PartialEq)]
pub struct Tile {
    /// The file.
    pub path: PathBuf,
    /// What it was when it was read.
    pub identity: Identity,
    /// The kind of file.
    pub format: Format,
    /// Its dimensions by their paths, such as `/xt_ocean`.
    pub dims: BTreeMap<String, TileDim>,
    /// Its variables, in the file's order, those of a group before those of the groups in it.
    pub variables: Vec<TileVariable>,
}

/// By what a file is known, so that one that was replaced is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Its device and inode.
    pub inode: (u64, u64),
    /// Its bytes.
    pub len: u64,
    /// When it was changed, in nanoseconds.
    pub changed: i128,
}

/// The kind of a tile's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// HDF5, and so NetCDF-4, with the number of bytes before the file's own first byte; `None` for sizes that are not read
    /// without the library.
    Hdf5(Option<u64>),
    /// NetCDF-3: classic, 64-bit offset or CDF-5.
    Classic,
}

/// A dimension of a tile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileDim {
    /// Its length in the file.
    pub len: u64,
    /// It can grow.
    pub unlimited: bool,
    /// Its `domain_decomposition`.
    pub decomposition: Option<[i64; 4]>,
}

/// A variable of a tile.
#[derive(Debug, Clone, PartialEq)]
pub struct TileVariable {
    /// What is mostly the same in all tiles.
    pub description: Arc<Description>,
    /// The lengths of its axes; along unlimited dimensions they can be less than the dimension's.
    pub shape: Vec<u64>,
    /// Where its elements are.
    pub storage: Storage,
    /// Its own `domain_decomposition`.
    pub decomposition: Option<[i64; 4]>,
}

/// What is mostly the same of a variable in all tiles, and then there once in memory ([`Tile::share`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    /// Its path, such as `/ice/thickness`.
    pub path: String,
    /// It is a dimension of NetCDF-4 that has no variable.
    pub bare_dim: bool,
    /// The type of its elements.
    pub element: Element,
    /// The paths of its dimensions; an empty text for an axis that has none.
    pub dims: Vec<String>,
    /// Whether each axis can grow.
    pub growing: Vec<bool>,
    /// The filters of its chunks.
    pub filters: Vec<Filter>,
    /// The element that was never written, as it would be stored, if the file says so.
    pub fill: Option<Vec<u8>>,
    /// Attributes that say what numbers mean (units, scales, fill values), with their types.
    pub packing: BTreeMap<String, Vec<u8>>,
    /// The first of `_FillValue` and `missing_value` that is one element, as it would be stored.
    pub missing: Option<Vec<u8>>,
}

impl Deref for TileVariable {
    type Target = Description;

    fn deref(&self) -> &Description {
        &self.description
    }
}

/// The type of the elements of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The type as bytes, without its byte order if it is a number.
    pub key: Vec<u8>,
    /// Bytes of an element.
    pub size: usize,
    /// It is a number, whose bytes can be reversed.
    pub number: bool,
    /// The most significant byte is first.
    pub big_endian: bool,
    /// It is in one piece: no pointers, no references.
    pub flat: bool,
}

/// Where the elements of a variable are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In chunks of this shape, listed from the object header at this address.
    Chunked {
        /// The shape of a chunk.
        shape: Vec<u64>,
        /// The address of the header.
        header: u64,
    },
    /// One after the other from this byte of the file on; `None` if nothing was written.
    Plain {
        /// The first byte.
        offset: Option<u64>,
        /// Bytes from one index of the first axis to the next, if other variables are between them.
        stride: Option<u64>,
    },
    /// Only the library knows.
    Library,
}

impl Tile {
    /// Uses the descriptions of variables of `other` where they are the same.
    pub fn share(&mut self, other: &Tile) {
        for (own, other) in self.variables.iter_mut().zip(&other.variables) {
            if own.description == other.description {
                own.description = Arc::clone(&other.description);
            }
        }
    }

    /// A variable by its path.
    pub fn variable(&self, path: &str) -> Option<&TileVariable> {
        self.variables.iter().find(|variable| variable.path == path)
    }
}

/// A path without the slash of the root, for messages.
pub fn shown(path: &str) -> &str {
    path.strip_prefix('/').unwrap_or(path)
}
