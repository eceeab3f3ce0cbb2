//! Mount points: the list of mounts, the check of a directory to be mounted on, and unmounting.

use std::path::Path;

use anyhow::{Context, bail};
use nix::mount::{MntFlags, umount2};
use slabfs_fs::mount::Mounted;

/// The source of a slabfs mount in the list of mounts. It names the process that serves it, so that `slabfs
/// umount` can wait for that process without a request to the mount.
pub(crate) fn source_name() -> String {
    format!("slabfs:{}", std::process::id())
}

/// The process that serves this mount, if it is a slabfs mount.
pub(crate) fn process_of(mounted: &Mounted) -> Option<u32> {
    mounted.source.strip_prefix("slabfs:")?.parse().ok()
}

/// All mounts this process sees, oldest first.
pub(crate) fn mounts() -> anyhow::Result<Vec<Mounted>> {
    slabfs_fs::mount::mounts().context("cannot read the list of mounts, /proc/self/mountinfo")
}

/// Checks that a directory can be mounted on, before anything is created or opened for it. The mount checks
/// again when it mounts, and removes a dead mount.
pub(crate) fn check(path: &Path) -> anyhow::Result<()> {
    if !Path::new("/dev/fuse").exists() {
        bail!(
            "/dev/fuse is missing, and nothing can be mounted without it; load the module with `modprobe fuse`, or start the container with `--device /dev/fuse --cap-add SYS_ADMIN`"
        );
    }
    match std::fs::metadata(path) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "the mount point {0} does not exist; create it with `mkdir {0}`",
            path.display()
        ),
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot use the mount point {}", path.display()));
        }
        Ok(meta) if !meta.is_dir() => bail!(
            "the mount point {} is not a directory; give an empty directory",
            path.display()
        ),
        Ok(_) => {}
    }
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot use the mount point {}", path.display()))?;
    if let Some(mounted) = mounts()?.iter().rfind(|mounted| mounted.at == path) {
        bail!(
            "the mount point {0} is busy: a filesystem of type {1} is mounted there already; remove it with `slabfs umount {0}` or choose another directory",
            path.display(),
            mounted.kind
        );
    }
    // A mount over files hides them from everything on the machine.
    let hidden = std::fs::read_dir(&path)
        .with_context(|| format!("cannot look into the mount point {}", path.display()))?
        .next();
    if hidden.is_some() {
        bail!(
            "the mount point {} is not empty, and a mount would hide what is in it; give an empty directory",
            path.display()
        );
    }
    Ok(())
}

/// Refuses a data directory and a mount point that lie inside each other.
pub(crate) fn apart(data: &Path, mountpoint: &Path) -> anyhow::Result<()> {
    // A mount point that cannot be accessed is reported by the mount.
    let Ok(mountpoint) = mountpoint.canonicalize() else {
        return Ok(());
    };
    let Ok(data) = std::path::absolute(data) else {
        return Ok(());
    };
    // The data directory may be new; its closest existing ancestor determines where it will be.
    let existing = data.ancestors().find_map(|parent| {
        let full = parent.canonicalize().ok()?;
        Some(full.join(data.strip_prefix(parent).ok()?))
    });
    let data = existing.unwrap_or(data);
    if data.starts_with(&mountpoint) {
        return Err(crate::failure::usage(format!(
            "the data directory {} lies inside the mount point {}, which would hide it; choose a data directory outside",
            data.display(),
            mountpoint.display()
        )));
    }
    Ok(())
}

/// Unmounts `path`; EBUSY if it is in use.
pub(crate) fn unmount(path: &Path) -> Result<(), nix::Error> {
    run_unmount(path, MntFlags::empty(), "-u")
}

/// Aborts all requests to the process behind a FUSE mount, which would otherwise wait for ever: through the kernel's
/// `abort` file, which belongs to the mounting user, else with MNT_FORCE as root.
pub(crate) fn abort(mounted: &Mounted) -> anyhow::Result<()> {
    let (_, connection) = mounted.device.split_once(':').unwrap_or_default();
    let file = format!("/sys/fs/fuse/connections/{connection}/abort");
    if std::fs::write(file, "1").is_ok() {
        return Ok(());
    }
    match umount2(&mounted.at, MntFlags::MNT_FORCE) {
        // Still in use; the requests are aborted all the same.
        Ok(()) | Err(nix::Error::EBUSY) => Ok(()),
        Err(error) => {
            Err(error).with_context(|| format!("cannot abort requests to {}", mounted.at.display()))
        }
    }
}

/// Detaches the mount at `path` at once, also while it is in use.
pub(crate) fn detach(path: &Path) -> anyhow::Result<()> {
    run_unmount(path, MntFlags::MNT_DETACH, "-uz")
        .with_context(|| format!("cannot unmount {}", path.display()))
}

/// `umount2` if that is permitted, else the set-uid helper of fuse3.
fn run_unmount(path: &Path, flags: MntFlags, helper_flags: &str) -> Result<(), nix::Error> {
    match umount2(path, flags) {
        Err(nix::Error::EPERM) => {}
        result => return result,
    }
    let helper = std::process::Command::new("fusermount3")
        .args([helper_flags, "--"])
        .arg(path)
        .stdin(std::process::Stdio::null())
        .output();
    match helper {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).to_ascii_lowercase();
            Err(if said.contains("busy") {
                nix::Error::EBUSY
            } else {
                nix::Error::EPERM
            })
        }
        Err(_) => Err(nix::Error::EPERM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_path_that_is_not_an_empty_directory() {
        if !Path::new("/dev/fuse").exists() {
            return;
        }
        let dir = tempfile::tempdir().expect("dir");
        let missing = check(&dir.path().join("gone"))
            .expect_err("missing")
            .to_string();
        assert!(missing.contains("mkdir"), "{missing}");
        let file = dir.path().join("file");
        std::fs::write(&file, "").expect("file");
        let file = check(&file).expect_err("a file").to_string();
        assert!(file.contains("not a directory"), "{file}");
        let full = tempfile::tempdir().expect("a directory");
        std::fs::write(full.path().join("file"), b"x").expect("a file");
        let refused = check(full.path()).expect_err("not empty").to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        let busy = check(Path::new("/proc")).expect_err("busy").to_string();
        assert!(busy.contains("busy"), "{busy}");
        std::fs::remove_file(full.path().join("file")).expect("removed");
        check(full.path()).expect("an empty directory");
    }

    #[test]
    fn data_inside_the_mount_point_is_refused() {
        let dir = tempfile::tempdir().expect("dir");
        let full = dir.path().canonicalize().expect("path");
        assert!(apart(&dir.path().join("a/b"), &full).is_err());
        assert!(apart(dir.path(), &full).is_err());
        std::fs::create_dir(full.join("mnt")).expect("dir");
        assert!(apart(dir.path(), &full.join("mnt")).is_ok());
    }
}
