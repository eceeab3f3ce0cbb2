//! Files of other formats, for `slabfs import` and `export`: what they contain, readers and writers.
//!
//! [`tree`] is the data model that the formats share, of the crate `slabfs-datamodel`. [`source`] has the interface of readers and finds
//! the one for a file, [`sink`] that of writers. [`netcdf`] reads classic NetCDF files with the NetCDF library; [`h5`]
//! reads and writes HDF5 and NetCDF-4 files with the HDF5 library, which [`hdf5`] wraps; [`npy`], [`npz`] and [`zarr`] are the formats of these
//! names. [`boxes`] divides
//! data, and [`output`] gives a file its name when it is complete. [`collate`] joins the tiles of a parallel model.
//!
//! Values are never changed on the way: a variable's bytes are its elements in row-major order, in the byte order that
//! its dtype says. What a format has and the model has not is an error that names it.
//!
//! Nothing here knows slabfs objects, mounts or services.

pub mod boxes;
pub mod collate;
pub mod h5;
pub mod hdf5;
pub mod netcdf;
pub mod npy;
pub mod npz;
pub mod output;
pub mod sink;
pub mod source;
pub mod zarr;

use std::path::{Path, PathBuf};

use thiserror::Error;

pub use slabfs_datamodel::{tree, types};

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The library of the format, or the filesystem, reports an error.
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

impl FormatError {
    /// An error of the filesystem or a library, while doing `what`.
    pub fn file(path: &Path, what: impl Into<String>, why: &dyn std::fmt::Display) -> FormatError {
        FormatError::Library {
            path: path.to_owned(),
            what: what.into(),
            why: why.to_string(),
        }
    }

    /// `what` in the file cannot be represented, because it `why`.
    pub fn unsupported(
        path: &Path,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> FormatError {
        FormatError::Unsupported {
            path: path.to_owned(),
            what: what.into(),
            why: why.into(),
        }
    }
}
