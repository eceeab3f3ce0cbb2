//! The data model that slabfs shares with NetCDF, HDF5, Zarr and NumPy (docs/data-model.md), without files and libraries.
//!
//! [`tree`] is the model: groups with attributes, dimensions and variables. [`mapping`] has what such a tree is on a mount,
//! and back. [`npy`] and [`zarr`] have the parts of these formats that are text: headers and metadata. [`types`] are types of
//! HDF5 in words, and [`cdl`] prints a tree as `ncdump -h` does.
//!
//! `slabfs-formats` reads and writes files with it; the views of a mount are made of it.

pub mod cdl;
pub mod error;
pub mod mapping;
pub mod npy;
pub mod tree;
pub mod types;
pub mod zarr;

pub use error::{ModelError, Result};
