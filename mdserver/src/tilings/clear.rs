//! Emptying an object.

use slabfs_model::Version;
use std::sync::Arc;

use crate::api::{Entry, MdError, op};
use crate::core::{Core, Ctx};

/// Empties an object: all fill; fixed dims stay, an unlimited slowest axis gets length 0. Its previous data then
/// belongs to an older generation, and is purged in the background.
pub(crate) fn clear(core: &Core, ctx: &Ctx, op: op::Clear) -> Result<Entry, MdError> {
    let op::Clear { ino } = op;
    let cleared: Result<Entry, MdError> = core.tilings.with(ino, |loaded| {
        let mut txn = core.begin(ctx)?;
        let now = txn.now;
        let mut inode = txn.inode(ino)?;
        let new = Arc::make_mut(&mut inode);
        let object = new.object_mut()?;
        if object.info.unlimited_rows()
            && let Some(rows) = object.info.dims.first_mut()
        {
            *rows = 0;
        }
        object.info.holds = false;
        object.info.tiling = Version(object.info.tiling.0 + 1);
        txn.next_generation(ino, object)?;
        txn.choose_stripe(ino, object)?;
        new.refresh()?;
        new.attr.mtime = now;
        txn.put(inode);
        let entry = txn.inode(ino)?.entry();
        let reply = txn.commit(entry)?;
        loaded.forget();
        core.matchers.restart(ino);
        Ok(reply)
    });
    let entry = cleared?;
    if let (Some(info), Some(session)) = (&entry.info, ctx.session)
        && info.couple.on().is_some()
    {
        core.matchers.settle(ino, info.tiling, session);
    }
    Ok(entry)
}
