//! Listxattr: slabfs's own names first, then the attributes that the metadata service stores; `trusted.*` for root
//! only, as on other filesystems. A selection lists the attributes that make a copy of its bytes an array again.

use std::sync::Arc;

use fuser::ReplyXattr;
use slabfs_mdserver::api::{Ino, Kind, op};

use super::sized;
use crate::mount::errno::{Outcome, report_inode};
use crate::mount::shared::{Caller, Shared};
use crate::view::attributes::{LISTED_OF_SELECTION, listed};
use crate::view::defaults;
use crate::view::nodes::Node;

/// Replies with the names, each with its terminating zero.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    room: u32,
    reply: ReplyXattr,
) {
    match names(shared, caller, inode) {
        Ok(names) => sized::give(&names, room, reply),
        Err(failure) => reply.error(report_inode("listxattr", inode, &failure)),
    }
}

fn names(shared: &Shared, caller: Caller, inode: u64) -> Outcome<Vec<u8>> {
    let mut list = Vec::new();
    match shared.node(inode)? {
        Node::Plain(ino) => of_inode(shared, caller, ino, &mut list)?,
        Node::Selection(node) => {
            let info = shared.client.getattr(node.object)?.info;
            if info.is_some_and(|info| info.declared) {
                LISTED_OF_SELECTION
                    .iter()
                    .for_each(|name| push(&mut list, name.as_bytes()));
            }
        }
        Node::Hidden(_) | Node::Search(_) | Node::Found(_) | Node::Made(_) | Node::Chunks(_) => {}
    }
    Ok(list)
}

fn of_inode(shared: &Shared, caller: Caller, ino: Ino, list: &mut Vec<u8>) -> Outcome<()> {
    let entry = shared.client.getattr(ino)?;
    if let Some(info) = entry.info {
        listed(&info)
            .iter()
            .for_each(|name| push(list, name.as_bytes()));
    } else if entry.attr.kind == Kind::Directory
        && !shared
            .client
            .names()
            .md()
            .call(op::GetDefaults { ino })?
            .is_empty()
    {
        push(list, defaults::ALL.as_bytes());
    }
    for name in shared.client.md(ino).call(op::ListXattr { ino })? {
        if caller.uid == 0 || !name.starts_with(b"trusted.") {
            push(list, &name);
        }
    }
    Ok(())
}

fn push(list: &mut Vec<u8>, name: &[u8]) {
    list.extend_from_slice(name);
    list.push(0);
}
