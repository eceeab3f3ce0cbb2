//! Mknod, mkdir and symlink: create an inode under a name that must be free.
//!
//! Of FIFOs, sockets and device nodes only the node is stored, and of symbolic links the target, unchanged; the kernel
//! does the rest.

use fuser::Errno;
use slabfs_mdserver::api::{Create, Kind};

use super::place;
use crate::mount::attr::kind_of_mode;
use crate::mount::errno::{Outcome, refused};
use crate::mount::shared::{Caller, Shared, Shown};

/// The inode to create.
pub(in crate::mount) enum Made {
    /// An object, FIFO, socket or device node, as the mode says.
    Node { mode: u32, rdev: u32 },
    /// A directory.
    Directory { mode: u32 },
    /// A symbolic link.
    Symlink { target: Vec<u8> },
}

/// Creates the inode.
pub(in crate::mount) fn make(
    shared: &Shared,
    caller: Caller,
    parent: u64,
    name: &[u8],
    made: Made,
) -> Outcome<Shown> {
    let (kind, mode, rdev, target) = match made {
        Made::Node { mode, rdev } => match kind_of_mode(mode) {
            Some(kind) => (kind, mode, rdev, None),
            None => return refused(Errno::EINVAL, "mknod makes no inode of this type"),
        },
        Made::Directory { mode } => (Kind::Directory, mode, 0, None),
        Made::Symlink { target } => (Kind::Symlink, 0o777, 0, Some(target)),
    };
    let (parent, stored) = place::entry(shared, parent, name, Errno::EINVAL)?;
    let created = shared.client.make(Create {
        parent,
        name: stored.to_vec(),
        kind,
        mode: mode & 0o7777,
        uid: caller.uid,
        gid: caller.gid,
        rdev,
        target,
        exclusive: true,
        open: false,
    })?;
    Ok(shared.shown(&created.entry).named(&stored))
}
