//! The errors of mounting and unmounting; each message says what to do.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Why mounting or unmounting failed.
#[derive(Debug, Error)]
pub enum MountError {
    /// The mount point does not exist.
    #[error("mount point {} does not exist; make it with: mkdir -p {}", point.display(), point.display())]
    Missing {
        /// Its path.
        point: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("mount point {} is not a directory; choose a directory", point.display())]
    NotADirectory {
        /// Its path.
        point: PathBuf,
    },
    /// Something is mounted at the mount point.
    #[error(
        "mount point {} is in use: {source_name} ({kind}) is mounted there; unmount it with \
         `slabfs umount {}`, or choose another directory",
        point.display(), point.display()
    )]
    Busy {
        /// Its path.
        point: PathBuf,
        /// The type of the mounted filesystem.
        kind: String,
        /// Its source.
        source_name: String,
    },
    /// The mount point cannot be examined.
    #[error("mount point {} cannot be used: {reason}", point.display())]
    Unusable {
        /// Its path.
        point: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// A mount whose daemon is gone is left there, and cannot be detached.
    #[error(
        "a mount whose daemon is gone is left at {} and cannot be detached: {reason}; as root: umount -l {}",
        point.display(), point.display()
    )]
    Stale {
        /// Its path.
        point: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
    /// The kernel has no FUSE.
    #[error(
        "/dev/fuse is missing: load the kernel module with `modprobe fuse`, or give the container the device"
    )]
    NoDevice,
    /// This user may not open the device.
    #[error("/dev/fuse cannot be opened: {reason}; run as a user who may, or as root")]
    DeviceDenied {
        /// The system's error.
        reason: io::Error,
    },
    /// Only root may mount, and the helper that mounts for other users is missing.
    #[error(
        "only root may mount, and the helper fusermount3 is missing: install the package fuse3, or run as root"
    )]
    NoHelper,
    /// The system refused to mount.
    #[error("cannot mount at {}: {reason}", point.display())]
    Refused {
        /// The mount point.
        point: PathBuf,
        /// The error of the system or of its helper.
        reason: io::Error,
    },
    /// The kernel and the daemon could not agree on the protocol, or the session broke.
    #[error("the session at {} failed: {reason}", point.display())]
    Session {
        /// The mount point.
        point: PathBuf,
        /// What happened.
        reason: Arc<io::Error>,
    },
    /// The mount could not be unmounted.
    #[error("cannot unmount {}: {reason}", point.display())]
    Unmount {
        /// The mount point.
        point: PathBuf,
        /// The system's error.
        reason: io::Error,
    },
}
