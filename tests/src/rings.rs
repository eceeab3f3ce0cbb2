//! Requests that come through `io_uring`: whether the mounts of these tests take them from there.
//!
//! The kernel offers that if its parameter `fuse.enable_uring` is on, which `tools/setup --tests` sees to where it
//! can. Tests mount without it, as most machines do, unless `SLABFS_TEST_IO_URING` is 1; those of `io_uring.rs` choose
//! themselves.

use std::fs;

/// Where the kernel says whether it offers them.
const OFFERED: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the mounts of all tests are to take requests through `io_uring`.
pub fn wanted() -> bool {
    std::env::var("SLABFS_TEST_IO_URING").as_deref() == Ok("1")
}

/// Whether the kernel offers it.
pub fn offered() -> bool {
    fs::read_to_string(OFFERED).is_ok_and(|text| text.trim() == "Y")
}

/// Whether a mount's process takes requests from there.
pub fn used_by(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    threads.flatten().any(|thread| {
        fs::read_to_string(thread.path().join("comm"))
            .is_ok_and(|name| name.starts_with("fuser-ring-"))
    })
}
