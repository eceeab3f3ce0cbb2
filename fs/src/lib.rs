//! The compute-node side of slabfs: the client library, what a path means, and the mount.
//!
//! - [`client`]: sessions, open objects, transfers, write-behind, cache, commit. The only place that joins
//!   the metadata service and the data servers.
//! - [`call`]: the commands of `.slabfs/call`, one op a file.
//! - [`view`]: what a name, an attribute or a hidden file on the mount means. No FUSE types, no I/O.
//! - [`session`]: the library for programs: a filesystem without a mount.
//! - [`mount`]: FUSE, one file an operation; the only place that knows errno.
//!
//! Dependencies go one way: `mount` and `session` use `call`, `view` and `client`; `call` uses
//! `view` and `client`; `view` uses the plain types of the metadata
//! service; `client` knows neither.

pub mod call;
pub mod client;
pub mod mount;
pub mod session;
pub mod view;

/// The programs of the book.
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
struct Book;
