//! Packing bytes: shuffle, lz4, deflate, zstd.
