//! Mkdir: creates a directory.

use fuser::ReplyEntry;
use slabfs_mdserver::api::Kind;

use super::{lookup, make};
use crate::mount::errno::report;
use crate::mount::shared::{Caller, Shared};

/// Creates the directory and replies.
pub(in crate::mount) fn answer(
    shared: &Shared,
    caller: Caller,
    parent: u64,
    name: Vec<u8>,
    mode: u32,
    reply: ReplyEntry,
) {
    let made = make::Made {
        kind: Kind::Directory,
        mode,
        rdev: 0,
        target: None,
    };
    match make::make(shared, caller, parent, &name, made) {
        Ok(shown) => lookup::give(shared, &shown, reply),
        Err(failure) => reply.error(report("mkdir", parent, &failure)),
    }
}
