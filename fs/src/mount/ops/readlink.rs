//! Readlink: the target of a symbolic link.

use fuser::ReplyData;
use slabfs_mdserver::api::op;

use crate::mount::errno::{Outcome, report_inode};
use crate::mount::shared::Shared;
use crate::view::nodes::Node;

/// Replies with the target of `inode`.
pub(in crate::mount) fn answer(shared: &Shared, inode: u64, reply: ReplyData) {
    match target(shared, inode) {
        Ok(target) => reply.data(&target),
        Err(failure) => reply.error(report_inode("readlink", inode, &failure)),
    }
}

fn target(shared: &Shared, inode: u64) -> Outcome<Vec<u8>> {
    if let Node::Found(target) = shared.node(inode)? {
        return Ok(target.to_vec());
    }
    let ino = shared.plain(inode)?;
    Ok(shared.client.md(ino).call(op::ReadLink { ino })?)
}
