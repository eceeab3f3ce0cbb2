//! The C library: the interface of `slabfs_fs::session` for programs in C, C++ and Fortran.
//!
//! cbindgen generates `include/slabfs.h` from these sources, including the comments; `symbols` lists the exported
//! symbols of the shared library. Tests check that both are up to date. `tools/library` installs libraries, headers,
//! man pages and `slabfs.pc` into a directory.
//!
//! - `error`: codes, the error message of a thread, and the only place that catches panics
//! - `handles`: numbers for sessions, objects and lists; `process`: why handles are invalid after `fork`
//! - `argument`: validation of pointers and lengths
//! - `connect`, `names`, `spec`, `object`, `bytes`, `batch`, `transfer`, `tags`, `find`: the calls; `pending`: the
//!   state of a transfer
//! - `gfs`: the calls of `gfs_compat.h`
//!
//! Invariants: every call returns 0 or a negative code and sets the calling thread's message; NULL, an unknown handle,
//! a rank or a length beyond its limit are errors, not crashes; every handle may be used from any thread, even while
//! another thread closes it. A pointer that is not NULL must point to the memory that the call documents; that cannot
//! be checked.
//!
//! Deliberately elsewhere: the implementation of the calls (`slabfs_fs::session`).

#![allow(
    non_camel_case_types,
    reason = "these are the names that C programs see"
)]

mod argument;
mod batch;
mod bytes;
mod connect;
mod error;
mod find;
mod gfs;
mod handles;
mod names;
mod object;
mod pending;
mod process;
mod spec;
mod tags;
mod transfer;

#[cfg(test)]
mod tests;

pub use batch::*;
pub use bytes::*;
pub use connect::*;
pub use error::*;
pub use find::*;
pub use gfs::*;
pub use handles::{
    slabfs_entries, slabfs_object, slabfs_session, slabfs_spec, slabfs_tags, slabfs_transfer,
};
pub use names::*;
pub use object::*;
pub use spec::*;
pub use tags::*;
pub use transfer::*;
