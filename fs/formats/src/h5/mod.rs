//! HDF5 files, and NetCDF-4 files, which are HDF5 files with conventions.
//!
//! `read` is the reader: `scan` finds the objects of a file, `dims` their dimensions, `attributes` reads values. `write` is
//! the writer, with `scales` for dimensions and `put` for values. The library is wrapped by [`crate::hdf5`].
//!
//! A file that has `_NCProperties`, or dimension scales, is read as NetCDF-4 ("Appendix B. File Format Specifications" of
//! NetCDF's guide): scales are dimensions, `_Netcdf4Dimid` is their order, `_Netcdf4Coordinates` the dimensions of a
//! coordinate variable with several, and a dataset along an unlimited dimension is as long as that. All others are read as
//! they are: their axes have no names.
//!
//! References, and sequences of any length other than texts, are refused with their names; so are links to other files and
//! second names of an object.

mod attributes;
mod dims;
mod put;
mod read;
mod scales;
mod scan;
mod skeleton;
mod write;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub use read::Reader;
pub use skeleton::{Skeleton, skeleton};
pub use write::Writer;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// NetCDF-4.
    NetCdf,
    /// HDF5 without conventions.
    Plain,
}

/// The attribute by which the NetCDF library knows its files.
const PROPERTIES: &str = "_NCProperties";
/// The attribute that makes the NetCDF library keep to its classic model.
const STRICT: &str = "_nc3_strict";
/// The attribute with the number of a dimension.
const DIM_ID: &str = "_Netcdf4Dimid";
/// The attribute with the numbers of the dimensions of a coordinate variable.
const COORDINATES: &str = "_Netcdf4Coordinates";
/// The attribute that says that a dataset is a dimension scale, and its value.
const CLASS: &str = "CLASS";
const SCALE: &[u8] = b"DIMENSION_SCALE";
/// The attribute with the name of a scale.
const NAME: &str = "NAME";
/// The name of a scale that is a dimension only.
const NO_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable.";
/// A variable that has the name of a dimension that is not its own first one is stored with this before its name.
const NO_COORDINATE: &str = "_nc4_non_coord_";
/// The attribute with a variable's fill value.
const FILL: &str = "_FillValue";

/// Whether a file is one of HDF5: its signature is at the beginning, or at 512, 1024, … bytes.
pub fn is_hdf5(file: &File) -> bool {
    let mut head = [0; 8];
    let places = std::iter::once(0).chain((0..12).map(|power| 512_u64 << power));
    places
        .into_iter()
        .any(|at| file.read_exact_at(&mut head, at).is_ok() && &head == b"\x89HDF\r\n\x1a\n")
}

/// The path of an object in a group.
fn joined(group: &str, name: &str) -> String {
    match group.is_empty() {
        true => name.to_owned(),
        false => format!("{group}/{name}"),
    }
}

/// An error about something in a file.
fn bad(path: &Path, what: &str, why: impl Into<String>) -> crate::FormatError {
    crate::FormatError::unsupported(path, format!("/{what}"), why)
}
