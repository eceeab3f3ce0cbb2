//! Removexattr. slabfs's own attributes of an object cannot be removed: the object always has a dtype, dims, layout
//! and codec.

use fuser::Errno;
use slabfs_mdserver::api::{MdError, op};

use super::setxattr::{foreign, has_default};
use crate::mount::errno::{Outcome, refused};
use crate::mount::shared::Shared;
use crate::view::attributes::{Owner, owner};

/// Removes `name`.
pub(in crate::mount) fn remove(shared: &Shared, inode: u64, name: &[u8]) -> Outcome<()> {
    match owner(name) {
        Owner::Slabfs(_) => refused(
            Errno::EINVAL,
            "an object keeps its dtype, dims, layout and codec; set other values instead",
        ),
        Owner::Default(attribute) => {
            let ino = shared.plain(inode)?;
            if has_default(shared, ino, &attribute)? != Some(true) {
                return Err(MdError::NoData.into());
            }
            let change = attribute.remove();
            shared
                .client
                .names()
                .md()
                .call(op::SetDefaults { ino, change })?;
            Ok(())
        }
        Owner::Stored => {
            let ino = shared.plain(inode)?;
            Ok(shared.client.md(ino).call(op::RemoveXattr {
                ino,
                name: name.to_vec(),
            })?)
        }
        Owner::Unknown | Owner::Security => Err(MdError::NoData.into()),
        Owner::Foreign => foreign(),
    }
}
