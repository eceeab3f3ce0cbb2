//! Extended attributes, one at a time. Names and values are bytes; the view decides which names a user may set.
//! [`crate::tags::rows`] defines how they are stored.

use slabfs_model::Tag;

use super::MAX_NAME;
use crate::api::{Ino, MAX_XATTR_VALUE, MdError, Reply, XattrFlags};
use crate::core::{Core, Ctx};
use crate::tags::rows;

/// Sets an attribute; a tag that is set this way has the type that its value parses as.
pub(crate) fn set_xattr(
    core: &Core,
    ctx: &Ctx,
    ino: Ino,
    name: Vec<u8>,
    value: Vec<u8>,
    flags: XattrFlags,
) -> Result<Reply, MdError> {
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
    txn.commit(Reply::Done)
}

/// Value of an attribute.
pub(crate) fn get_xattr(core: &Core, ino: Ino, name: &[u8]) -> Result<Reply, MdError> {
    check(name)?;
    let found = rows::reread(core, ino, |inode| rows::get(&*core.kv, inode.place(), name))?;
    let tag = found.ok_or(MdError::NoData)?;
    Ok(Reply::Bytes(tag.bytes))
}

/// Names of all attributes.
pub(crate) fn list_xattr(core: &Core, ino: Ino) -> Result<Reply, MdError> {
    let names = rows::reread(core, ino, |inode| {
        let mut names = Vec::with_capacity(inode.xattrs.count as usize);
        rows::each(&*core.kv, inode.place(), b"", |xattr| {
            names.push(xattr.name.to_vec());
            true
        })?;
        Ok(names)
    })?;
    Ok(Reply::Names(names))
}

/// Removes an attribute.
pub(crate) fn remove_xattr(
    core: &Core,
    ctx: &Ctx,
    ino: Ino,
    name: Vec<u8>,
) -> Result<Reply, MdError> {
    check(&name)?;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    let changed = txn.change_xattrs(&mut inode, vec![(name, None)])?;
    if changed.is_empty() {
        return Err(MdError::NoData);
    }
    txn.put(inode);
    txn.commit(Reply::Done)
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
