//! Readdirplus: a listing that also looks each entry up, for `ls -l` and `find`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{Generation, ReplyDirectoryPlus};

use super::readdir::{Listed, What, list, run_listing};
use super::views;
use crate::mount::errno::report;
use crate::mount::shared::{Caller, Shared, Shown};
use crate::view::hidden::Hidden;
use crate::view::nodes::Node;

/// Lists `inode` from `offset` on, with attributes, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    offset: u64,
    mut reply: ReplyDirectoryPlus,
) {
    run_listing(shared, caller, inode, move |shared| {
        let mut counted = Vec::new();
        let listed = list(shared, caller, inode, offset, &mut |listed| {
            add(shared, &listed, &mut reply, &mut counted)
        });
        let given = match listed {
            Ok(()) => reply.ok(),
            Err(failure) => {
                reply.error(report("readdirplus", inode, &failure));
                false
            }
        };
        if !given {
            for number in counted {
                shared.nodes.forget(number, 1);
            }
        }
    });
}

/// Adds an entry to the reply, and the number of a virtual node, of which a lookup is counted, to `counted`; returns
/// whether the reply is full.
fn add(
    shared: &Shared,
    listed: &Listed<'_>,
    reply: &mut ReplyDirectoryPlus,
    counted: &mut Vec<u64>,
) -> bool {
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
            let entry = shared.client.with_unflushed(entry.entry.clone());
            put(&shared.shown(&entry).named(listed.name))
        }
        // The kernel uses number and type only, and counts no lookup.
        What::Dots => put(&shared.shown_hidden(listed.inode, Hidden::Top, None)),
        What::Found(target) => {
            let number = shared.nodes.look_up_found(target.into());
            let full = put(&shared.shown_found(number, target));
            count(shared, number, full, counted);
            full
        }
        What::InView { directory, name } => match views::shown(shared, directory, name) {
            Ok(shown) => {
                let full = put(&shown);
                count(shared, shown.attr.ino.0, full, counted);
                full
            }
            // What the format cannot have, or what is gone, is not listed. There are no chunks after one that is gone.
            Err(_) => matches!(shared.nodes.get(directory), Some(Node::Chunks(_))),
        },
        What::Hidden(hidden, repeats) => {
            let number = shared.nodes.look_up_hidden(hidden);
            let full = put(&shared.shown_hidden(number, hidden, repeats));
            count(shared, number, full, counted);
            full
        }
    }
}

fn count(shared: &Shared, number: u64, full: bool, counted: &mut Vec<u64>) {
    match full {
        // The entry did not fit, so the kernel does not count it.
        true => shared.nodes.forget(number, 1),
        false => counted.push(number),
    }
}
