//! The options of a mount.

use super::pages::Pages;

/// How to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Threads that take requests from the kernel; `None`: one per processor, at least two.
    pub threads: Option<usize>,
    /// Threads for requests that wait for a server or a disk.
    pub workers: usize,
    /// Programs may only read.
    pub read_only: bool,
    /// Other users may use the mount; file modes decide, as on any filesystem.
    pub allow_other: bool,
    /// Lookups of names that are to be coupled, and do not exist yet, wait for them.
    pub await_names: bool,
    /// Which files are read through the kernel's page cache.
    pub pages: Pages,
    /// The source that `df` and `mount` show.
    pub fsname: String,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            threads: None,
            workers: 128,
            read_only: false,
            allow_other: nix::unistd::geteuid().is_root(),
            await_names: false,
            pages: Pages::Auto,
            fsname: "slabfs".to_string(),
        }
    }
}
