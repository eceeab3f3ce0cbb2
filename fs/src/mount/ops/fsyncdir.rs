//! Fsyncdir: when this is answered, the names of a directory, and all metadata operations answered before, are on
//! disk.

use std::sync::Arc;

use fuser::ReplyEmpty;

use crate::mount::errno::end;
use crate::mount::shared::Shared;
use crate::view::nodes::{FIRST_VIRTUAL, Node};

/// Syncs and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, inode: u64, reply: ReplyEmpty) {
    if inode >= FIRST_VIRTUAL && !matches!(shared.nodes.get(inode), Some(Node::Selection(_))) {
        return reply.ok();
    }
    let worker = shared.clone();
    shared.pool.submit(Box::new(move || {
        let done = worker.client.sync_metadata();
        end("fsyncdir", inode, done, reply);
    }));
}
