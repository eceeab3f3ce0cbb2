//! Extended attributes. Names and values are bytes; which names a user may set is the view's matter.

use std::sync::Arc;

use super::MAX_NAME;
use crate::api::{Ino, MAX_XATTR_LIST, MAX_XATTR_VALUE, MdError, Reply, XattrFlags};
use crate::core::{Core, Ctx};
use crate::keys;

/// Most attributes of one inode.
const MAX_XATTRS: u32 = 1024;

/// Sets an attribute.
pub(crate) fn set_xattr(
    core: &Core,
    ctx: &Ctx,
    ino: Ino,
    name: &[u8],
    value: Vec<u8>,
    flags: XattrFlags,
) -> Result<Reply, MdError> {
    check(name)?;
    if value.len() > MAX_XATTR_VALUE {
        return Err(MdError::TooBig(format!(
            "an attribute has at most {MAX_XATTR_VALUE} bytes"
        )));
    }
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    let key = keys::xattr(ino, name);
    let exists = inode.xattrs > 0 && core.kv.get(&key)?.is_some();
    match (exists, flags) {
        (true, XattrFlags::Create) => return Err(MdError::Exists),
        (false, XattrFlags::Replace) => return Err(MdError::NoData),
        _ => {}
    }
    if !exists {
        let inode = Arc::make_mut(&mut inode);
        inode.xattrs += 1;
        inode.xattr_names += name.len() as u32 + 1;
        if inode.xattrs > MAX_XATTRS || inode.xattr_names as usize > MAX_XATTR_LIST {
            return Err(MdError::NoSpace);
        }
    }
    txn.batch.put(key, value);
    txn.put(inode);
    txn.commit(Reply::Done)
}

/// Value of an attribute.
pub(crate) fn get_xattr(core: &Core, ino: Ino, name: &[u8]) -> Result<Reply, MdError> {
    check(name)?;
    if core.inode(ino)?.xattrs == 0 {
        return Err(MdError::NoData);
    }
    let value = core.kv.get(&keys::xattr(ino, name))?;
    value.map(Reply::Bytes).ok_or(MdError::NoData)
}

/// Names of all attributes.
pub(crate) fn list_xattr(core: &Core, ino: Ino) -> Result<Reply, MdError> {
    if core.inode(ino)?.xattrs == 0 {
        return Ok(Reply::Names(Vec::new()));
    }
    let (from, to) = keys::xattrs(ino);
    let all = core.kv.scan(&from, &to, MAX_XATTRS as usize)?;
    Ok(Reply::Names(
        all.into_iter()
            .map(|(key, _)| key[from.len()..].to_vec())
            .collect(),
    ))
}

/// Removes an attribute.
pub(crate) fn remove_xattr(
    core: &Core,
    ctx: &Ctx,
    ino: Ino,
    name: &[u8],
) -> Result<Reply, MdError> {
    check(name)?;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    let key = keys::xattr(ino, name);
    if inode.xattrs == 0 || core.kv.get(&key)?.is_none() {
        return Err(MdError::NoData);
    }
    let changed = Arc::make_mut(&mut inode);
    changed.xattrs -= 1;
    changed.xattr_names = changed.xattr_names.saturating_sub(name.len() as u32 + 1);
    txn.batch.delete(key);
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
