//! Getattr: `stat`.

use fuser::ReplyAttr;

use crate::mount::errno::report_inode;
use crate::mount::shared::Shared;

/// Replies with the attributes of `inode`.
pub(in crate::mount) fn answer(shared: &Shared, inode: u64, reply: ReplyAttr) {
    match shared.attributes(inode) {
        Ok(shown) => reply.attr(&shown.attr_ttl, &shown.attr),
        Err(failure) => reply.error(report_inode("getattr", inode, &failure)),
    }
}
