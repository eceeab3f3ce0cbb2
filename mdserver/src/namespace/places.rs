//! The places of inodes, from which searches build paths.
//!
//! Invariant: each name of an inode except the root is recorded once, in the inode's record, or, when that has
//! [`MAX_NAMES`] of them, in a row of its own. Such rows exist only while the record is full: when a place in the
//! record is removed, a row moves there. So every named inode has a place in its record, and the record stays short
//! however many names it has.

use crate::api::{Ino, MdError};
use crate::keys;
use crate::records::{Inode, MAX_NAMES, decode, encode};
use crate::txn::Txn;

impl Txn<'_> {
    /// Adds a place of an inode.
    pub(super) fn add_name(
        &mut self,
        inode: &mut Inode,
        (parent, slot): (Ino, u64),
        name: &[u8],
    ) -> Result<(), MdError> {
        if inode.names.len() < MAX_NAMES {
            inode.add_name(parent, slot, name);
        } else {
            let key = keys::name(inode.attr.ino, parent, slot);
            self.batch.put(key, encode(name)?);
        }
        Ok(())
    }

    /// Removes a place of an inode.
    pub(super) fn remove_name(
        &mut self,
        inode: &mut Inode,
        (parent, slot): (Ino, u64),
    ) -> Result<(), MdError> {
        let noted = inode.names.len();
        inode
            .names
            .retain(|place| (place.parent, place.slot) != (parent, slot));
        if noted < MAX_NAMES {
            return Ok(());
        }
        if inode.names.len() == noted {
            self.batch.delete(keys::name(inode.attr.ino, parent, slot));
            return Ok(());
        }
        let (from, to) = keys::names(inode.attr.ino);
        if let Some((key, value)) = self.core.kv.scan(&from, &to, 1)?.pop() {
            let Some([_, parent, slot]) = keys::numbers(&key, [8, 8, 8]) else {
                let key = key.escape_ascii();
                return Err(MdError::Io(format!("unreadable key {key}")));
            };
            let name: Vec<u8> = decode(&key, &value)?;
            inode.add_name(slabfs_model::ObjectId(parent), slot, &name);
            self.batch.delete(key);
        }
        Ok(())
    }
}
