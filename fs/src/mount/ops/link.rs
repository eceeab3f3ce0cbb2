//! Link: adds a name for an inode. A selection cannot have further names (`EPERM`, as for directories).

use fuser::Errno;

use super::place;
use crate::mount::errno::{Outcome, refused};
use crate::mount::shared::{Shared, Shown};
use crate::view::nodes::Node;

/// Adds the name.
pub(in crate::mount) fn link(
    shared: &Shared,
    inode: u64,
    parent: u64,
    name: &[u8],
) -> Outcome<Shown> {
    let Node::Plain(ino) = shared.node(inode)? else {
        return refused(Errno::EPERM, "only objects can have a second name");
    };
    let (parent, stored) = place::entry(shared, parent, name, Errno::EINVAL)?;
    let entry = shared.client.link(ino, parent, stored.to_vec())?;
    Ok(shared.shown(&entry).named(&stored))
}
