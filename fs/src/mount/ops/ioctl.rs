//! Ioctl: views of open files, and parts of a request to `.slabfs/call` for read-only mounts.
//!
//! - `_IOW('s', 1, char[N])` on `.slabfs/call`, with 1 to 16383 bytes, appends them to the request of this open; the
//!   reply is read as after writes.
//! - `_IOW('s', 2, …)`, `_IOWR('s', 3, …)` and `_IO('s', 4)` on an object set, get and remove a view;
//!   `fs/capi/include/slabfs_ioctl.h` defines their arguments.
//! - `_IO('s', 5)` on an object makes the open file one of encoded chunks (`chunks_file.rs`).
//!
//! Other commands are `ENOTTY`. Nothing here blocks.

use std::sync::Arc;

use fuser::{Errno, ReplyIoctl};

use crate::mount::chunks_file::ChunksFile;
use crate::mount::errno::{Failure, Outcome, refused, report};
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::shared::{Caller, Shared};
use crate::view::pattern::{PART, Part};

/// Direction, type and number of the commands, without the size of their argument.
const WRITE: u32 = 1 << 30;
const READ: u32 = 2 << 30;
const KIND: u32 = (b's' as u32) << 8;
const ADD: u32 = WRITE | KIND | 1;
const SET_VIEW: u32 = WRITE | KIND | 2;
const GET_VIEW: u32 = READ | WRITE | KIND | 3;
const CLEAR_VIEW: u32 = KIND | 4;
const CHUNKS: u32 = KIND | 5;
/// The bits of a command that hold the size.
const SIZE: u32 = 0x3fff << 16;

/// Executes the command and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    handle: u64,
    command: u32,
    data: &[u8],
    reply: ReplyIoctl,
) {
    let open = shared.handles.get(handle);
    let done = match (open.as_deref(), command & !SIZE) {
        (Some(Open::Call(call)), ADD) => call.add(data).map(|()| Vec::new()),
        (Some(Open::File(file)), _) if file.inode != inode => return reply.error(Errno::ENOTTY),
        (Some(Open::File(file)), SET_VIEW) => set_view(shared, caller, file, data),
        (Some(Open::File(file)), GET_VIEW) => get_view(file, data),
        (Some(Open::File(file)), CHUNKS) => set_chunks(shared, caller, file),
        (Some(Open::File(file)), CLEAR_VIEW) => {
            file.views().clear();
            Ok(Vec::new())
        }
        _ => return reply.error(Errno::ENOTTY),
    };
    match done {
        Ok(out) => reply.ioctl(0, &out),
        Err(failure) => reply.error(report("ioctl", inode, &failure)),
    }
}

/// Refuses an open file that reads pages: these are of the object.
fn bypasses_pages(file: &OpenFile) -> Outcome<()> {
    match file.has_pages() {
        true => refused(
            Errno::EOPNOTSUPP,
            "this file was opened for reading only and uses the page cache; open it with O_DIRECT",
        ),
        false => Ok(()),
    }
}

fn set_view(shared: &Shared, caller: Caller, file: &OpenFile, data: &[u8]) -> Outcome<Vec<u8>> {
    bypasses_pages(file)?;
    if file.is_selection() {
        return refused(
            Errno::EINVAL,
            "this is a selection already; set the view on the object itself",
        );
    }
    let part = Part::read(data)?;
    let elem = file.handle().elem();
    file.views()
        .take(part, elem, &shared.view_room, caller.uid)?;
    Ok(Vec::new())
}

fn set_chunks(shared: &Shared, caller: Caller, file: &OpenFile) -> Outcome<Vec<u8>> {
    bypasses_pages(file)?;
    if file.is_selection() {
        return refused(
            Errno::EINVAL,
            "this is a selection; encoded chunks are those of the object itself",
        );
    }
    file.set_chunks(ChunksFile::new(&shared.view_room, caller.uid));
    Ok(Vec::new())
}

/// Returns a part of the view, starting at the node that the program names.
fn get_view(file: &OpenFile, data: &[u8]) -> Outcome<Vec<u8>> {
    let asked = Part::read(data)?;
    match file.views().get() {
        Some(view) => Ok(view.part(asked.first)),
        None => Err(Failure::Refused {
            errno: Errno::ENODATA,
            why: "the file has no view",
        }),
    }
}

/// A part fits into one reply.
const _: () = assert!(PART < 1 << 14);
