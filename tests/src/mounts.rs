//! Mount points as the kernel reports them.

use std::path::Path;

use nix::mount::{MntFlags, umount2};

/// Whether something is mounted on `path`.
///
/// # Panics If the list of mounts cannot be read.
pub fn is_mounted(path: &Path) -> bool {
    let list = std::fs::read_to_string("/proc/self/mountinfo").expect("the list of mounts");
    list.lines().any(|line| {
        line.split(' ')
            .nth(4)
            .is_some_and(|at| Path::new(at) == path)
    })
}

/// Detaches everything that is mounted on `path`, in use or not.
pub fn detach(path: &Path) {
    // A limit in case the mount reappears; more than one mount on a path is rare.
    for _ in 0..8 {
        if !is_mounted(path) {
            return;
        }
        // By force, so that requests to a hanging or dead daemon get an error.
        if umount2(path, MntFlags::MNT_DETACH | MntFlags::MNT_FORCE).is_err() {
            let helper = std::process::Command::new("fusermount3")
                .arg("-uz")
                .arg("--")
                .arg(path)
                .output();
            if !helper.is_ok_and(|output| output.status.success()) {
                eprintln!("{} stays mounted", path.display());
                return;
            }
        }
    }
}
