//! Removal of names.

use std::sync::Arc;

use super::check_name;
use super::directory::{Found, remove_subdirectory};
use crate::api::{Ino, Kind, Links, MdError, Unlinked, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::records::{Body, Inode, encode};
use crate::txn::Txn;

/// Removes a name of anything but a directory.
pub(crate) fn unlink(core: &Core, ctx: &Ctx, op: op::Unlink) -> Result<Unlinked, MdError> {
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
    let links = txn.drop_link(inode, (parent, found.slot))?;
    txn.commit(Unlinked { links })
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
    /// orphan while a session has it open. Returns the links of one in another shard.
    pub(super) fn drop_link(
        &mut self,
        mut inode: Arc<Inode>,
        (parent, slot): (Ino, u64),
    ) -> Result<Option<Links>, MdError> {
        let changed = self.own(&mut inode);
        self.remove_name(changed, (parent, slot))?;
        let attr = &mut changed.attr;
        let directory = attr.kind == Kind::Directory;
        attr.nlink = if directory {
            0
        } else {
            attr.nlink.saturating_sub(1)
        };
        let (ino, left) = (attr.ino, attr.nlink);
        if left > 0 {
            self.put(inode);
            let inode = self.inode(ino)?;
            return self.linked(&inode);
        }
        if let Body::Remote(_) = inode.body {
            let attr = &mut Arc::make_mut(&mut inode).attr;
            attr.change += 1;
            let links = self.linked(&inode)?;
            self.destroy(&inode, false)?;
            return Ok(links);
        }
        if self.is_open(ino) {
            self.become_orphan(inode)?;
            return Ok(None);
        }
        self.destroy(&inode, false)?;
        Ok(None)
    }

    /// Keeps an inode without a name, which a session has open.
    pub(crate) fn become_orphan(&mut self, inode: Arc<Inode>) -> Result<(), MdError> {
        self.batch.put(keys::orphan(inode.attr.ino), encode(&())?);
        self.put(inode);
        Ok(())
    }
}
