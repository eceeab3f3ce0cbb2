//! The FUSE mount: serves the kernel's requests. The only module that knows errno.
//!
//! One file per operation under `ops`; `filesystem` only unpacks the arguments and chooses the thread on which an
//! operation runs. What the operations share:
//!
//! - `shared` the state of a mount, cache timeouts of the kernel, changes of bytes that are visible through several
//!   inodes
//! - `call` an open `.slabfs/call`, `exchange` its request and reply; `calls` quotas of users on these; `searches` listings of searches in progress
//! - `handles` file handles; `open_file` an open file; `viewed` the view of an open file
//! - `pool` threads for operations that would block a session thread; `inval` threads that notify the kernel
//! - `interrupts` lock requests that wait, and those that signals have interrupted; `killed` ends requests of programs
//!   that are killed while they wait; `root` the root's attributes while the metadata service is down
//! - `families`, `setid` what the mount must remember about inodes; `buffers` memory for copies of writes
//! - `errno` errors to numbers; `attr` attributes to the kernel's; `guard` panics end a request, not a mount
//! - `mount`, `mounts`, `point`, `device`, `error` mounting and unmounting; `connection` and `page_writes` the kernel's pending
//!   requests and pages, for an unmount
//!
//! # Which thread waits for which
//!
//! Session threads answer at once what needs no network, and hand the rest to a pool. A pool thread waits for the
//! client library only; the threads of `waits`, which are not bounded by `workers`, may also wait for the kernel to
//! drop pages. Invalidation threads wait for the kernel, which may wait for session threads and, through them, for a
//! pool. Nothing waits for an invalidation thread: the step after an invalidation is given to it as a continuation. So
//! there is no cycle.
//!
//! # What the kernel caches
//!
//! Handles bypass the page cache (`FOPEN_DIRECT_IO`): a read asks the daemon, which has the latest version of each
//! byte (`docs/decisions/23-pages.md`). Pages are cached only for mappings. Names and attributes are cached for a
//! second while no other session is attached, and not at all otherwise. Kernel writeback caching is off: it writes full pages
//! back, and two mounts that write neighbouring bytes would undo each other.

mod attr;
mod buffers;
mod call;
mod calls;
mod chunks_file;
mod composed;
mod connection;
mod device;
mod errno;
mod error;
mod exchange;
mod families;
mod filesystem;
mod guard;
mod handles;
mod hdf5_files;
mod interrupts;
mod inval;
mod killed;
#[expect(clippy::module_inception, reason = "mounting is what this file does")]
mod mount;
mod mounts;
mod open_file;
mod ops;
mod options;
mod page_writes;
mod pages;
mod point;
mod pool;
mod refusals;
mod retained;
mod root;
mod searches;
mod setid;
mod shared;

#[cfg(test)]
mod tests;
mod viewed;

pub use error::MountError;
pub use mount::{Mount, Running};
pub use mounts::{Copy, Mounted, copy_elsewhere, mounts};
pub use options::MountOptions;
pub use pages::Pages;
