//! Readdirplus: a listing that looks each entry up on the way, for `ls -l` and `find`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{FileAttr, Generation, INodeNo, ReplyDirectoryPlus};
use slabfs_mdserver::api::{Attr, Time};

use super::readdir::{Listed, list};
use crate::mount::attr::file_attr;
use crate::mount::errno::report;
use crate::mount::shared::Shared;

/// Lists `inode` from `offset` on, with attributes, and replies.
pub(in crate::mount) fn answer(
    shared: &Shared,
    inode: u64,
    offset: u64,
    mut reply: ReplyDirectoryPlus,
) {
    let listed = list(shared, inode, offset, &mut |listed| {
        add(shared, &listed, &mut reply)
    });
    match listed {
        Ok(()) => reply.ok(),
        Err(failure) => reply.error(report("readdirplus", inode, &failure)),
    }
}

fn add(shared: &Shared, listed: &Listed<'_>, reply: &mut ReplyDirectoryPlus) -> bool {
    let name = OsStr::from_bytes(listed.name);
    let Some(entry) = listed.entry else {
        // Attributes with inode number 0 are none: the kernel counts no lookup and just shows the name.
        return reply.add(
            INodeNo(listed.inode),
            listed.next,
            name,
            &Duration::ZERO,
            &unnumbered(listed),
            Generation(0),
        );
    };
    let shown = shared.shown(&shared.client.with_unflushed(entry.entry.clone()));
    let ttl = shown.attr_ttl.min(shown.name_ttl);
    reply.add(
        shown.attr.ino,
        listed.next,
        name,
        &ttl,
        &shown.attr,
        Generation(0),
    )
}

/// What of an entry that is not looked up is shown: its type.
fn unnumbered(listed: &Listed<'_>) -> FileAttr {
    let attr = Attr {
        ino: slabfs_model::ObjectId(0),
        kind: listed.kind,
        mode: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        stored: 0,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        crtime: Time::default(),
        change: 0,
    };
    file_attr(0, &attr)
}
