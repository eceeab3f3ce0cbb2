//! Listings of directories.

use crate::api::{DirEntry, Kind, MdError, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::records::{Slot, decode};

/// Entries in one reply.
const MAX_ENTRIES: u32 = 1024;

/// Entries after `cookie`. Names that are added or removed meanwhile are listed or not; all others are listed once.
/// The list is empty only at the end.
pub(crate) fn read_dir(core: &Core, _: &Ctx, op: op::ReadDir) -> Result<Vec<DirEntry>, MdError> {
    let op::ReadDir { ino, cookie, limit } = op;
    if core.inode(ino)?.attr.kind != Kind::Directory {
        return Err(MdError::NotDirectory);
    }
    let limit = limit.clamp(1, MAX_ENTRIES) as usize;
    let end = keys::slot(ino, u64::MAX);
    let mut from = keys::slot(ino, cookie.saturating_add(1));
    let mut entries = Vec::new();
    loop {
        let slots = core.kv.scan(&from, &end, limit)?;
        let Some((last, _)) = slots.last() else { break };
        from = keys::after(last).into();
        let complete = slots.len() < limit;
        let mut state = core.state();
        for (key, value) in slots {
            let Slot::Entry { name, ino } = decode(&key, &value)? else {
                continue;
            };
            let Some([_, cookie]) = keys::numbers(&key, [8, 8]) else {
                continue;
            };
            match state.inode(&*core.kv, ino) {
                Ok(inode) => entries.push(DirEntry {
                    name,
                    cookie,
                    entry: inode.entry(),
                }),
                // It was removed since the scan.
                Err(MdError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if complete || !entries.is_empty() {
            break;
        }
    }
    Ok(entries)
}
