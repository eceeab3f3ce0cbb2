//! The directories that a request changes: names in them, or their attributes.
//!
//! A request that is finally refused may be included: then cached entries are dropped although nothing changes.

use super::attributes::glance;
use crate::api::{Ino, Kind, Op};
use crate::core::Core;
use crate::rights::Touched;

/// The directories that `op` changes. An inode that is no directory may be among them.
pub(crate) fn touched(core: &Core, op: &Op) -> Touched {
    let mut touched = Touched::default();
    let moves = matches!(op, Op::Rmdir(_) | Op::Rename(_));
    op.each_changed(|ino, name| {
        touched.directories.push(ino);
        if let (true, Some(name)) = (moves, name) {
            touched.moved.extend(directory(core, ino, name));
        }
    });
    touched.directories.sort_unstable();
    touched.directories.dedup();
    touched
}

/// The directory that currently has a name, if it is one.
fn directory(core: &Core, parent: Ino, name: &[u8]) -> Option<Ino> {
    let found = match glance(core, parent, name) {
        Some(found) => found.map(|inode| inode.entry()),
        None => super::named(core, parent, name),
    };
    // What cannot be looked up cannot be moved either: the request itself returns the error.
    let attr = found.ok()?.attr;
    (attr.kind == Kind::Directory).then_some(attr.ino)
}
