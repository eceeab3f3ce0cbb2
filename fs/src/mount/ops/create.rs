//! Create: `open` with `O_CREAT` of a name that the kernel does not know. Creating and opening is one request to the
//! metadata service.
//!
//! A selection cannot be created, since that would need dims: `O_CREAT` opens a selection of an object that exists,
//! and returns `ENOENT` where the object does not.

use std::sync::Arc;

use fuser::{Errno, Generation, OpenFlags, ReplyCreate};
use slabfs_mdserver::api::{Create, Kind, SetAttr};

use super::{lookup, open, place};
use crate::call::meaning::{Meaning, meaning};
use crate::mount::errno::{Outcome, refused};
use crate::mount::open_file::Open;
use crate::mount::shared::{Caller, Shared, Shown};

/// Creates `name`, opens it, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    parent: u64,
    name: Vec<u8>,
    mode: u32,
    flags: OpenFlags,
    reply: ReplyCreate,
) {
    let meant = place::directory(shared, parent)
        .and_then(|directory| Ok(meaning(&shared.client, directory, &name)?));
    let made = match meant {
        Err(failure) => Err(failure),
        Ok(Meaning::Selected(..)) => open_selection(shared, caller, parent, &name, flags),
        Ok(Meaning::Plain(..)) => match create(shared, caller, parent, &name, mode, flags) {
            Ok((_, open, true)) => {
                // The truncate may have to wait for a right, which must not block this thread.
                let worker = shared.clone();
                let job =
                    move || give(&worker, (parent, &name), flags, empty(&worker, open), reply);
                return shared.for_bytes().submit(Box::new(job));
            }
            made => made.map(|(shown, open, _)| (shown, open)),
        },
    };
    give(shared, (parent, &name), flags, made, reply);
}

fn give(
    shared: &Arc<Shared>,
    (parent, name): (u64, &[u8]),
    flags: OpenFlags,
    made: Outcome<(Shown, Open)>,
    reply: ReplyCreate,
) {
    let (shown, open) = match made {
        Ok(made) => made,
        Err(failure) => return reply.error(shared.refusal("create", parent, Some(name), &failure)),
    };
    let opener = shared.clone();
    open::give(shared, open, flags, move |number, kernel| {
        // The reply has one timeout for name and attributes; the shorter one is safe for both.
        let ttl = shown.attr_ttl.min(shown.name_ttl);
        let given = reply.created(&ttl, &shown.attr, Generation(0), number, kernel);
        if !given {
            opener.nodes.forget(shown.attr.ino.0, 1);
        }
        given
    });
}

fn create(
    shared: &Arc<Shared>,
    caller: Caller,
    parent: u64,
    name: &[u8],
    mode: u32,
    flags: OpenFlags,
) -> Outcome<(Shown, Open, bool)> {
    let (parent, stored) = place::entry(shared, parent, name, Errno::EINVAL)?;
    let opened = open::mode(flags);
    let create = Create {
        parent,
        name: stored.to_vec(),
        kind: Kind::Object,
        mode: mode & 0o7777,
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        target: None,
        exclusive: flags.0 & libc::O_EXCL != 0,
        open: true,
    };
    let (made, handle) = shared.client.create(create, opened)?;
    let ino = made.entry.attr.ino;
    let entry = shared.client.with_unflushed(made.entry);
    let open = open::file(shared, (ino.0, caller.pid), opened, None, handle);
    // Another client has created it since the kernel's lookup: the kernel does not truncate it, so this must.
    let used = entry.attr.size > 0
        || entry.info.as_ref().is_some_and(|info| info.holds)
        || shared.client.shared() && !made.created;
    let truncate = used && opened.write && flags.0 & libc::O_TRUNC != 0;
    Ok((shared.shown(&entry).named(&stored), open, truncate))
}

/// Truncates an open file to size 0.
fn empty(shared: &Arc<Shared>, open: Open) -> Outcome<(Shown, Open)> {
    let Open::File(file) = &open else {
        return refused(Errno::EINVAL, "not a file");
    };
    match shared
        .client
        .setattr(file.object, SetAttr::default(), Some(0))
    {
        Ok(entry) => Ok((shared.shown(&entry), open)),
        Err(error) => Err(error.into()),
    }
}

/// Opens a selection whose object has appeared since the kernel's lookup.
fn open_selection(
    shared: &Arc<Shared>,
    caller: Caller,
    parent: u64,
    name: &[u8],
    flags: OpenFlags,
) -> Outcome<(Shown, Open)> {
    let shown = lookup::look_up(shared, caller, parent, name)?;
    let inode = shown.attr.ino.0;
    let opened = match flags.0 & libc::O_EXCL {
        0 => open::open(shared, caller, inode, flags),
        _ => refused(
            Errno::EEXIST,
            "a selection of an object that exists, exists",
        ),
    };
    match opened {
        Ok(open) => Ok((shown, open)),
        Err(failure) => {
            shared.nodes.forget(inode, 1);
            Err(failure)
        }
    }
}
