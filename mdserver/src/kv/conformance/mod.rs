//! What tests of this crate and fuzz targets use: the suite that each implementation of [`super::MetaKv`] runs, and
//! one in memory.

mod memory;
#[cfg(test)]
mod suite;

pub use memory::MemoryKv;
#[cfg(test)]
pub(super) use suite::{apply, batches, mark_new, run};
