//! The kernel settings, the same as those of the slabfs mount (`fs/src/mount`), so that the filesystems differ
//! only in how they process a request.

use std::time::Duration;

use fuser::{Config, FopenFlags, InitFlags, KernelConfig, MountOption};

/// Largest request, in bytes.
pub(super) const MAX_WRITE: u32 = 1 << 20;
/// The most background requests in flight.
const MAX_BACKGROUND: u16 = 128;
/// How long the kernel may cache names and attributes: as for a slabfs mount that is the only one.
pub(super) const TTL: Duration = Duration::from_secs(1);

/// Flags of every open file: with the kernel's pages, or without, and then several writers at once.
pub(super) fn open_flags(pages: bool) -> FopenFlags {
    match pages {
        true => FopenFlags::FOPEN_KEEP_CACHE,
        false => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
    }
}

/// Threads, descriptors and mount options of a session.
pub(super) fn session(name: &str) -> Config {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name.to_owned()),
        MountOption::DefaultPermissions,
    ];
    config.n_threads = Some(threads.clamp(2, 16));
    config.clone_fd = true;
    config
}

/// The capabilities negotiated with the kernel. One that lacks some works without, for all systems alike.
pub(super) fn init(config: &mut KernelConfig) {
    let _ = config.set_max_write(MAX_WRITE);
    let _ = config.set_max_background(MAX_BACKGROUND);
    for wanted in [
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_HANDLE_KILLPRIV,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    ] {
        let _ = config.add_capabilities(wanted);
    }
}
