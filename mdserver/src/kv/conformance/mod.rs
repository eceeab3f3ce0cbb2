//! What tests of this crate and fuzz targets use: the suite that each implementation of [`super::MetaKv`] runs, and
//! one in memory.

mod memory;
#[cfg(any(test, feature = "conformance"))]
mod suite;

pub use memory::MemoryKv;
#[cfg(any(test, feature = "conformance"))]
pub use suite::run;
#[cfg(test)]
pub(super) use suite::{apply, batches, mark_new};
