//! Lookup: resolves a name in a directory to an inode.
//!
//! The kernel caches the absence of a name as long as its presence (`name_ttl`): programs look for the same missing
//! files again and again. Names of selections and hidden files are never cached.

use std::sync::Arc;

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyEntry};
use slabfs_mdserver::api::{Entry, MdError, ROOT};
use slabfs_model::Selection;

use super::{search, views};
use crate::call::meaning::{Meaning, meaning};
use crate::client::FsError;
use crate::mount::errno::{Failure, Outcome, refused, report};
use crate::mount::shared::{Caller, Shared, Shown, selection_shape};
use crate::view::hidden::Hidden;
use crate::view::name::{HIDDEN, has_mark};
use crate::view::nodes::Node;

/// Replies if that needs no request and no wait; otherwise returns the reply.
pub(in crate::mount) fn answer_from_memory(
    shared: &Shared,
    parent: u64,
    name: &[u8],
    reply: ReplyEntry,
) -> Option<ReplyEntry> {
    let directory = match shared.nodes.get(parent) {
        Some(Node::Plain(ROOT)) if name == HIDDEN => {
            give_entry(shared, &hidden(shared, Hidden::Top, None), reply);
            return None;
        }
        Some(Node::Hidden(directory)) => {
            let Some(child) = directory.child(name).filter(|it| it.repeats().is_none()) else {
                return Some(reply);
            };
            give_entry(shared, &hidden(shared, child, None), reply);
            return None;
        }
        Some(Node::Plain(directory)) => directory,
        _ => return Some(reply),
    };
    // The meaning of a name with `@[` depends on which files exist, which is not known here.
    if has_mark(name) {
        return Some(reply);
    }
    match shared.client.cached_name(directory, name) {
        None => return Some(reply),
        Some(Ok(entry)) => give_entry(shared, &shared.shown(&entry), reply),
        Some(Err(FsError::Md(MdError::NotFound))) if shared.await_names => return Some(reply),
        Some(Err(FsError::Md(MdError::NotFound))) => reply.error(Errno::ENOENT),
        Some(Err(error)) => reply.error(report("lookup", parent, &error.into())),
    }
    None
}

/// Looks `name` up and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    parent: u64,
    name: Vec<u8>,
    reply: ReplyEntry,
) {
    let found = look_up(shared, caller, parent, &name);
    let is_missing = matches!(&found, Err(Failure::Client(FsError::Md(MdError::NotFound))));
    match (shared.await_names && is_missing, shared.nodes.get(parent)) {
        (true, Some(Node::Plain(directory))) => {
            let waiter = shared.clone();
            shared.waits.submit(Box::new(move || {
                let found = match waiter.client.names().await_name(directory, &name) {
                    Ok(true) => look_up(&waiter, caller, parent, &name),
                    Ok(false) => found,
                    Err(error) => Err(error.into()),
                };
                answer_found(&waiter, (parent, &name), found, reply);
            }));
        }
        _ => answer_found(shared, (parent, &name), found, reply),
    }
}

fn answer_found(
    shared: &Shared,
    (parent, name): (u64, &[u8]),
    found: Outcome<Shown>,
    reply: ReplyEntry,
) {
    match found {
        Err(Failure::Client(FsError::Md(MdError::NotFound))) if caches_absence(parent, name) => {
            let ttl = shared.name_ttl();
            if ttl.is_zero() {
                reply.error(Errno::ENOENT);
            } else {
                reply.entry(&ttl, &NOTHING, Generation(0));
            }
        }
        Err(failure) => reply.error(shared.refusal("lookup", parent, Some(name), &failure)),
        found => give(shared, ("lookup", parent), found, reply),
    }
}

/// Replies with the inode that an operation has found or made.
pub(in crate::mount) fn give(
    shared: &Shared,
    (operation, inode): (&'static str, u64),
    found: Outcome<Shown>,
    reply: ReplyEntry,
) {
    match found {
        Ok(shown) => give_entry(shared, &shown, reply),
        Err(failure) => reply.error(report(operation, inode, &failure)),
    }
}

/// Replies with an inode; takes the counted lookup of a virtual node back if the reply came too late.
fn give_entry(shared: &Shared, shown: &Shown, reply: ReplyEntry) {
    let Shown {
        attr,
        attr_ttl,
        name_ttl,
    } = shown;
    if !reply.entry_with_ttls(attr_ttl, name_ttl, attr, Generation(0)) {
        shared.nodes.forget(attr.ino.0, 1);
    }
}

/// Inode number 0 means that the name does not exist.
const NOTHING: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: std::time::UNIX_EPOCH,
    mtime: std::time::UNIX_EPOCH,
    ctime: std::time::UNIX_EPOCH,
    crtime: std::time::UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: 0,
    flags: 0,
};

/// Whether the kernel may cache the absence of a name: it must be that of a stored name. A missing object of a
/// selection, or a hidden entry, may appear without the kernel being notified of that name.
fn caches_absence(parent: u64, name: &[u8]) -> bool {
    parent < crate::view::nodes::FIRST_VIRTUAL && !has_mark(name)
}

/// Resolves `name` in `parent`; counts a lookup if the result is a virtual node.
pub(super) fn look_up(shared: &Shared, caller: Caller, parent: u64, name: &[u8]) -> Outcome<Shown> {
    match shared.node(parent)? {
        Node::Plain(ROOT) if name == HIDDEN => Ok(hidden(shared, Hidden::Top, None)),
        Node::Plain(directory) => match meaning(&shared.client, directory, name)? {
            Meaning::Plain(_, Some(entry)) => Ok(shared.shown(&entry).named(name)),
            Meaning::Plain(stored, None) => Ok(shared
                .shown(&shared.client.lookup(directory, &stored)?)
                .named(name)),
            Meaning::Selected(entry, selection) => look_up_selection(shared, &entry, selection),
        },
        Node::Selection(_) => refused(Errno::ENOTDIR, "a selection is no directory"),
        Node::Hidden(Hidden::Find) => search::look_up_query(shared, name),
        Node::Search(query) => search::look_up_found(shared, caller, &query, name),
        Node::Found(_) => refused(Errno::ENOTDIR, "a link is no directory"),
        Node::Made(_) => refused(Errno::ENOTDIR, "a file is no directory"),
        Node::Chunks(chunks) => views::look_up_chunk(shared, &chunks, name),
        Node::Hidden(Hidden::Top) if name == views::ROOT_HDF5 => views::root(shared),
        Node::Hidden(
            view @ (Hidden::NpyDirectory(_)
            | Hidden::Hdf5Directory(_)
            | Hidden::ZarrDirectory(_)
            | Hidden::ZarrGroup(_)
            | Hidden::ZarrArray(_)),
        ) => views::look_up(shared, view, name),
        Node::Hidden(directory) => look_up_hidden(shared, directory, name),
    }
}

fn look_up_selection(shared: &Shared, entry: &Entry, selection: Selection) -> Outcome<Shown> {
    // Checked before the node is counted: the kernel never forgets a node that it was not given.
    let node = crate::view::nodes::SelectionNode {
        object: entry.attr.ino,
        selection,
    };
    selection_shape(&node, entry)?;
    let (number, node) = shared.nodes.look_up_selection(node.object, node.selection);
    shared
        .shown_selection(number, &node, entry)
        .inspect_err(|_| shared.nodes.forget(number, 1))
}

fn look_up_hidden(shared: &Shared, directory: Hidden, name: &[u8]) -> Outcome<Shown> {
    if let Some(child) = directory.child(name) {
        let repeats = match child.repeats() {
            Some(ino) => Some(shared.client.getattr(ino)?.attr),
            None => None,
        };
        return Ok(hidden(shared, child, repeats.as_ref()));
    }
    let Hidden::LayoutDirectory(repeated) = directory else {
        return Err(MdError::NotFound.into());
    };
    let Meaning::Plain(stored, _) = meaning(&shared.client, repeated, name)? else {
        return refused(
            Errno::EINVAL,
            "a layout is that of the object, not of a selection",
        );
    };
    let entry = shared.client.lookup(repeated, &stored)?;
    let Some(child) = Hidden::layout_of(entry.attr.ino, entry.attr.kind) else {
        return Err(MdError::NotFound.into());
    };
    Ok(hidden(shared, child, Some(&entry.attr)))
}

pub(super) fn hidden(
    shared: &Shared,
    hidden: Hidden,
    repeats: Option<&slabfs_mdserver::api::Attr>,
) -> Shown {
    let number = shared.nodes.look_up_hidden(hidden);
    shared.shown_hidden(number, hidden, repeats)
}
