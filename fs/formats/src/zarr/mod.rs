//! Zarr directories: versions 2 and 3 are read, version 3 is written.
//!
//! `slabfs-datamodel` has data types, attributes and the metadata that is written; `metadata` reads that of a node, `store`
//! opens files below the directory and nowhere else, `read` and `write` are the reader and the writer. Chunks are decoded and
//! encoded by the crate `zarrs`: its codecs are bytes, blosc, crc32c, fletcher32, gzip, sharding, shuffle, transpose, zlib
//! and zstd; data of others is refused with the codec's name.
//!
//! Elements that are big-endian, or of types that only Python's Zarr has, pass through `zarrs` as opaque bytes.

mod metadata;
mod read;
mod store;
mod write;

pub use read::Reader;
pub use write::Writer;

/// The attribute of version 2 with the names of an array's dimensions.
const ARRAY_DIMENSIONS: &str = "_ARRAY_DIMENSIONS";
