//! Rename, also with `RENAME_NOREPLACE` and `RENAME_EXCHANGE`. A selection can be neither source nor target (`EINVAL`):
//! it is a view, and the object would lose the rest of its elements.

use fuser::{Errno, RenameFlags};
use slabfs_mdserver::api::{self, op};

use super::place;
use crate::mount::errno::{Outcome, refused};
use crate::mount::shared::Shared;

/// Renames `from` to `to`, each a parent inode and a name.
pub(in crate::mount) fn rename(
    shared: &Shared,
    from: (u64, &[u8]),
    to: (u64, &[u8]),
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
    let (parent, name) = place::entry(shared, from.0, from.1, Errno::EINVAL)?;
    let (new_parent, new_name) = place::entry(shared, to.0, to.1, Errno::EINVAL)?;
    Ok(shared.client.rename(op::Rename {
        parent,
        name: name.into_owned(),
        new_parent,
        new_name: new_name.into_owned(),
        flags,
    })?)
}
