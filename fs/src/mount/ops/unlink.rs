//! Unlink: removes a name of anything but a directory. An object exists until its last handle is released.

use fuser::{Errno, ReplyEmpty};
use slabfs_mdserver::api::op;

use super::place;
use crate::mount::errno::{Outcome, report};
use crate::mount::shared::Shared;

/// Removes the name and replies.
pub(in crate::mount) fn answer(shared: &Shared, parent: u64, name: &[u8], reply: ReplyEmpty) {
    match remove(shared, parent, name) {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(report("unlink", parent, &failure)),
    }
}

fn remove(shared: &Shared, parent: u64, name: &[u8]) -> Outcome<()> {
    let (parent, name) = place::entry(shared, parent, name, Errno::EPERM)?;
    Ok(shared.client.md().call(op::Unlink {
        parent,
        name: name.into_owned(),
    })?)
}
