//! Which directories a request changes: names in them, or their attributes.
//!
//! A request that is refused in the end may be named here too: then somebody forgets what stays so.

use std::collections::BTreeSet;

use super::attributes::glance;
use crate::api::{Ino, Kind, MdError, Op, Reply};
use crate::core::Core;
use crate::rights::Touched;

/// The directories that `op` changes. An inode that is no directory may be among them.
pub(crate) fn touched(core: &Core, op: &Op) -> Touched {
    let mut touched = Touched::default();
    let directories = &mut touched.directories;
    match op {
        Op::Create(create) => directories.push(create.parent),
        Op::CreateMany { objects } => {
            let parents: BTreeSet<Ino> = objects.iter().map(|object| object.parent).collect();
            directories.extend(parents);
        }
        Op::Link { parent, .. } | Op::Unlink { parent, .. } => directories.push(*parent),
        Op::Rmdir { parent, name } => {
            directories.push(*parent);
            touched.moved.extend(directory(core, *parent, name));
        }
        Op::Rename {
            parent,
            name,
            new_parent,
            new_name,
            ..
        } => {
            directories.push(*parent);
            if parent != new_parent {
                directories.push(*new_parent);
            }
            let ends = [(*parent, name), (*new_parent, new_name)];
            let moved = ends.map(|(parent, name)| directory(core, parent, name));
            touched.moved.extend(moved.into_iter().flatten());
        }
        Op::SetAttr { ino, .. }
        | Op::SetXattr { ino, .. }
        | Op::RemoveXattr { ino, .. }
        | Op::SetDefaults { ino, .. } => directories.push(*ino),
        Op::Tag { changes } => {
            let inos: BTreeSet<Ino> = changes.iter().map(|change| change.ino).collect();
            directories.extend(inos);
        }
        _ => {}
    }
    touched
}

/// The directory that has a name now, if it is one.
fn directory(core: &Core, parent: Ino, name: &[u8]) -> Option<Ino> {
    let found = match glance(core, parent, name) {
        Some(found) => found.map(|inode| inode.entry()),
        None => match super::lookup(core, parent, name) {
            Ok(Reply::Entry(entry)) => Ok(entry),
            Ok(_) => Err(MdError::NotFound),
            Err(error) => Err(error),
        },
    };
    // What cannot be looked up cannot be moved either: the request itself finds out why.
    let attr = found.ok()?.attr;
    (attr.kind == Kind::Directory).then_some(attr.ino)
}
