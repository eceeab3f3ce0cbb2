//! Getattr: `stat`.

use fuser::ReplyAttr;
use slabfs_mdserver::api::ROOT;

use crate::mount::errno::{Outcome, report_inode};
use crate::mount::root::Asked;
use crate::mount::shared::{Shared, Shown};
use crate::view::nodes::Node;

/// Replies if that needs no request and no wait; otherwise returns the reply.
pub(in crate::mount) fn answer_from_memory(
    shared: &Shared,
    inode: u64,
    reply: ReplyAttr,
) -> Option<ReplyAttr> {
    let shown = match shared.nodes.get(inode) {
        Some(Node::Plain(ino)) => {
            let cached = shared.client.names().cached_directory(ino);
            cached.map(|entry| shared.shown(&entry))
        }
        Some(Node::Hidden(hidden)) if hidden.repeats().is_none() => {
            Some(shared.shown_hidden(inode, hidden, None))
        }
        _ => None,
    };
    let Some(shown) = shown else {
        return Some(reply);
    };
    if inode == ROOT.0 {
        shared.root.note(&shown.attr);
    }
    reply.attr(&shown.attr_ttl, &shown.attr);
    None
}

/// Replies to a request for the attributes of the root, unless it has been answered meanwhile.
pub(in crate::mount) fn answer_root(shared: &Shared, asked: Asked) {
    let found = shared.attributes(ROOT.0);
    if let Ok(shown) = &found {
        shared.root.note(&shown.attr);
    }
    if let Some(reply) = asked.take() {
        give("getattr", ROOT.0, found, reply);
    }
}

/// Replies with the attributes of `inode`.
pub(in crate::mount) fn answer(shared: &Shared, inode: u64, reply: ReplyAttr) {
    give("getattr", inode, shared.attributes(inode), reply);
}

/// Replies with attributes.
pub(super) fn give(operation: &'static str, inode: u64, found: Outcome<Shown>, reply: ReplyAttr) {
    match found {
        Ok(shown) => reply.attr(&shown.attr_ttl, &shown.attr),
        Err(failure) => reply.error(report_inode(operation, inode, &failure)),
    }
}
