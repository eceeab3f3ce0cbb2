//! Renaming, by the rules of `rename(2)` and `renameat2(2)`.

use std::sync::Arc;

use super::check_name;
use super::directory::{Found, add_subdirectory, remove_subdirectory};
use super::remove::check_empty;
use crate::api::{Ino, Kind, Links, MdError, ROOT, RenameFlags, Unlinked, op};
use crate::core::{Core, Ctx};
use crate::records::{Body, Inode};
use crate::txn::Txn;

/// A name in a directory.
pub(crate) struct Place {
    pub(crate) parent: Ino,
    pub(crate) name: Vec<u8>,
}

/// Deepest nesting of directories that is followed; a deeper one is damage.
const MAX_DEPTH: usize = 1 << 20;

/// Renames as in POSIX.
pub(crate) fn rename(core: &Core, ctx: &Ctx, op: op::Rename) -> Result<Unlinked, MdError> {
    let from = Place {
        parent: op.parent,
        name: op.name,
    };
    let to = Place {
        parent: op.new_parent,
        name: op.new_name,
    };
    let (from, to, flags) = (&from, &to, op.flags);
    check_name(&from.name)?;
    check_name(&to.name)?;
    let mut txn = core.begin(ctx)?;
    let source_dir = txn.directory(from.parent)?;
    let target_dir = txn.directory(to.parent)?;
    let source = txn.find_entry(&source_dir, &from.name)?;
    let target = txn.find(&target_dir, &to.name)?;
    let moved = txn.inode(source.ino)?;
    let is_directory = moved.attr.kind == Kind::Directory;
    ctx.may_move(&moved)?;
    if is_directory {
        refuse_cycle(&mut txn, source.ino, to.parent)?;
    }
    let mut links = None;
    let slot = match (target, flags) {
        (Some(_), RenameFlags::NoReplace) => return Err(MdError::Exists),
        (None, RenameFlags::Exchange) => return Err(MdError::NotFound),
        (Some(target), RenameFlags::Exchange) => {
            return exchange(txn, ctx, from, to, source, target, moved);
        }
        // Two names of one inode: nothing happens, and both remain.
        (Some(target), RenameFlags::Replace) if target.ino == source.ino => {
            return txn.commit(Unlinked::default());
        }
        (Some(target), RenameFlags::Replace) => {
            links = replace(&mut txn, ctx, to, target, is_directory)?;
            txn.replace(to.parent, target.slot, &to.name, source.ino);
            target.slot
        }
        (None, _) => {
            let mut dir = txn.directory(to.parent)?;
            let slot = txn.enter(Arc::make_mut(&mut dir), &to.name, source.ino)?;
            txn.put(dir);
            slot
        }
    };
    // The slot of the name is still valid: entering the new name cannot have moved it, since slots are never moved.
    let mut dir = txn.directory(from.parent)?;
    txn.leave(Arc::make_mut(&mut dir), source.slot)?;
    txn.put(dir);
    if is_directory && from.parent != to.parent {
        txn.change(from.parent, remove_subdirectory)?;
        txn.change(to.parent, add_subdirectory)?;
    }
    txn.moved(&moved, (from.parent, source.slot), (to, slot))?;
    txn.commit(Unlinked { links })
}

/// Removes the target of the new name, if the rules permit.
fn replace(
    txn: &mut Txn<'_>,
    ctx: &Ctx,
    to: &Place,
    target: Found,
    source_is_directory: bool,
) -> Result<Option<Links>, MdError> {
    let gone = txn.inode(target.ino)?;
    ctx.may_move(&gone)?;
    let gone_is_directory = gone.attr.kind == Kind::Directory;
    match (source_is_directory, gone_is_directory) {
        (false, true) => return Err(MdError::IsDirectory),
        (true, false) => return Err(MdError::NotDirectory),
        (true, true) => {
            check_empty(&gone)?;
            txn.change(to.parent, remove_subdirectory)?;
        }
        (false, false) => {}
    }
    let now = txn.now;
    txn.change(to.parent, |dir| dir.attr.mtime = now)?;
    txn.drop_link(gone, (to.parent, target.slot))
}

/// Swaps two names.
fn exchange(
    mut txn: Txn<'_>,
    ctx: &Ctx,
    from: &Place,
    to: &Place,
    source: Found,
    target: Found,
    moved: Arc<Inode>,
) -> Result<Unlinked, MdError> {
    if source.ino == target.ino {
        return txn.commit(Unlinked::default());
    }
    let other = txn.inode(target.ino)?;
    ctx.may_move(&other)?;
    let directories = [&moved, &other].map(|inode| inode.attr.kind == Kind::Directory);
    if directories[1] {
        refuse_cycle(&mut txn, target.ino, from.parent)?;
    }
    txn.replace(from.parent, source.slot, &from.name, target.ino);
    txn.replace(to.parent, target.slot, &to.name, source.ino);
    let now = txn.now;
    txn.change(from.parent, |dir| dir.attr.mtime = now)?;
    if from.parent != to.parent {
        txn.change(to.parent, |dir| dir.attr.mtime = now)?;
        match directories {
            [true, false] => {
                txn.change(from.parent, remove_subdirectory)?;
                txn.change(to.parent, add_subdirectory)?;
            }
            [false, true] => {
                txn.change(from.parent, add_subdirectory)?;
                txn.change(to.parent, remove_subdirectory)?;
            }
            _ => {}
        }
    }
    txn.moved(&moved, (from.parent, source.slot), (to, target.slot))?;
    txn.moved(&other, (to.parent, target.slot), (from, source.slot))?;
    txn.commit(Unlinked::default())
}

/// Refuses to move directory `ino` into itself or its descendants.
fn refuse_cycle(txn: &mut Txn<'_>, ino: Ino, into: Ino) -> Result<(), MdError> {
    let mut at = into;
    for _ in 0..MAX_DEPTH {
        if at == ino {
            return Err(MdError::Invalid(
                "a directory cannot move into itself".to_owned(),
            ));
        }
        if at == ROOT {
            return Ok(());
        }
        match txn.inode(at)?.body {
            Body::Directory { parent, .. } => at = parent,
            _ => return Err(MdError::NotDirectory),
        }
    }
    Err(MdError::Io(
        "the parents of a directory do not lead to the root".to_owned(),
    ))
}

impl Txn<'_> {
    /// Changes and stores an inode.
    fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) -> Result<(), MdError> {
        let mut inode = self.inode(ino)?;
        change(Arc::make_mut(&mut inode));
        self.put(inode);
        Ok(())
    }

    /// Stores an inode whose place changed.
    fn moved(
        &mut self,
        inode: &Inode,
        (left, slot): (Ino, u64),
        (into, new_slot): (&Place, u64),
    ) -> Result<(), MdError> {
        let mut inode = self.inode(inode.attr.ino)?;
        let changed = Arc::make_mut(&mut inode);
        self.remove_name(changed, (left, slot))?;
        self.add_name(changed, (into.parent, new_slot), &into.name)?;
        if let Body::Directory { parent, .. } = &mut changed.body {
            *parent = into.parent;
        }
        self.put(inode);
        Ok(())
    }
}
