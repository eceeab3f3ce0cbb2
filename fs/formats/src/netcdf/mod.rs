//! Classic NetCDF files, also with 64-bit offsets and CDF-5, by the NetCDF library.
//!
//! `raw` has the calls of the library and all `unsafe`; `read` is in terms of it; `classic` knows how long a file must be.
//! The library is not safe for threads: `raw` serialises all calls of the process. It reads NetCDF-4 files too, which
//! tests use; [`crate::h5`] reads and writes these otherwise.

mod classic;
mod raw;
mod read;

pub use read::Reader;
