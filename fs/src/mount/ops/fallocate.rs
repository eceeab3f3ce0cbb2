//! Fallocate: reserving (which sets the size), punching holes, zeroing. On the pool, since it may clear chunks. Not
//! supported on a file with a view.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};

use crate::mount::errno::end;
use crate::mount::open_file::Open;
use crate::mount::shared::{Caller, Shared};

/// Allocates or deallocates `len` bytes at `offset` as `mode` says, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
    inode: u64,
    handle: u64,
    (offset, len): (u64, u64),
    mode: i32,
    reply: ReplyEmpty,
) {
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    let Open::File(file) = &*open else {
        return reply.error(Errno::EBADF);
    };
    if file.views().get().is_some() || file.chunks().is_some() {
        return reply.error(Errno::EOPNOTSUPP);
    }
    let (object, client_handle) = (file.object, file.handle().clone());
    shared.change_on_pool(
        object,
        Some(inode),
        move |shared| {
            client_handle.allocate(mode, offset, len)?;
            Ok(((), shared.drop_setid_unmarked(object, caller)?))
        },
        move |done| end("fallocate", inode, done, reply),
    );
}
