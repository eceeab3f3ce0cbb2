//! The metadata of Zarr: data types, attributes, and the JSON of groups and arrays of version 3.

pub mod attributes;
pub mod nodes;
pub mod types;
pub mod words;

/// The attribute that masks elements. Xarray writes it into version 3 as the base64 of a number of 8 bytes, or of text, and
/// reads nothing else.
pub const FILL: &str = "_FillValue";
