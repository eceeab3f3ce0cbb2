//! Negotiates the FUSE capabilities with the kernel when a session starts.
//!
//! Requested: requests of up to 1 MiB; many background requests at once; lookups and readdirs of one directory in
//! parallel; readdirplus where the kernel thinks it worth it; asynchronous direct I/O; shared mappings of files that
//! bypass the page cache; cached symlink targets (they never change); locks, since the
//! locks of all mounts exclude each other; in mode `commit`, that pages are dropped when the kernel sees that a file has
//! changed. In mode `strict` the mount drops them, and the kernel would request the attributes before each read.
//!
//! Deliberately not requested:
//! - the writeback cache: it writes full pages back, over a neighbour's bytes;
//! - `O_TRUNC` within open: as a separate truncate it takes the same path as every other truncate;
//! - `HANDLE_KILLPRIV_V2`: fuser 0.18 drops the flag of truncate that requests clearing set-user-id. Without this
//!   capability the kernel clears it itself for chown and truncate, by the caller's capabilities; writes carry their
//!   flag either way, and `write` obeys it;
//! - `ABORT_ERROR`: fuser accepts only `ENODEV` as the end of a session.

use fuser::{InitFlags, KernelConfig};

/// The largest write, and the largest read: larger ones gain little and make buffers larger than caches.
const MAX_WRITE: u32 = 1 << 20;
/// Requests that the kernel may have in flight on its own behalf (read-ahead, asynchronous I/O).
const MAX_BACKGROUND: u16 = 128;
/// Read-ahead of mappings. The kernel offers less here, and accepts more through sysfs (`mount.rs`).
const MAX_READAHEAD: u32 = 4 << 20;

const WANTED: [InitFlags; 8] = [
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_POSIX_LOCKS,
    InitFlags::FUSE_FLOCK_LOCKS,
];

/// Requests the capabilities; those that an older kernel lacks are left out.
pub(in crate::mount) fn negotiate(config: &mut KernelConfig, strict: bool) {
    let attributes = (!strict).then_some(InitFlags::FUSE_AUTO_INVAL_DATA);
    for wanted in WANTED.into_iter().chain(attributes) {
        if config.add_capabilities(wanted).is_err() {
            tracing::debug!(?wanted, "the kernel does not have this");
        }
    }
    if let Err(nearest) = config.set_max_write(MAX_WRITE) {
        tracing::warn!(nearest, "requests cannot be as large as wanted");
    }
    if let Err(nearest) = config.set_max_background(MAX_BACKGROUND) {
        tracing::warn!(nearest, "background requests cannot be as many as wanted");
    }
    if let Err(offered) = config.set_max_readahead(MAX_READAHEAD)
        && config.set_max_readahead(offered).is_err()
    {
        tracing::debug!("the kernel's read-ahead is left unchanged");
    }
}
