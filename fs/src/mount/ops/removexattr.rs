//! Removexattr. slabfs's own attributes of an object cannot be removed: the object always has a dtype, dims, layout
//! and codec.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};
use slabfs_mdserver::api::{MdError, op};

use crate::client::FsError;
use crate::mount::errno::{Failure, Outcome, refused, report_inode};
use crate::mount::shared::Shared;
use crate::view::attributes::{Owner, owner};

/// Removes `name` and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, inode: u64, name: &[u8], reply: ReplyEmpty) {
    match remove(shared, inode, name) {
        Ok(()) => reply.ok(),
        Err(Failure::Client(FsError::Md(MdError::NoData))) => reply.error(Errno::ENODATA),
        Err(failure) => reply.error(report_inode("removexattr", inode, &failure)),
    }
}

fn remove(shared: &Shared, inode: u64, name: &[u8]) -> Outcome<()> {
    match owner(name) {
        Owner::Slabfs(_) => refused(
            Errno::EINVAL,
            "an object keeps its dtype, dims, layout and codec; set other values instead",
        ),
        Owner::Default(attribute) => {
            let ino = shared.plain(inode)?;
            let md = shared.client.md();
            let there = match md.call(op::GetDefaults { ino }) {
                Ok(defaults) => attribute.read(&defaults).is_some(),
                Err(MdError::NotDirectory) => false,
                Err(error) => return Err(error.into()),
            };
            if !there {
                return Err(MdError::NoData.into());
            }
            md.call(op::SetDefaults {
                ino,
                change: attribute.remove(),
            })?;
            Ok(())
        }
        Owner::Stored => {
            let ino = shared.plain(inode)?;
            Ok(shared.client.md().call(op::RemoveXattr {
                ino,
                name: name.to_vec(),
            })?)
        }
        Owner::Unknown | Owner::Security => Err(MdError::NoData.into()),
        Owner::Foreign => refused(
            Errno::EOPNOTSUPP,
            "attributes are user.* and trusted.* here",
        ),
    }
}
