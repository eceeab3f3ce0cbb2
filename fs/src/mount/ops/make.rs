//! Creation of inodes, shared by `mknod`, `mkdir` and `symlink`.

use fuser::Errno;
use slabfs_mdserver::api::{Create, Kind};

use super::place;
use crate::mount::errno::Outcome;
use crate::mount::shared::{Caller, Shared, Shown};

/// The inode to create.
pub(super) struct Made {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) rdev: u32,
    pub(super) target: Option<Vec<u8>>,
}

/// Creates the inode; the name must be free.
pub(super) fn make(
    shared: &Shared,
    caller: Caller,
    parent: u64,
    name: &[u8],
    made: Made,
) -> Outcome<Shown> {
    let (parent, stored) = place::entry(shared, parent, name, Errno::EINVAL)?;
    let created = shared.client.md().call(Create {
        parent,
        name: stored.to_vec(),
        kind: made.kind,
        mode: made.mode & 0o7777,
        uid: caller.uid,
        gid: caller.gid,
        rdev: made.rdev,
        target: made.target,
        exclusive: true,
        open: false,
    })?;
    Ok(shared.shown(&created.entry).named(&stored))
}
