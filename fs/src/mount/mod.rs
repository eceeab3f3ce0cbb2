//! The mount: FUSE requests in, answers out. The only place that knows errno.
//!
//! One file an operation under `ops`; `filesystem` only unpacks the arguments and says on which thread an
//! operation runs. What they share:
//!
//! - `shared` the state of a mount, how long the kernel may keep what it is told, changes of bytes that
//!   are visible through several inodes
//! - `call` what is behind an open `.slabfs/call`
//! - `handles` file handles; `open_file` what is behind one
//! - `pool` threads for what would block a session thread; `inval` threads that talk to the kernel unasked
//! - `interrupts` which requests wait for locks, and which are not wanted any more; `killed` lets programs go that are
//!   killed while they wait; `root` tells of the root while the metadata service is away
//! - `families`, `setid` what the mount must remember about inodes; `buffers` memory for handed-over writes
//! - `errno` errors to numbers; `attr` attributes to the kernel's; `guard` panics end a request, not a mount
//! - `mount`, `point`, `device`, `error` mounting and unmounting; `connection` what the kernel says of a mount, and
//!   `page_writes` of pages it writes back, when one ends
//!
//! # Who waits for whom
//!
//! Session threads answer what needs no network at once, and hand the rest to the pool. A pool thread waits
//! for the client library only, never for the kernel. Invalidation threads wait for the kernel, which may
//! wait for session threads and, through them, for the pool. Nothing waits for an invalidation thread: what
//! must come after an invalidation is given to it as a continuation. So there is no circle.
//!
//! # What the kernel caches
//!
//! Handles bypass the page cache (`FOPEN_DIRECT_IO`): a read asks the daemon, which knows what is newest to
//! the byte (`docs/decisions/pages.md`). Pages are kept only for mappings. Names and attributes are kept for a second while no other
//! session is attached, and not at all otherwise. Kernel writeback caching is off: it writes whole pages
//! back, and two mounts that write neighbouring bytes would undo each other.

mod attr;
mod buffers;
mod call;
mod calls;
mod connection;
mod device;
mod errno;
mod error;
mod families;
mod filesystem;
mod guard;
mod handles;
mod interrupts;
mod inval;
mod killed;
#[expect(clippy::module_inception, reason = "mounting is what this file does")]
mod mount;
mod open_file;
mod ops;
mod page_writes;
mod point;
mod pool;
mod root;
mod searches;
mod setid;
mod shared;

#[cfg(test)]
mod tests;
mod viewed;

pub use error::MountError;
pub use mount::{Mount, MountOptions, Running};
