//! Checks of the mount point: that it exists and is free, and what is mounted there.
//!
//! A mount whose daemon has died leaves its mount point behind: every access returns "Transport endpoint is not
//! connected". Such a mount is useless and is detached, with a warning, before a new mount.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::device;
use super::error::MountError;

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

/// An entry of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mounted {
    /// `major:minor` of its device.
    pub(super) device: String,
    /// Type of the filesystem.
    pub(super) kind: String,
    /// The source, as the filesystem reports it.
    pub(super) source: String,
}

/// The filesystem mounted at `point`; the topmost, if there are several.
pub(super) fn mounted_at(point: &Path) -> Option<Mounted> {
    match std::fs::read("/proc/self/mountinfo") {
        Ok(table) => find(&table, point),
        Err(error) => {
            tracing::debug!(%error, "the table of mounts cannot be read");
            None
        }
    }
}

fn find(table: &[u8], point: &Path) -> Option<Mounted> {
    table
        .split(|&byte| byte == b'\n')
        .filter_map(parse)
        .rfind(|(at, _)| at == point)
        .map(|(_, mounted)| mounted)
}

/// Reads `36 35 98:0 /root /mount/point rw,noatime shared:1 - ext3 /dev/root rw`.
fn parse(line: &[u8]) -> Option<(PathBuf, Mounted)> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b' ').collect();
    let dash = fields.iter().skip(6).position(|field| *field == b"-")? + 6;
    let text = |at: usize| {
        fields
            .get(at)
            .map(|field| String::from_utf8_lossy(field).into_owned())
    };
    let mounted = Mounted {
        device: text(2)?,
        kind: text(dash + 1)?,
        source: text(dash + 2)?,
    };
    let point = OsString::from_vec(unescape(fields.get(4)?));
    Some((PathBuf::from(point), mounted))
}

/// Decodes `\040` and the like, which stand for blanks in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = (byte == b'\\')
            .then(|| tail.get(..3))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code);
                rest = &tail[3..];
            }
            None => {
                plain.push(byte);
                rest = tail;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
        30 22 0:25 / /mnt/my\\040data rw - tmpfs tmpfs rw\n\
        31 30 0:26 / /mnt/my\\040data rw,nosuid shared:7 master:2 - fuse.slabfs slabfs rw,user_id=0\n";

    #[test]
    fn the_topmost_mount_is_found() {
        let there = find(TABLE, Path::new("/mnt/my data")).unwrap();
        assert_eq!(there.device, "0:26");
        assert_eq!(there.kind, "fuse.slabfs");
        assert_eq!(there.source, "slabfs");
        assert_eq!(find(TABLE, Path::new("/")).unwrap().kind, "ext4");
        assert_eq!(find(TABLE, Path::new("/mnt")), None);
    }

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
