//! Statfs: the sum of the data servers' disks.

use fuser::ReplyStatfs;
use slabfs_mdserver::api::{MAX_NAME, op};

use crate::mount::errno::report;
use crate::mount::shared::Shared;

const BLOCK: u64 = 4096;

/// Inodes are numbers; their supply is practically unlimited.
const FREE_INODES: u64 = 1 << 40;

/// Replies with the totals.
pub(in crate::mount) fn answer(shared: &Shared, inode: u64, reply: ReplyStatfs) {
    match shared.client.names().md().call(op::StatFs {}) {
        Ok(totals) => reply.statfs(
            totals.total / BLOCK,
            totals.free / BLOCK,
            totals.free / BLOCK,
            totals.inodes + FREE_INODES,
            FREE_INODES,
            BLOCK as u32,
            MAX_NAME as u32,
            BLOCK as u32,
        ),
        Err(error) => reply.error(report("statfs", inode, &error.into())),
    }
}
