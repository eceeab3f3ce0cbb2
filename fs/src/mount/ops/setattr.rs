//! Setattr: `chmod`, `chown`, `utimes`, `truncate`.
//!
//! On a selection, mode, owner and times are the object's. Its size is fixed: setting it to 0 (as `O_TRUNC` does) or
//! to its current size has no effect, and any other size is `EINVAL`.

use std::sync::Arc;

use fuser::{Errno, ReplyAttr, TimeOrNow};
use slabfs_mdserver::api::{Entry, Ino, SetAttr};

use super::getattr;
use crate::client::FsError;
use crate::mount::attr::set_time;
use crate::mount::errno::{Outcome, refused};
use crate::mount::inval::Forget;
use crate::mount::open_file::Open;
use crate::mount::pool::Job;
use crate::mount::shared::{Caller, Shared, Shown, selection_shape};
use crate::view::nodes::{Node, SelectionNode};

/// The attributes to set.
pub(in crate::mount) struct Wanted {
    pub(in crate::mount) mode: Option<u32>,
    pub(in crate::mount) uid: Option<u32>,
    pub(in crate::mount) gid: Option<u32>,
    pub(in crate::mount) size: Option<u64>,
    pub(in crate::mount) atime: Option<TimeOrNow>,
    pub(in crate::mount) mtime: Option<TimeOrNow>,
    /// The file handle, of `ftruncate`.
    pub(in crate::mount) handle: Option<u64>,
}

impl Wanted {
    fn attributes(&self) -> SetAttr {
        SetAttr {
            mode: self.mode.map(|mode| mode & 0o7777),
            uid: self.uid,
            gid: self.gid,
            atime: self.atime.map(set_time),
            mtime: self.mtime.map(set_time),
        }
    }
}

/// Sets the attributes and replies with the new attributes of the inode.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    wanted: Wanted,
    reply: ReplyAttr,
) {
    match shared.node(inode) {
        Ok(Node::Plain(ino)) => on_object(shared, caller, ino, &wanted, reply),
        Ok(Node::Selection(node)) => {
            let set = on_selection(shared, inode, &node, &wanted);
            let there = shared.clone();
            // The plain inode's mode, owner and times have changed without the kernel's knowledge.
            shared.forget_attributes(node.object.0, move || give(&there, inode, set, reply));
        }
        Ok(
            Node::Hidden(_) | Node::Search(_) | Node::Found(_) | Node::Made(_) | Node::Chunks(_),
        ) => give(
            shared,
            inode,
            refused(Errno::EPERM, "nothing under .slabfs can be changed"),
            reply,
        ),
        Err(failure) => give(shared, inode, Err(failure), reply),
    }
}

fn give(shared: &Shared, inode: u64, set: Outcome<Shown>, reply: ReplyAttr) {
    match set {
        Err(failure) => reply.error(shared.refusal("setattr", inode, None, &failure)),
        set => getattr::give("setattr", inode, set, reply),
    }
}

fn on_object(shared: &Arc<Shared>, caller: Caller, ino: Ino, wanted: &Wanted, reply: ReplyAttr) {
    let (set, size) = (wanted.attributes(), wanted.size);
    if size.is_none() {
        let entry = shared.client.setattr(ino, set, None);
        let entry = shared.or_removed(ino, Some(set), entry);
        return give(shared, ino.0, shown(shared, entry), reply);
    }
    let handle = wanted.handle;
    shared.change_bytes(
        ino,
        Some(ino.0),
        move |shared| {
            let size = match size {
                Some(0) if defers(shared, caller, ino, handle)? => None,
                size => size,
            };
            let entry = shared.client.setattr(ino, set, size)?;
            match shared.drop_setid_unmarked(ino, caller)? {
                true => shared.client.getattr(ino),
                false => Ok(entry),
            }
        },
        move |shared, entry| {
            // The kernel drops its pages if the size has changed. That of an object with fixed dims has not.
            let stale = match &entry {
                Ok(entry) => size.is_some_and(|size| size != entry.attr.size),
                Err(_) => false,
            };
            let (there, shown) = (shared.clone(), shown(shared, entry));
            let answer = move || give(&there, ino.0, shown, reply);
            if !stale || shared.families.mapped(ino, None).is_empty() {
                return answer();
            }
            // Until it has the reply the kernel writes no modified page back, so these cannot be dropped before.
            let modified = shared.client.of(ino).distrust_pages(ino);
            let then: Option<Job> = match modified {
                true => {
                    answer();
                    None
                }
                false => Some(Box::new(answer)),
            };
            shared.inval.forget(vec![ino.0], Forget::Pages, then);
        },
    );
}

/// Whether a truncate to 0 is deferred until the first write (`client/object/deferred.rs`). The kernel sends the
/// truncate of an `open` with `O_TRUNC` after the open, without a handle: it belongs to the file that the caller opened
/// last; one with a handle is an `ftruncate`. Not while the kernel has pages of the object: they would have to be dropped
/// when the truncate takes effect.
fn defers(shared: &Shared, caller: Caller, ino: Ino, handle: Option<u64>) -> Result<bool, FsError> {
    // A caller in a PID namespace that the mount does not see has no number.
    if handle.is_some()
        || caller.pid == 0
        || !shared.client.of(ino).defers_truncate(ino)
        || !shared.families.mapped(ino, None).is_empty()
    {
        return Ok(false);
    }
    let open = shared.handles.newest(|open| match open {
        Open::File(file) if file.inode == ino.0 && file.opener == caller.pid => Some(file.id),
        _ => None,
    });
    match open.as_deref() {
        Some(Open::File(file)) => file.handle().defer_truncate(),
        _ => Ok(false),
    }
}

fn shown(shared: &Shared, entry: Result<Entry, crate::client::FsError>) -> Outcome<Shown> {
    Ok(shared.shown(&entry?))
}

fn on_selection(
    shared: &Shared,
    inode: u64,
    node: &SelectionNode,
    wanted: &Wanted,
) -> Outcome<Shown> {
    let mut entry = shared.client.getattr(node.object)?;
    if let Some(size) = wanted.size {
        let own = selection_shape(node, &entry)?.bytes;
        if size != 0 && size != own {
            return refused(
                Errno::EINVAL,
                "a selection keeps its size; `slabfs set --dims` changes that of the object",
            );
        }
    }
    let set = wanted.attributes();
    if set != SetAttr::default() {
        entry = shared.client.setattr(node.object, set, None)?;
    }
    shared.shown_selection(inode, node, &entry)
}
