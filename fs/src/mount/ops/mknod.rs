//! Mknod: creates objects, FIFOs, sockets and device nodes. Of the latter three only the node is stored; the kernel
//! does the rest.

use fuser::{Errno, ReplyEntry};

use super::{lookup, make};
use crate::mount::attr::kind_of_mode;
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::shared::{Caller, Shared, Shown};

/// Creates the node and replies.
pub(in crate::mount) fn answer(
    shared: &Shared,
    caller: Caller,
    parent: u64,
    name: Vec<u8>,
    mode: u32,
    rdev: u32,
    reply: ReplyEntry,
) {
    match make_node(shared, caller, parent, &name, mode, rdev) {
        Ok(shown) => lookup::give(shared, &shown, reply),
        Err(failure) => reply.error(report("mknod", parent, &failure)),
    }
}

fn make_node(
    shared: &Shared,
    caller: Caller,
    parent: u64,
    name: &[u8],
    mode: u32,
    rdev: u32,
) -> Outcome<Shown> {
    let Some(kind) = kind_of_mode(mode) else {
        return refused(Errno::EINVAL, "mknod makes no inode of this type");
    };
    let made = make::Made {
        kind,
        mode,
        rdev,
        target: None,
    };
    make::make(shared, caller, parent, name, made)
}
