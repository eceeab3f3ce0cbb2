//! The C library: `slabfs_fs::session` for programs in C, C++ and Fortran.
//!
//! `include/slabfs.h` is made of these sources by cbindgen, with their comments; `symbols` lists what the shared
//! library exports. Tests compare both. `tools/library` puts libraries, header, man pages and `slabfs.pc` into a
//! directory.
//!
//! - `error` codes, the message of a thread, and the one place where a panic stops
//! - `handles` numbers that stand for sessions, objects and lists; `process` why a child has none of its parent's
//! - `argument` pointers and lengths from outside, checked
//! - `connect`, `names`, `spec`, `object`, `bytes`, `batch`, `transfer`, `tags`, `find` the calls; `pending` what a
//!   transfer is here
//! - `gfs` the calls of `gfs_compat.h`
//!
//! What holds: every call returns 0 or a negative code and sets the calling thread's message; NULL, an unknown
//! handle, a rank or a length beyond its limit are errors, not crashes; every handle may be used from any thread,
//! also while another thread closes it. What a pointer that is not NULL points to has to be what the call says: that
//! nobody can check.
//!
//! Deliberately elsewhere: what the calls do (`slabfs_fs::session`).

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
