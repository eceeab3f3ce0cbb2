//! Flush: `close` of a file descriptor. What the handle wrote goes out, and an error that a write could not
//! tell is told. Nothing to write: answered at once; otherwise on the pool.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};

use crate::mount::errno::report;
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::shared::Shared;

/// Flushes and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, inode: u64, handle: u64, reply: ReplyEmpty) {
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    match &*open {
        Open::Text(_) | Open::Call(_) => reply.ok(),
        Open::File(file) if !file.has_dirty() => flush(file, inode, reply),
        Open::File(_) => {
            let open = open.clone();
            shared.pool.submit(Box::new(move || {
                if let Open::File(file) = &*open {
                    flush(file, inode, reply);
                }
            }));
        }
    }
}

fn flush(file: &OpenFile, inode: u64, reply: ReplyEmpty) {
    match file.flush() {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(report("flush", inode, &error.into())),
    }
}
