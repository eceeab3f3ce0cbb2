//! Flush: `close` of a file descriptor. Writes back the handle's dirty data and returns a deferred write error. Then
//! the process's record locks on the file end, as POSIX requires, whichever descriptor they were taken through.
//!
//! A `flock` lock ends with the last descriptor of the open file, which the kernel reports only after the `close` has
//! returned. So the lock server is notified here that the lock may end soon. If there is neither dirty data nor a
//! lock, the request is answered at once; otherwise on the pool.

use std::sync::Arc;

use fuser::{Errno, LockOwner, ReplyEmpty};
use slabfs_mdserver::api::{self, LockKind};

use crate::mount::errno::end;
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Flushes and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    handle: u64,
    owner: LockOwner,
    reply: ReplyEmpty,
) {
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    let Open::File(file) = &*open else {
        return reply.ok();
    };
    let owner = api::LockOwner(owner.0);
    let client = shared.client.of(file.object);
    let locks = client.closing_records(&file.lock_file(), owner);
    let ending = client.file_locks(&file.lock_file(), file.id);
    if !file.has_dirty() && !locks && ending.is_empty() {
        return end("flush", inode, file.flush(), reply);
    }
    let (open, shared_there) = (open.clone(), shared.clone());
    shared.pool.submit(Box::new(move || {
        let Open::File(file) = &*open else {
            return reply.ok();
        };
        let flushed = file.flush();
        let client = shared_there.client.of(file.object);
        if locks {
            // After the flush: the next holder of the lock must see the writes made under it.
            client.unlock_all(file.lock_file(), LockKind::Record, owner);
        }
        for owner in ending {
            client.ends_soon(file.lock_file(), owner);
        }
        end("flush", inode, flushed, reply);
    }));
}
