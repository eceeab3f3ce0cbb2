//! Getxattr. `user.slabfs.*` describes the object; the metadata service stores other attributes.

use std::sync::Arc;

use fuser::{Errno, ReplyXattr};
use slabfs_mdserver::api::{ArrayInfo, Ino, MdError, op};
use slabfs_model::Layout;

use super::setxattr::foreign;
use super::sized;
use crate::mount::errno::{Outcome, report_inode};
use crate::mount::shared::{Shared, selection_shape};
use crate::view::attributes::{Attribute, Owner, owner};
use crate::view::nodes::{Node, SelectionNode};

/// The errno for names that never exist. The kernel asks for `security.capability` very often, so that must not cost a
/// request.
pub(in crate::mount) fn known_absent(name: &[u8]) -> Option<Errno> {
    match owner(name) {
        Owner::Security => Some(Errno::ENODATA),
        Owner::Foreign => Some(Errno::EOPNOTSUPP),
        Owner::Unknown => Some(Errno::ENODATA),
        Owner::Slabfs(_) | Owner::Default(_) | Owner::Stored => None,
    }
}

/// Replies with the value of `name`.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    name: &[u8],
    room: u32,
    reply: ReplyXattr,
) {
    match value(shared, inode, name) {
        Ok(value) => sized::give(&value, room, reply),
        Err(failure) => reply.error(report_inode("getxattr", inode, &failure)),
    }
}

fn value(shared: &Arc<Shared>, inode: u64, name: &[u8]) -> Outcome<Vec<u8>> {
    let none = || Err(MdError::NoData.into());
    match (shared.node(inode)?, owner(name)) {
        (Node::Plain(ino), Owner::Slabfs(attribute)) => of_object(shared, ino, attribute),
        (Node::Plain(ino), Owner::Default(attribute)) => {
            match shared.client.names().md().call(op::GetDefaults { ino }) {
                Ok(defaults) => attribute.read(&defaults).ok_or(MdError::NoData.into()),
                Err(MdError::NotDirectory) => none(),
                Err(error) => Err(error.into()),
            }
        }
        (Node::Plain(ino), Owner::Stored) => Ok(shared.client.md(ino).call(op::GetXattr {
            ino,
            name: name.to_vec(),
        })?),
        (Node::Selection(node), Owner::Slabfs(attribute)) => of_selection(shared, &node, attribute),
        (_, Owner::Foreign) => foreign(),
        _ => none(),
    }
}

fn of_object(shared: &Arc<Shared>, ino: Ino, attribute: Attribute) -> Outcome<Vec<u8>> {
    let entry = shared.client.getattr(ino)?;
    let Some(info) = entry.info else {
        return Err(MdError::NoData.into());
    };
    let (attr, chunks) = match attribute.needs_chunks() {
        true => {
            // Counting the chunks flushes, so the stored size and the change counter are read after that.
            let chunks = chunks(shared, ino, &info)?;
            (shared.client.getattr(ino)?.attr, chunks)
        }
        false => (entry.attr, 0),
    };
    let value = attribute.read(&attr, &info, chunks);
    value.ok_or_else(|| MdError::NoData.into())
}

/// The number of an object's chunks; computed for a grid that is too large to list.
fn chunks(shared: &Arc<Shared>, ino: Ino, info: &ArrayInfo) -> Outcome<u64> {
    let view = shared.client.of(ino).own_layout(ino)?;
    match &info.layout {
        Layout::Grid(chunk) if !view.complete => Ok(info
            .dims
            .iter()
            .zip(chunk)
            .map(|(dim, chunk)| dim.div_ceil((*chunk).max(1)))
            .fold(1, u64::saturating_mul)),
        _ => Ok(view.chunks.len() as u64),
    }
}

fn of_selection(shared: &Shared, node: &SelectionNode, attribute: Attribute) -> Outcome<Vec<u8>> {
    let entry = shared.client.getattr(node.object)?;
    let shape = selection_shape(node, &entry)?;
    entry
        .info
        .and_then(|info| attribute.read_selection(&info, &shape.dims))
        .ok_or_else(|| MdError::NoData.into())
}
