//! Ioctl: parts of a request to `.slabfs/call`, for mounts on which nothing can be opened for writing.
//!
//! `_IOW('s', 1, char[N])` with 1 to 16383 bytes adds them to the request of this open; the reply is read as
//! after writes. Nothing else is known.

use std::sync::Arc;

use fuser::{Errno, ReplyIoctl};

use crate::mount::errno::report;
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Direction, type and number of the command; its size is that of the bytes.
const ADD: u32 = 1 << 30 | (b's' as u32) << 8 | 1;
/// The bits of a command that are its size.
const SIZE: u32 = 0x3fff << 16;

/// Takes a part of a request and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    handle: u64,
    command: u32,
    data: &[u8],
    reply: ReplyIoctl,
) {
    let open = shared.handles.get(handle);
    let Some(Open::Call(call)) = open.as_deref().filter(|_| command & !SIZE == ADD) else {
        return reply.error(Errno::ENOTTY);
    };
    match call.add(data) {
        Ok(()) => reply.ioctl(0, &[]),
        Err(failure) => reply.error(report("call", 0, &failure)),
    }
}
