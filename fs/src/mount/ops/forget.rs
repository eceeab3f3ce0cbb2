//! Forget: the kernel drops an inode. Inodes of the metadata service need no lookup count here.

use crate::mount::shared::Shared;

/// Subtracts `lookups` from the lookup count of `inode`.
pub(in crate::mount) fn forget(shared: &Shared, inode: u64, lookups: u64) {
    shared.nodes.forget(inode, lookups);
}
