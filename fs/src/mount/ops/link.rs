//! Link: adds a name for an inode. A selection cannot have further names (`EPERM`, as for directories).

use fuser::{Errno, ReplyEntry};
use slabfs_mdserver::api::op;

use super::{lookup, place};
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::shared::{Shared, Shown};
use crate::view::nodes::Node;

/// Adds the name and replies.
pub(in crate::mount) fn answer(
    shared: &Shared,
    inode: u64,
    parent: u64,
    name: &[u8],
    reply: ReplyEntry,
) {
    match link(shared, inode, parent, name) {
        Ok(shown) => lookup::give(shared, &shown, reply),
        Err(failure) => reply.error(report("link", inode, &failure)),
    }
}

fn link(shared: &Shared, inode: u64, parent: u64, name: &[u8]) -> Outcome<Shown> {
    let Node::Plain(ino) = shared.node(inode)? else {
        return refused(Errno::EPERM, "only objects can have a second name");
    };
    let (parent, stored) = place::entry(shared, parent, name, Errno::EINVAL)?;
    let entry = shared.client.md().call(op::Link {
        ino,
        parent,
        name: stored.to_vec(),
    })?;
    let entry = shared.client.with_unflushed(entry);
    Ok(shared.shown(&entry).named(&stored))
}
