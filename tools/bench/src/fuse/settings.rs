//! The kernel settings, the same as those of the slabfs mount (`fs/src/mount`), so that the filesystems differ
//! only in how they process a request.

use std::time::Duration;

use fuser::{Config, FopenFlags, InitFlags, KernelConfig, MountOption, SessionACL};

/// Largest request, in bytes.
pub(super) const MAX_WRITE: u32 = 1 << 20;
/// The most background requests in flight.
const MAX_BACKGROUND: u16 = 128;
/// How long the kernel may cache names and attributes: as for a slabfs mount that is the only one.
pub(super) const TTL: Duration = Duration::from_secs(1);

/// Flags of every open file: no page cache, several writers at once.
pub(super) fn open_flags() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

/// Threads, descriptors and mount options of a session.
pub(super) fn session(name: &str) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name.to_owned()),
        MountOption::Subtype("slabfs-bench".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoSuid,
        MountOption::NoDev,
    ];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(threads());
    config.clone_fd = true;
    config
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 16))
}

/// The capabilities negotiated with the kernel.
pub(super) fn init(config: &mut KernelConfig) {
    // Both are below fuser's limits; an error would contain the closest valid value.
    if let Err(closest) = config.set_max_write(MAX_WRITE) {
        let _ = config.set_max_write(closest);
    }
    if let Err(closest) = config.set_max_background(MAX_BACKGROUND) {
        let _ = config.set_max_background(closest);
    }
    let wanted = [
        InitFlags::FUSE_ASYNC_DIO,
        InitFlags::FUSE_PARALLEL_DIROPS,
        InitFlags::FUSE_HANDLE_KILLPRIV,
        InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    ];
    for flag in wanted {
        // A kernel without a capability works without it, for all systems alike.
        let _ = config.add_capabilities(flag);
    }
}
