//! The HDF5 library, by thin safe wrappers: files, groups, attributes, datatypes, datasets and their stored chunks.
//!
//! | file | what |
//! |---|---|
//! | `handle` | identifiers that are released when dropped, the lock of the library, its errors |
//! | `file`, `group`, `attribute` | the tree of objects, and what stands in it |
//! | `space`, `datatype`, `description` | shapes and types, and types in words |
//! | `scale`, `texts` | dimension scales, and texts of any length |
//! | `creation`, `dataset` | how a dataset is stored, its elements, and chunks as they are stored |
//! | `index` | the places of all stored chunks of a dataset, read without the library |
//!
//! `unsafe` is in these files only. Every call holds the process-wide lock that the NetCDF library uses too, since the
//! library is not safe for threads everywhere. Its errors are returned and never printed. While a file is open for
//! writing the process must not fork and go on with it in both halves.
//!
//! The library can crash or loop on files that were damaged on purpose. Sizes from files are limited here before memory is
//! allocated for them; files of strangers are best opened in a process of their own.

mod attribute;
mod creation;
mod dataset;
mod datatype;
mod description;
mod file;
mod group;
mod handle;
mod index;
mod scale;
mod space;
mod texts;

pub use attribute::{Attribute, Attributed};
pub use creation::{Creation, Filter, Layout, Time};
pub use dataset::Dataset;
pub use datatype::{Class, Datatype};
pub use file::{Create, File};
pub use group::{Group, Link, Target};
pub use index::{Chunk, stored_chunks};
pub use scale::{DIMENSION_LIST, REFERENCE_LIST};
pub use space::Space;
pub use texts::put_texts_of;
