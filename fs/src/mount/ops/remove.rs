//! Unlink and rmdir: remove a name of anything but a directory, and an empty directory. An object exists until its last
//! handle is released.

use fuser::Errno;
use slabfs_mdserver::api::op;

use super::place;
use crate::mount::errno::Outcome;
use crate::mount::shared::Shared;

/// Removes a name of anything but a directory.
pub(in crate::mount) fn unlink(shared: &Shared, parent: u64, name: &[u8]) -> Outcome<()> {
    let (parent, name) = place::entry(shared, parent, name, Errno::EPERM)?;
    let name = name.into_owned();
    Ok(shared.client.unlink(parent, name)?)
}

/// Removes an empty directory.
pub(in crate::mount) fn rmdir(shared: &Shared, parent: u64, name: &[u8]) -> Outcome<()> {
    let (parent, name) = place::entry(shared, parent, name, Errno::EPERM)?;
    let name = name.into_owned();
    Ok(shared
        .client
        .names()
        .md()
        .call(op::Rmdir { parent, name })?)
}
