//! Lookups, and plain attributes.

use std::sync::Arc;

use super::directory::find_with;
use crate::api::{Attr, Entry, Ino, Kind, MAX_NAME, MdError, SetAttr, SetTime, Time, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::records::{Body, Inode};

/// Finds a name; also `.` and `..`.
pub(crate) fn named(core: &Core, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
    if name.len() > MAX_NAME {
        return Err(MdError::NameTooLong);
    }
    if let Some(found) = glance(core, parent, name) {
        return found.map(|inode| inode.entry());
    }
    let kv = &*core.kv;
    let mut state = core.state();
    let dir = state.inode(kv, parent)?;
    let Body::Directory { parent: up, .. } = dir.body else {
        return Err(MdError::NotDirectory);
    };
    let ino = match name {
        b"." => parent,
        b".." => up,
        _ => {
            let found = find_with(&dir, name, |at| state.slot(kv, parent, at))?;
            found.ok_or(MdError::NotFound)?.ino
        }
    };
    Ok(state.inode(kv, ino)?.entry())
}

/// Finds a name, for a session.
pub(crate) fn lookup(core: &Core, _: &Ctx, op: op::Lookup) -> Result<Entry, MdError> {
    named(core, op.parent, &op.name)
}

/// Finds a name without the state's lock, if everything needed is among the copies or known to be absent.
pub(crate) fn glance(core: &Core, parent: Ino, name: &[u8]) -> Option<Result<Arc<Inode>, MdError>> {
    let dir = core.seen.inode(parent)?;
    let Body::Directory { parent: up, .. } = dir.body else {
        return Some(Err(MdError::NotDirectory));
    };
    let ino = match name {
        b"." => return Some(Ok(dir)),
        b".." => up,
        _ => {
            let slot = |at| match core.seen.slot(parent, at) {
                Some(slot) => Ok(slot),
                None => match core.kv.get(&keys::slot(parent, at)) {
                    Ok(None) => Ok(None),
                    _ => Err(MdError::Busy),
                },
            };
            match find_with(&dir, name, slot).ok()? {
                Some(found) => found.ino,
                None => return Some(Err(MdError::NotFound)),
            }
        }
    };
    core.seen.inode(ino).map(Ok)
}

/// Attributes of an inode.
pub(crate) fn get_attr(core: &Core, _: &Ctx, op: op::GetAttr) -> Result<Entry, MdError> {
    Ok(core.inode(op.ino)?.entry())
}

/// Target of a symbolic link, also of a removed one.
pub(crate) fn read_link(core: &Core, _: &Ctx, op: op::ReadLink) -> Result<Vec<u8>, MdError> {
    let op::ReadLink { ino } = op;
    let inode = match core.inode(ino) {
        Err(MdError::NotFound) => return core.removed.target(ino),
        found => found?,
    };
    match &inode.body {
        Body::Symlink(target) => Ok(target.clone()),
        _ => Err(MdError::Invalid("not a symbolic link".to_owned())),
    }
}

/// Sets mode, owner, times.
pub(crate) fn set_attr(core: &Core, ctx: &Ctx, op: op::SetAttr) -> Result<Entry, MdError> {
    let op::SetAttr { ino, set } = op;
    let mut txn = core.begin(ctx)?;
    let now = txn.now;
    let mut inode = txn.inode(ino)?;
    self::set(&mut txn.own(&mut inode).attr, set, now)?;
    txn.put(inode);
    let entry = txn.inode(ino)?.entry();
    txn.commit(entry)
}

/// Sets the given attributes.
pub(super) fn set(attr: &mut Attr, set: SetAttr, now: Time) -> Result<(), MdError> {
    if let Some(mode) = set.mode {
        if attr.kind == Kind::Symlink {
            return Err(MdError::NotSupported(
                "a symbolic link has no mode".to_owned(),
            ));
        }
        attr.mode = mode & 0o7777;
    }
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if let Some(time) = set.atime {
        attr.atime = resolve(time, now)?;
    }
    if let Some(time) = set.mtime {
        attr.mtime = resolve(time, now)?;
    }
    Ok(())
}

fn resolve(time: SetTime, now: Time) -> Result<Time, MdError> {
    match time {
        SetTime::Now => Ok(now),
        SetTime::To(time) => check_time(time),
    }
}

/// Refuses an invalid time.
pub(crate) fn check_time(time: Time) -> Result<Time, MdError> {
    if time.nsec < 1_000_000_000 {
        Ok(time)
    } else {
        Err(MdError::Invalid("nanoseconds are below 10^9".to_owned()))
    }
}
