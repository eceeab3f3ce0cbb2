//! Removal of names.

use std::sync::Arc;

use super::check_name;
use super::directory::{Found, remove_subdirectory};
use crate::api::{Ino, Kind, MdError, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::records::{Body, Inode, encode};
use crate::txn::Txn;

/// Removes a name of anything but a directory.
pub(crate) fn unlink(core: &Core, ctx: &Ctx, op: op::Unlink) -> Result<(), MdError> {
    let op::Unlink { parent, ref name } = op;
    check_name(name)?;
    let mut txn = core.begin(ctx)?;
    let mut dir = txn.directory(parent)?;
    let found = txn.find_entry(&dir, name)?;
    let inode = txn.inode(found.ino)?;
    if inode.attr.kind == Kind::Directory {
        return Err(MdError::IsDirectory);
    }
    take_out(&mut txn, &mut dir, found)?;
    txn.put(dir);
    txn.drop_link(inode, (parent, found.slot))?;
    txn.commit(())
}

/// Removes an empty directory.
pub(crate) fn rmdir(core: &Core, ctx: &Ctx, op: op::Rmdir) -> Result<(), MdError> {
    let op::Rmdir { parent, ref name } = op;
    if name == b".." {
        return Err(MdError::NotEmpty);
    }
    check_name(name)?;
    let mut txn = core.begin(ctx)?;
    let mut dir = txn.directory(parent)?;
    let found = txn.find_entry(&dir, name)?;
    let inode = txn.inode(found.ino)?;
    check_empty(&inode)?;
    ctx.may_move(&inode)?;
    take_out(&mut txn, &mut dir, found)?;
    remove_subdirectory(Arc::make_mut(&mut dir));
    txn.put(dir);
    txn.drop_link(inode, (parent, found.slot))?;
    txn.commit(())
}

/// Refuses anything but an empty directory.
pub(super) fn check_empty(inode: &Inode) -> Result<(), MdError> {
    match inode.body {
        Body::Directory { entries: 0, .. } => Ok(()),
        Body::Directory { .. } => Err(MdError::NotEmpty),
        _ => Err(MdError::NotDirectory),
    }
}

fn take_out(txn: &mut Txn<'_>, dir: &mut Arc<Inode>, found: Found) -> Result<(), MdError> {
    let dir = txn.own(dir);
    txn.leave(dir, found.slot)
}

impl Txn<'_> {
    /// Removes a name of an inode (of a directory, its only one). An inode without a name is removed, or stays as an
    /// orphan while a session has it open.
    pub(super) fn drop_link(
        &mut self,
        mut inode: Arc<Inode>,
        (parent, slot): (Ino, u64),
    ) -> Result<(), MdError> {
        let changed = self.own(&mut inode);
        self.remove_name(changed, (parent, slot))?;
        let attr = &mut changed.attr;
        let directory = attr.kind == Kind::Directory;
        attr.nlink = if directory {
            0
        } else {
            attr.nlink.saturating_sub(1)
        };
        if attr.nlink > 0 {
            self.put(inode);
            return Ok(());
        }
        let ino = attr.ino;
        if self.is_open(ino) {
            self.batch.put(keys::orphan(ino), encode(&())?);
            self.put(inode);
            return Ok(());
        }
        self.destroy(&inode, false)
    }
}
