//! NetCDF files of all kinds: classic, 64-bit offset, CDF-5 and NetCDF-4, by the NetCDF library.
//!
//! `raw` has the calls of the library and all `unsafe`; `read` and `write` are in terms of it. The library is not safe
//! for threads: `raw` serialises all calls of the process.

mod classic;
mod raw;
mod read;
mod write;

pub use read::Reader;
pub use write::Writer;
