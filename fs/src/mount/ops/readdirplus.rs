//! Readdirplus: a listing that looks each entry up on the way, for `ls -l` and `find`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{Generation, ReplyDirectoryPlus};

use super::readdir::{Listed, What, aside, list};
use crate::mount::errno::report;
use crate::mount::shared::{Caller, Shared, Shown};
use crate::view::hidden::Hidden;

/// Lists `inode` from `offset` on, with attributes, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    offset: u64,
    reply: ReplyDirectoryPlus,
) {
    aside(shared, inode, move |shared| {
        answer_here(shared, caller, inode, offset, reply)
    });
}

fn answer_here(
    shared: &Shared,
    caller: Caller,
    inode: u64,
    offset: u64,
    mut reply: ReplyDirectoryPlus,
) {
    let listed = list(shared, caller, inode, offset, &mut |listed| {
        add(shared, &listed, &mut reply)
    });
    match listed {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(report("readdirplus", inode, &failure)),
    }
}

fn add(shared: &Shared, listed: &Listed<'_>, reply: &mut ReplyDirectoryPlus) -> bool {
    let mut put = |shown: &Shown| {
        reply.add(
            shown.attr.ino,
            listed.next,
            OsStr::from_bytes(listed.name),
            &shown.attr_ttl.min(shown.name_ttl),
            &shown.attr,
            Generation(0),
        )
    };
    match listed.what {
        What::Entry(entry) => {
            put(&shared.shown(&shared.client.with_unflushed(entry.entry.clone())))
        }
        // The kernel looks at number and type only, and counts no lookup.
        What::Dots => put(&shared.shown_hidden(listed.inode, Hidden::Top, None)),
        What::Found(target) => {
            let number = shared.nodes.look_up_found(target.into());
            let full = put(&shared.shown_found(number, target));
            if full {
                shared.nodes.forget(number, 1);
            }
            full
        }
        What::Hidden(hidden, repeats) => {
            let number = shared.nodes.look_up_hidden(hidden);
            let full = put(&shared.shown_hidden(number, hidden, repeats));
            if full {
                // It did not fit, so the kernel has not counted it.
                shared.nodes.forget(number, 1);
            }
            full
        }
    }
}
