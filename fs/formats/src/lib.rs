//! Files of other formats, for `slabfs import` and `export`: what they contain, readers and writers.
//!
//! [`tree`] is the data model that the formats share: groups with attributes, dimensions and variables
//! (docs/data-model.md has its mapping to slabfs and to each format). [`netcdf`] reads and writes NetCDF files of all
//! kinds with the NetCDF library, [`cdl`] prints a tree as `ncdump -h` does. [`hdf5`] wraps the HDF5 library, for what needs
//! stored chunks, and [`collate`] joins the tiles of a parallel model.
//!
//! Bytes are never converted on the way: a variable's bytes are its elements in row-major order, little-endian.
//! What a format has and the model has not is an error that names it.
//!
//! Nothing here knows slabfs objects, mounts or services.

pub mod cdl;
pub mod collate;
pub mod hdf5;
pub mod netcdf;
pub mod tree;

use std::path::PathBuf;

use thiserror::Error;

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The library of the format reports an error.
    #[error("{}: {what}: {why}", path.display())]
    Library {
        /// The file.
        path: PathBuf,
        /// The operation and the name of what it was for.
        what: String,
        /// The library's text.
        why: String,
    },
    /// The file has something that cannot be represented.
    #[error("{}: {what} {why}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The path of the variable, attribute or group in the file.
        what: String,
        /// What is not supported, and what to do.
        why: String,
    },
}

/// The result of reading or writing a file.
pub type Result<T> = std::result::Result<T, FormatError>;
