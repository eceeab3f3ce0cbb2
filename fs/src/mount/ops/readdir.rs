//! Readdir: lists the entries of a directory, under the names that open them.
//!
//! Offsets are the metadata service's cookies, which start at 16 and stay with an entry as long as it has its name;
//! below them, 1 follows `.` and 2 follows `..`. So there is no state between two calls, and a directory may change
//! while it is read. Entries that do not fit into a reply are requested again by the next call: stored here, they could
//! become stale meanwhile.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::{INodeNo, ReplyDirectory};
use slabfs_mdserver::api::{Attr, DirEntry, Ino, Kind, MdError, ROOT, op};

use super::{search, views};
use crate::mount::attr::file_type;
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::shared::{Caller, Shared};
use crate::view::hidden::Hidden;
use crate::view::made::ChunkDirectory;
use crate::view::name::HIDDEN;
use crate::view::nodes::Node;

/// Entries per request to the metadata service; about as many as fit into a reply.
const PAGE: u32 = 128;

/// The least offset of an entry of a container.
const FIRST_COOKIE: u64 = 16;

/// The `d_ino` of entries whose number is assigned only when they are looked up.
pub(super) const UNNUMBERED: u64 = u32::MAX as u64;

/// Lists `inode` from `offset` on and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    offset: u64,
    mut reply: ReplyDirectory,
) {
    run_listing(shared, caller, inode, move |shared| {
        let listed = list(shared, caller, inode, offset, &mut |listed| {
            let kind = file_type(listed.kind);
            let name = OsStr::from_bytes(listed.name);
            reply.add(INodeNo(listed.inode), listed.next, kind, name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(failure) => reply.error(report("readdir", inode, &failure)),
        }
    });
}

/// Does `work` on this thread, or, if the directory is a search, on the threads for calls, where it blocks no others.
pub(super) fn run_listing(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    work: impl FnOnce(&Shared) + Send + 'static,
) {
    match shared.nodes.get(inode) {
        Some(Node::Search(_)) => {
            let worker = Arc::clone(shared);
            shared
                .calls
                .submit(caller.uid, Box::new(move || work(&worker)));
        }
        _ => work(shared),
    }
}

/// An entry of a listing.
pub(super) struct Listed<'a> {
    pub(super) inode: u64,
    pub(super) name: &'a [u8],
    pub(super) kind: Kind,
    /// The offset at which the listing continues after it.
    pub(super) next: u64,
    pub(super) what: What<'a>,
}

/// The kind of a listed entry.
pub(super) enum What<'a> {
    /// `.` or `..`.
    Dots,
    /// An inode of the metadata service.
    Entry(&'a DirEntry),
    /// A hidden entry, and the attributes of the inode that it mirrors, if any.
    Hidden(Hidden, Option<&'a Attr>),
    /// A link to a search result, and its target.
    Found(&'a [u8]),
    /// An entry of a directory of a view, which is looked up for its attributes.
    InView {
        /// The directory.
        directory: u64,
        /// Its name.
        name: &'a [u8],
    },
}

/// Gives the entries from `offset` on to `add`, until that returns true: the reply is full.
pub(super) fn list(
    shared: &Shared,
    caller: Caller,
    inode: u64,
    offset: u64,
    add: &mut dyn FnMut(Listed<'_>) -> bool,
) -> Outcome<()> {
    let (directory, hidden) = match shared.node(inode)? {
        Node::Search(query) => {
            if dots(shared, inode, Some(Hidden::Find), offset, add)? {
                return Ok(());
            }
            return search::list(shared, caller, (inode, &query), offset, add);
        }
        Node::Plain(ino) => (Some(ino), None),
        Node::Chunks(chunks) => {
            let above = Some(Hidden::ZarrArray(chunks.of));
            if dots(shared, inode, above, offset, add)? {
                return Ok(());
            }
            return list_chunks(shared, inode, &chunks, offset, add);
        }
        Node::Hidden(hidden) if hidden.is_directory() => (hidden.repeats(), Some(hidden)),
        Node::Selection(_) | Node::Hidden(_) | Node::Found(_) | Node::Made(_) => {
            return refused(fuser::Errno::ENOTDIR, "not a directory");
        }
    };
    if dots(shared, inode, hidden, offset, add)? {
        return Ok(());
    }
    let mut offset = offset;
    if let (Some(_), Some(view)) = (directory, hidden) {
        // Before the entries of the container, whose offsets are from 16 on.
        for (at, (name, is_directory)) in (3..).zip(views::fixed(shared, view)?) {
            if offset < at && add(in_view(inode, name, is_directory, at)) {
                return Ok(());
            }
        }
        if let Hidden::ZarrArray(_) = view {
            return Ok(());
        }
        offset = match offset < FIRST_COOKIE {
            true => 0,
            false => offset,
        };
    }
    match (directory, hidden) {
        (Some(directory), hidden) => list_entries(shared, (inode, directory), hidden, offset, add),
        (None, Some(hidden)) => {
            let full = list_fixed(hidden, offset, add);
            let after = hidden.entries().len() as u64 + 3;
            if hidden == Hidden::Top && !full && offset < after {
                add(in_view(inode, views::ROOT_HDF5, false, after));
            }
            Ok(())
        }
        (None, None) => Ok(()),
    }
}

/// Lists `.` and `..` as far as `offset` is before them; returns whether the listing ends here.
fn dots(
    shared: &Shared,
    inode: u64,
    hidden: Option<Hidden>,
    offset: u64,
    add: &mut dyn FnMut(Listed<'_>) -> bool,
) -> Outcome<bool> {
    let mut dot = |inode, name: &[u8], next| {
        add(Listed {
            inode,
            name,
            kind: Kind::Directory,
            next,
            what: What::Dots,
        })
    };
    if offset < 1 && dot(inode, b".", 1) {
        return Ok(true);
    }
    if offset < 2 {
        let parent = match hidden {
            Some(_) => UNNUMBERED,
            None if inode == ROOT.0 => ROOT.0,
            None => {
                let directory = slabfs_model::ObjectId(inode);
                match shared.client.names().md().call(op::Lookup {
                    parent: directory,
                    name: b"..".to_vec(),
                }) {
                    // It was removed while open: it has no more entries.
                    Err(MdError::NotFound) => return Ok(true),
                    parent => parent?.attr.ino.0,
                }
            }
        };
        return Ok(dot(parent, b"..", 2));
    }
    Ok(false)
}

fn list_entries(
    shared: &Shared,
    (inode, directory): (u64, Ino),
    hidden: Option<Hidden>,
    offset: u64,
    add: &mut dyn FnMut(Listed<'_>) -> bool,
) -> Outcome<()> {
    let mut cookie = if offset <= 2 { 0 } else { offset };
    loop {
        let page = match shared.client.read_dir(directory, cookie, PAGE) {
            // It was removed while open: it is empty.
            Err(MdError::NotFound) => return Ok(()),
            page => page?,
        };
        let Some(last) = page.last() else {
            return Ok(());
        };
        cookie = last.cookie;
        for entry in &page {
            // A stored name that the mount uses for itself cannot be opened.
            if directory == ROOT && entry.name == HIDDEN {
                continue;
            }
            let name = &entry.name;
            let attr = &entry.entry.attr;
            let view = hidden.filter(|view| !matches!(view, Hidden::LayoutDirectory(_)));
            if let Some(view) = view {
                let Some((name, named)) = views::named(view, entry) else {
                    continue;
                };
                let (kind, what) = match named {
                    views::Named::File => (
                        Kind::Object,
                        What::InView {
                            directory: inode,
                            name: &name,
                        },
                    ),
                    views::Named::Hidden(below) => {
                        (Kind::Directory, What::Hidden(below, Some(attr)))
                    }
                };
                let full = add(Listed {
                    inode: UNNUMBERED,
                    name: &name,
                    kind,
                    next: entry.cookie,
                    what,
                });
                if full {
                    return Ok(());
                }
                continue;
            }
            let what = match (hidden, Hidden::layout_of(attr.ino, attr.kind)) {
                (None, _) => What::Entry(entry),
                (Some(_), Some(repeated)) => What::Hidden(repeated, Some(attr)),
                (Some(_), None) => continue,
            };
            let full = add(Listed {
                inode: if hidden.is_some() {
                    UNNUMBERED
                } else {
                    attr.ino.0
                },
                name,
                kind: attr.kind,
                next: entry.cookie,
                what,
            });
            if full {
                return Ok(());
            }
        }
    }
}

fn in_view(directory: u64, name: &[u8], is_directory: bool, next: u64) -> Listed<'_> {
    Listed {
        inode: UNNUMBERED,
        name,
        kind: match is_directory {
            true => Kind::Directory,
            false => Kind::Object,
        },
        next,
        what: What::InView { directory, name },
    }
}

/// Lists the indices of chunks.
fn list_chunks(
    shared: &Shared,
    inode: u64,
    chunks: &ChunkDirectory,
    offset: u64,
    add: &mut dyn FnMut(Listed<'_>) -> bool,
) -> Outcome<()> {
    let (count, are_directories) = views::chunks_in(shared, chunks)?;
    for index in offset.saturating_sub(2)..count {
        let name = index.to_string();
        if add(in_view(inode, name.as_bytes(), are_directories, index + 3)) {
            break;
        }
    }
    Ok(())
}

/// Lists the fixed entries; returns whether the reply is full.
fn list_fixed(hidden: Hidden, offset: u64, add: &mut dyn FnMut(Listed<'_>) -> bool) -> bool {
    let skip = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
    for (at, &(name, child)) in hidden.entries().iter().enumerate().skip(skip) {
        let kind = match child.is_directory() {
            true => Kind::Directory,
            false => Kind::Object,
        };
        let full = add(Listed {
            inode: UNNUMBERED,
            name: name.as_bytes(),
            kind,
            next: at as u64 + 3,
            what: What::Hidden(child, None),
        });
        if full {
            return true;
        }
    }
    false
}
