//! Fallocate: reserving (which sets the size), punching holes, zeroing. On the pool: it may clear chunks. A file with
//! a view has nothing of that.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};

use crate::mount::errno::report;
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Allocates or deallocates `len` bytes at `offset` as `mode` says, and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    handle: u64,
    offset: u64,
    len: u64,
    mode: i32,
    reply: ReplyEmpty,
) {
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    let Open::File(file) = &*open else {
        return reply.error(Errno::EBADF);
    };
    if file.views().get().is_some() {
        return reply.error(Errno::EOPNOTSUPP);
    }
    let (object, client_handle) = (file.object, file.handle().clone());
    let worker = shared.clone();
    shared.for_bytes().submit(Box::new(move || {
        worker.change_bytes(
            object,
            Some(inode),
            move |_| client_handle.allocate(mode, offset, len),
            move |_, done| match done {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(report("fallocate", inode, &error.into())),
            },
        );
    }));
}
