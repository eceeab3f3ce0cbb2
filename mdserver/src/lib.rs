//! (being written)

pub mod kv;
