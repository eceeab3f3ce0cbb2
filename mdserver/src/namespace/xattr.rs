//! Extended attributes, one at a time. Names and values are bytes; the view decides which names a user may set.
//! [`crate::tags::rows`] defines how they are stored.
//!
//! `user.KEY:TYPE` is the tag KEY as one of that type, unless there is an attribute of exactly that name. The value
//! always reads as the bytes that were set.

use slabfs_model::{Tag, TagKind};

use super::MAX_NAME;
use crate::api::{MAX_XATTR_VALUE, MdError, XattrFlags, op};
use crate::core::{Core, Ctx};
use crate::tags::rows;

/// Sets an attribute; a tag has the type in its name, or that which its value reads as.
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
    let (name, tag) = match typed(&name) {
        Some((key, kind)) if rows::get(&*core.kv, inode.place(), &name)?.is_none() => {
            let tag = Tag { kind, bytes: value };
            tag.check()
                .map_err(|error| MdError::Invalid(error.to_string()))?;
            (key.to_vec(), tag)
        }
        _ => (name, Tag::inferred(value)),
    };
    if flags != XattrFlags::Either {
        let exists = rows::get(&*core.kv, inode.place(), &name)?.is_some();
        match (exists, flags) {
            (true, XattrFlags::Create) => return Err(MdError::Exists),
            (false, XattrFlags::Replace) => return Err(MdError::NoData),
            _ => {}
        }
    }
    txn.change_xattrs(&mut inode, vec![(name, Some(tag))])?;
    txn.put(inode);
    txn.commit(())
}

/// Value of an attribute.
pub(crate) fn get_xattr(core: &Core, _: &Ctx, op: op::GetXattr) -> Result<Vec<u8>, MdError> {
    let op::GetXattr { ino, ref name } = op;
    check(name)?;
    let found = rows::reread(core, ino, |inode| {
        let get = |name| rows::get(&*core.kv, inode.place(), name);
        match (get(name)?, typed(name)) {
            (None, Some((key, kind))) => Ok(get(key)?.filter(|tag| tag.kind == kind)),
            (found, _) => Ok(found),
        }
    })?;
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
    let place = inode.place();
    let name = match (rows::get(&*core.kv, place, &name)?, typed(&name)) {
        (None, Some((key, kind))) => {
            let tag = rows::get(&*core.kv, place, key)?;
            let tag = tag.filter(|tag| tag.kind == kind);
            tag.map(|_| key.to_vec()).ok_or(MdError::NoData)?
        }
        _ => name,
    };
    let changed = txn.change_xattrs(&mut inode, vec![(name, None)])?;
    if changed.is_empty() {
        return Err(MdError::NoData);
    }
    txn.put(inode);
    txn.commit(())
}

/// The name without its type, and the type, of `user.KEY:TYPE`.
fn typed(name: &[u8]) -> Option<(&[u8], TagKind)> {
    let (key, kind) = rows::tag_name(name)?.rsplit_once(':')?;
    let kind_given = kind.parse().ok().filter(|_| !key.is_empty())?;
    Some((&name[..name.len() - kind.len() - 1], kind_given))
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
