//! Resolves where an entry is made, removed or renamed: a directory of the metadata service and a stored name.

use std::borrow::Cow;

use fuser::Errno;
use slabfs_mdserver::api::{Ino, ROOT};

use crate::call::meaning::{Meaning, meaning};
use crate::mount::errno::{Outcome, refused};
use crate::mount::shared::Shared;
use crate::view::name::HIDDEN;
use crate::view::nodes::Node;

/// The directory behind `parent`.
pub(super) fn directory(shared: &Shared, parent: u64) -> Outcome<Ino> {
    match shared.node(parent)? {
        Node::Plain(ino) => Ok(ino),
        Node::Selection(_) => refused(Errno::ENOTDIR, "a selection is no directory"),
        Node::Hidden(_) | Node::Search(_) | Node::Found(_) | Node::Made(_) | Node::Chunks(_) => {
            refused(Errno::EPERM, "nothing under .slabfs can be changed")
        }
    }
}

/// The directory and the stored name of an entry that is to change. A selection has no entry of its own, and returns
/// `on_selection`.
pub(super) fn entry<'a>(
    shared: &Shared,
    parent: u64,
    name: &'a [u8],
    on_selection: Errno,
) -> Outcome<(Ino, Cow<'a, [u8]>)> {
    let directory = directory(shared, parent)?;
    if directory == ROOT && name == HIDDEN {
        return refused(Errno::EPERM, ".slabfs belongs to the mount");
    }
    match meaning(&shared.client, directory, name)? {
        Meaning::Plain(stored, _) => Ok((directory, stored)),
        Meaning::Selected(..) => refused(
            on_selection,
            "a selection is a view of an object: it cannot be made, renamed or removed (a name that \
             really holds \"@[\" is written with \"@@[\")",
        ),
    }
}
