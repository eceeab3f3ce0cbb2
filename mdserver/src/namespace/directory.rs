//! Slots: the position of a name in its directory.
//!
//! A name's own slot is 16 plus 62 bits of its hash. If that is taken, the next free one is used, as in a hash table
//! with linear probing; a removed entry in such a chain leaves [`Slot::Gone`] behind. That practically never happens
//! (except by intent); a directory in which it did has `collided` set, and all others have no overhead. The slot is
//! the cookie of a listing, so the cookie of an entry does not change as long as its name does not.

use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64;

use crate::api::{Ino, MdError};
use crate::records::{Body, Inode, Slot};
use crate::txn::Txn;

/// Cookies below this are free for `.` and `..`.
const FIRST_SLOT: u64 = 16;
/// Longest chain that is followed; a longer one is forged.
const MAX_CHAIN: u64 = 4096;

/// A name's own slot.
pub(crate) fn first_slot(name: &[u8]) -> u64 {
    FIRST_SLOT + (xxh3_64(name) >> 2)
}

/// The result of looking for a name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found {
    pub(super) slot: u64,
    pub(super) ino: Ino,
}

/// Looks for a name in a directory; `slot` reads slots.
pub(super) fn find_with(
    directory: &Inode,
    name: &[u8],
    mut slot: impl FnMut(u64) -> Result<Option<Arc<Slot>>, MdError>,
) -> Result<Option<Found>, MdError> {
    let Body::Directory { collided, .. } = directory.body else {
        return Err(MdError::NotDirectory);
    };
    let first_slot = first_slot(name);
    let last = if collided {
        first_slot + MAX_CHAIN
    } else {
        first_slot
    };
    for at in first_slot..=last {
        match slot(at)?.as_deref() {
            None => return Ok(None),
            Some(Slot::Entry { name: there, ino }) if there == name => {
                return Ok(Some(Found {
                    slot: at,
                    ino: *ino,
                }));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

impl Txn<'_> {
    /// Looks for a name.
    pub(super) fn find(&mut self, dir: &Inode, name: &[u8]) -> Result<Option<Found>, MdError> {
        find_with(dir, name, |at| self.slot(dir.attr.ino, at))
    }

    /// Looks for a name that has to exist.
    pub(super) fn find_entry(&mut self, dir: &Inode, name: &[u8]) -> Result<Found, MdError> {
        self.find(dir, name)?.ok_or(MdError::NotFound)
    }

    /// Enters a name that does not exist into a directory and returns its slot; the caller stores the directory, and
    /// the slot in the inode.
    pub(super) fn enter(&mut self, dir: &mut Inode, name: &[u8], ino: Ino) -> Result<u64, MdError> {
        let parent = dir.attr.ino;
        let mtime = self.now;
        let Body::Directory {
            entries, collided, ..
        } = &mut dir.body
        else {
            return Err(MdError::NotDirectory);
        };
        let first_slot = first_slot(name);
        let mut at = first_slot;
        while let Some(Slot::Entry { .. }) = self.slot(parent, at)?.as_deref() {
            at += 1;
            if at > first_slot + MAX_CHAIN {
                return Err(MdError::Invalid("too many names of one hash".to_owned()));
            }
        }
        *collided |= at != first_slot;
        *entries += 1;
        dir.attr.mtime = mtime;
        self.replace(parent, at, name, ino);
        // The state is locked until this is done: a request that waits for the name looks it up after that.
        self.core.matchers.named();
        Ok(at)
    }

    /// Removes a name from a directory; the caller stores the directory.
    pub(super) fn leave(&mut self, dir: &mut Inode, slot: u64) -> Result<(), MdError> {
        let parent = dir.attr.ino;
        let Body::Directory {
            entries, collided, ..
        } = &mut dir.body
        else {
            return Err(MdError::NotDirectory);
        };
        *entries = entries.saturating_sub(1);
        // The remains of chains are removed with the next names in their slots, or with the directory.
        let chain = *collided && self.slot(parent, slot + 1)?.is_some();
        dir.attr.mtime = self.now;
        self.set_slot(parent, slot, chain.then_some(Slot::Gone));
        Ok(())
    }

    /// Makes a slot the entry of a name and an inode.
    pub(super) fn replace(&mut self, parent: Ino, slot: u64, name: &[u8], ino: Ino) {
        let name = name.to_vec();
        self.set_slot(parent, slot, Some(Slot::Entry { name, ino }));
    }
}

/// Increments the number of directories in a directory.
pub(super) fn add_subdirectory(dir: &mut Inode) {
    dir.attr.nlink = dir.attr.nlink.saturating_add(1);
}

/// Decrements the number of directories in a directory.
pub(super) fn remove_subdirectory(dir: &mut Inode) {
    dir.attr.nlink = dir.attr.nlink.saturating_sub(1).max(2);
}
