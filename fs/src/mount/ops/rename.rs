//! Rename, also with `RENAME_NOREPLACE` and `RENAME_EXCHANGE`. A selection can be neither source nor target (`EINVAL`):
//! it is a view, and the object would lose the rest of its elements.

use fuser::{Errno, RenameFlags, ReplyEmpty};
use slabfs_mdserver::api::{self, op};

use super::place;
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::shared::Shared;

/// Renames `from` to `to`, each a parent inode and a name, and replies.
pub(in crate::mount) fn answer(
    shared: &Shared,
    from: (u64, Vec<u8>),
    to: (u64, Vec<u8>),
    flags: RenameFlags,
    reply: ReplyEmpty,
) {
    let parent = from.0;
    match rename(shared, from, to, flags) {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(report("rename", parent, &failure)),
    }
}

fn rename(
    shared: &Shared,
    from: (u64, Vec<u8>),
    to: (u64, Vec<u8>),
    flags: RenameFlags,
) -> Outcome<()> {
    let flags = if flags.is_empty() {
        api::RenameFlags::Replace
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        api::RenameFlags::NoReplace
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        api::RenameFlags::Exchange
    } else {
        return refused(Errno::EINVAL, "these flags of renameat2 do not exist here");
    };
    let (parent, name) = place::entry(shared, from.0, &from.1, Errno::EINVAL)?;
    let (new_parent, new_name) = place::entry(shared, to.0, &to.1, Errno::EINVAL)?;
    let md = shared.client.md();
    Ok(md.call(op::Rename {
        parent,
        name: name.into_owned(),
        new_parent,
        new_name: new_name.into_owned(),
        flags,
    })?)
}
