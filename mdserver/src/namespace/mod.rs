//! Names: directories, inodes, links, renames, extended attributes.
//!
//! Invariants: an inode's `nlink` is the number of slots that name it (of a directory: 2 plus one for each directory
//! in it); a directory's `entries` is the number of its slots in use; a directory has one parent, and following
//! parents leads to the root. An inode without a name remains as an *orphan* while a session has it open; the
//! attributes of removed inodes are remembered for a while (`removed`).

mod attributes;
mod create;
mod create_many;
mod defaults;
mod directory;
mod listing;
mod open;
mod places;
mod remove;
mod removed;
mod rename;
mod touched;
mod xattr;

#[cfg(test)]
pub(crate) use attributes::glance;
pub(crate) use attributes::{check_time, get_attr, lookup, named, read_link, set_attr};
pub(crate) use create::{DIRECTORY_SIZE, byte_layout, create, link};
pub(crate) use create_many::create_many;
pub(crate) use defaults::{get_defaults, set_defaults};
pub(crate) use directory::first_slot;
pub(crate) use listing::read_dir;
pub(crate) use open::{close, open, release};
pub(crate) use remove::{rmdir, unlink};
pub(crate) use removed::{Remembered, Removed, removed};
pub(crate) use rename::rename;
pub(crate) use touched::touched;
pub(crate) use xattr::{get_xattr, list_xattr, remove_xattr, set_xattr};

use crate::api::{MAX_NAME, MdError};

/// Refuses an invalid name of an entry.
pub(crate) fn check_name(name: &[u8]) -> Result<(), MdError> {
    if name.len() > MAX_NAME {
        return Err(MdError::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." {
        return Err(MdError::Invalid("not a name for an entry".to_owned()));
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(MdError::Invalid(
            "a name holds no slash and no zero byte".to_owned(),
        ));
    }
    Ok(())
}
