//! Release: the last descriptor and the last mapping of a handle are gone. Nobody waits for the answer and
//! nobody hears an error, so one is only logged. Locks of the open file description end with it: those of
//! `flock`, and of `fcntl` those that are not a process's. The kernel names the owner of the first only; so
//! all end that were taken through the handle and are still there, which are just these.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuser::ReplyEmpty;

use crate::mount::errno::report;
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::shared::Shared;

/// Ends the handle and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, inode: u64, handle: u64, reply: ReplyEmpty) {
    end(shared, inode, handle, move || reply.ok());
}

/// Ends a handle that the kernel has not got: whoever opened it was killed meanwhile.
pub(super) fn take_back(shared: &Arc<Shared>, inode: u64, handle: u64) {
    end(shared, inode, handle, || ());
}

fn end(shared: &Arc<Shared>, inode: u64, handle: u64, then: impl FnOnce() + Send + 'static) {
    let Some(open) = shared.handles.remove(handle) else {
        return then();
    };
    let locks = match &*open {
        Open::File(file) => shared.client.closing_locks(&file.lock_file(), file.id),
        Open::Text(_) | Open::Call(_) => Vec::new(),
    };
    let quick = match &*open {
        Open::Text(_) => true,
        Open::Call(_) => {
            shared.calls_open.fetch_sub(1, Ordering::AcqRel);
            true
        }
        Open::File(file) => shared.client.is_near() && !file.has_dirty() && locks.is_empty(),
    };
    let end = {
        let shared = shared.clone();
        move || {
            if let Open::File(file) = &*open {
                release(&shared, file, inode);
                for (kind, owner) in locks {
                    shared.client.unlock_all(file.lock_file(), kind, owner);
                }
            }
            then();
        }
    };
    if quick {
        end();
    } else {
        shared.pool.submit(Box::new(end));
    }
}

/// Ends a file, also one whose session ended without a release.
pub(in crate::mount) fn release(shared: &Shared, file: &OpenFile, inode: u64) {
    if let Err(error) = file.release() {
        report("release", inode, &error.into());
    }
    shared.families.leave(&file.family, file.inode, file.write);
}
