//! Checks of the mount point: that it exists and is free, and what is mounted there.
//!
//! A mount whose daemon has died leaves its mount point behind: every access returns "Transport endpoint is not
//! connected". Such a mount is useless and is detached, with a warning, before a new mount.

use std::io;
use std::path::{Path, PathBuf};

use super::device;
use super::error::MountError;
use super::mounts::{Mounted, mounts};

/// A mount point may have been mounted over several times; this is the most that is cleaned up.
const STALE_AT_MOST: usize = 16;

/// Checks that `path` is a directory to mount on, and returns its canonical path.
pub(super) fn prepare(path: &Path) -> Result<PathBuf, MountError> {
    let shown = || path.to_path_buf();
    let mut stale = 0;
    loop {
        match std::fs::metadata(path) {
            Ok(data) if data.is_dir() => break,
            Ok(_) => return Err(MountError::NotADirectory { point: shown() }),
            Err(error) if is_stale(&error) && stale < STALE_AT_MOST => {
                stale += 1;
                tracing::warn!(point = %path.display(),
                    "a mount is left here whose daemon is gone; detaching it");
                device::detach(path, device::How::Lazily).map_err(|reason| MountError::Stale {
                    point: shown(),
                    reason,
                })?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(MountError::Missing { point: shown() });
            }
            Err(reason) => {
                return Err(MountError::Unusable {
                    point: shown(),
                    reason,
                });
            }
        }
    }
    let point = path.canonicalize().map_err(|reason| MountError::Unusable {
        point: shown(),
        reason,
    })?;
    match mounted_at(&point) {
        None => Ok(point),
        Some(there) => Err(MountError::Busy {
            point,
            kind: there.kind,
            source_name: there.source,
        }),
    }
}

fn is_stale(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENOTCONN)
}

/// The filesystem mounted at `point`; the topmost, if there are several.
pub(super) fn mounted_at(point: &Path) -> Option<Mounted> {
    match mounts() {
        Ok(all) => all.into_iter().rfind(|mounted| mounted.at == point),
        Err(error) => {
            tracing::debug!(%error, "the table of mounts cannot be read");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_this_machine_has_a_root() {
        assert!(mounted_at(Path::new("/")).is_some());
    }

    #[test]
    fn unusable_mount_points_have_different_errors() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        assert!(matches!(prepare(&missing), Err(MountError::Missing { .. })));
        let file = directory.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert!(matches!(
            prepare(&file),
            Err(MountError::NotADirectory { .. })
        ));
        assert!(matches!(
            prepare(Path::new("/")),
            Err(MountError::Busy { .. })
        ));
        let fine = prepare(directory.path()).unwrap();
        assert_eq!(fine, directory.path().canonicalize().unwrap());
    }
}
