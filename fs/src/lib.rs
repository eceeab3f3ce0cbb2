//! The compute-node side of slabfs: the client library, the meaning of paths, and the FUSE mount.
//!
//! - [`client`]: sessions, open objects, transfers, write-behind, cache, commit. The only module that connects
//!   the metadata service and the data servers.
//! - [`call`]: the commands of `.slabfs/call`, one command per file.
//! - [`view`]: the meaning of a name, an attribute or a hidden file on the mount. No FUSE types, no I/O.
//! - [`session`]: the library for programs: a filesystem without a mount.
//! - [`mount`]: FUSE, one operation per file; the only module that knows errno.
//!
//! Dependencies go one way: `mount` and `session` use `call`, `view` and `client`; `call` uses `view` and `client`;
//! `view` uses the plain types of the metadata service; `client` uses none of the others.

pub mod call;
pub mod client;
pub mod clients;
pub mod mount;
pub mod session;
pub mod view;

/// The example programs of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../docs/library.md")]
struct Book;
