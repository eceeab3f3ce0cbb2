//! Extended attributes, one at a time. Names and values are bytes; the view decides which names a user may set.
//! [`crate::tags::rows`] defines how they are stored.

use slabfs_model::Tag;

use super::MAX_NAME;
use crate::api::{MAX_XATTR_VALUE, MdError, XattrFlags, op};
use crate::core::{Core, Ctx};
use crate::tags::rows;

/// Sets an attribute; a tag that is set this way has the type that its value parses as.
pub(crate) fn set_xattr(core: &Core, ctx: &Ctx, op: op::SetXattr) -> Result<(), MdError> {
    let op::SetXattr {
        ino,
        name,
        value,
        flags,
    } = op;
    check(&name)?;
    if value.len() > MAX_XATTR_VALUE {
        return Err(MdError::TooBig(format!(
            "an attribute has at most {MAX_XATTR_VALUE} bytes"
        )));
    }
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    if flags != XattrFlags::Either {
        let exists = rows::get(&*core.kv, inode.place(), &name)?.is_some();
        match (exists, flags) {
            (true, XattrFlags::Create) => return Err(MdError::Exists),
            (false, XattrFlags::Replace) => return Err(MdError::NoData),
            _ => {}
        }
    }
    txn.change_xattrs(&mut inode, vec![(name, Some(Tag::auto(value)))])?;
    txn.put(inode);
    txn.commit(())
}

/// Value of an attribute.
pub(crate) fn get_xattr(core: &Core, _: &Ctx, op: op::GetXattr) -> Result<Vec<u8>, MdError> {
    let op::GetXattr { ino, ref name } = op;
    check(name)?;
    let found = rows::reread(core, ino, |inode| rows::get(&*core.kv, inode.place(), name))?;
    let tag = found.ok_or(MdError::NoData)?;
    Ok(tag.bytes)
}

/// Names of all attributes.
pub(crate) fn list_xattr(core: &Core, _: &Ctx, op: op::ListXattr) -> Result<Vec<Vec<u8>>, MdError> {
    let op::ListXattr { ino } = op;
    rows::reread(core, ino, |inode| {
        let mut names = Vec::with_capacity(inode.xattrs.count as usize);
        rows::each(&*core.kv, inode.place(), b"", |xattr| {
            names.push(xattr.name.to_vec());
            true
        })?;
        Ok(names)
    })
}

/// Removes an attribute.
pub(crate) fn remove_xattr(core: &Core, ctx: &Ctx, op: op::RemoveXattr) -> Result<(), MdError> {
    let op::RemoveXattr { ino, name } = op;
    check(&name)?;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    let changed = txn.change_xattrs(&mut inode, vec![(name, None)])?;
    if changed.is_empty() {
        return Err(MdError::NoData);
    }
    txn.put(inode);
    txn.commit(())
}

fn check(name: &[u8]) -> Result<(), MdError> {
    if name.len() > MAX_NAME {
        return Err(MdError::NameTooLong);
    }
    if name.is_empty() || name.contains(&0) {
        return Err(MdError::Invalid("not a name of an attribute".to_owned()));
    }
    Ok(())
}
