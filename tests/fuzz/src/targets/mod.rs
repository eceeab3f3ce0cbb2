//! The fuzz targets: each runs one input of bytes from outside, and panics if something is wrong.

pub mod chunks;
pub mod journal;
pub mod metadata;
pub mod query;
pub mod tags;
pub mod wire;
