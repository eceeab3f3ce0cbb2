//! Symlink: creates a symbolic link. Its target is stored unchanged; the kernel follows it.

use fuser::ReplyEntry;
use slabfs_mdserver::api::Kind;

use super::{lookup, make};
use crate::mount::errno::report;
use crate::mount::shared::{Caller, Shared};

/// Creates the link and replies.
pub(in crate::mount) fn answer(
    shared: &Shared,
    caller: Caller,
    parent: u64,
    name: Vec<u8>,
    target: Vec<u8>,
    reply: ReplyEntry,
) {
    let made = make::Made {
        kind: Kind::Symlink,
        mode: 0o777,
        rdev: 0,
        target: Some(target),
    };
    match make::make(shared, caller, parent, &name, made) {
        Ok(shown) => lookup::give(shared, &shown, reply),
        Err(failure) => reply.error(report("symlink", parent, &failure)),
    }
}
