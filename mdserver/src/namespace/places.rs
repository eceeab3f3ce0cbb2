//! Where inodes are found: what searches tell paths from.
//!
//! What holds: each name of an inode but the root is noted once, in the inode's record, or, when that
//! has [`MAX_NAMES`] of them, in a row of its own. There are such rows only while the record is full: when
//! one of those in it goes, a row takes its place. So what has a name is found by it, and an inode's
//! record stays short however many it has.

use crate::api::{Ino, MdError};
use crate::keys;
use crate::records::{Inode, MAX_NAMES, decode, encode};
use crate::txn::Txn;

impl Txn<'_> {
    /// Notes one more place where an inode is found.
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

    /// Notes that an inode is found there no more.
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
