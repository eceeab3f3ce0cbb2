//! Forget: the kernel no longer holds an inode. Inodes of the metadata service need no counting here.

use crate::mount::shared::Shared;

/// Takes back `lookups` of `inode`.
pub(in crate::mount) fn forget(shared: &Shared, inode: u64, lookups: u64) {
    shared.nodes.forget(inode, lookups);
}
