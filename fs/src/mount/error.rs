//! What can go wrong with mounting and unmounting; each message says what to do.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

/// Why there is no mount; each says what to do.
#[derive(Debug, Error)]
pub enum MountError {
    /// No such directory.
    #[error("mount point {} does not exist; make it with: mkdir -p {}", point.display(), point.display())]
    Missing {
        /// Where it should have been.
        point: PathBuf,
    },
    /// There is something else.
    #[error("mount point {} is not a directory; choose a directory", point.display())]
    NotADirectory {
        /// Where that is.
        point: PathBuf,
    },
    /// Something is mounted there.
    #[error(
        "mount point {} is in use: {source_name} ({kind}) is mounted there; unmount it with \
         `slabfs umount {}`, or choose another directory",
        point.display(), point.display()
    )]
    Busy {
        /// Where that is.
        point: PathBuf,
        /// The type of what is mounted there.
        kind: String,
        /// Its source.
        source_name: String,
    },
    /// The mount point cannot be looked at.
    #[error("mount point {} cannot be used: {reason}", point.display())]
    Unusable {
        /// Where that is.
        point: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// A dead mount is in the way and stays.
    #[error(
        "a mount whose daemon is gone is left at {} and cannot be detached: {reason}; as root: umount -l {}",
        point.display(), point.display()
    )]
    Stale {
        /// Where that is.
        point: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The kernel has no FUSE.
    #[error(
        "/dev/fuse is missing: load the kernel module with `modprobe fuse`, or give the container the device"
    )]
    NoDevice,
    /// The device is there for others.
    #[error("/dev/fuse cannot be opened: {reason}; run as a user who may, or as root")]
    DeviceDenied {
        /// What the system says.
        reason: io::Error,
    },
    /// Only root may mount, and nobody can do it for us.
    #[error(
        "only root may mount, and the helper fusermount3 is missing: install the package fuse3, or run as root"
    )]
    NoHelper,
    /// The system refused.
    #[error("cannot mount at {}: {reason}", point.display())]
    Refused {
        /// Where.
        point: PathBuf,
        /// What the system, or its helper, says.
        reason: io::Error,
    },
    /// The kernel and the daemon did not come to terms, or the session broke.
    #[error("the session at {} failed: {reason}", point.display())]
    Session {
        /// Where.
        point: PathBuf,
        /// What happened.
        reason: Arc<io::Error>,
    },
    /// The mount could not be taken away.
    #[error("cannot unmount {}: {reason}", point.display())]
    Unmount {
        /// Where.
        point: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
}
