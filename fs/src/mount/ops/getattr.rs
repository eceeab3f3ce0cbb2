//! Getattr: `stat`.

use fuser::ReplyAttr;

use crate::mount::errno::report_inode;
use crate::mount::shared::Shared;
use crate::view::nodes::Node;

/// Replies if that needs nobody to be asked or waited for; else gives the reply back.
pub(in crate::mount) fn answer_from_memory(
    shared: &Shared,
    inode: u64,
    reply: ReplyAttr,
) -> Option<ReplyAttr> {
    let Some(Node::Plain(ino)) = shared.nodes.get(inode) else {
        return Some(reply);
    };
    let Some(entry) = shared.client.kept_directory(ino) else {
        return Some(reply);
    };
    let shown = shared.shown(&entry);
    reply.attr(&shown.attr_ttl, &shown.attr);
    None
}

/// Replies with the attributes of `inode`.
pub(in crate::mount) fn answer(shared: &Shared, inode: u64, reply: ReplyAttr) {
    match shared.attributes(inode) {
        Ok(shown) => reply.attr(&shown.attr_ttl, &shown.attr),
        Err(failure) => reply.error(report_inode("getattr", inode, &failure)),
    }
}
