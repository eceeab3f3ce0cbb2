//! Release: the last descriptor and the last mapping of a handle are gone. Nobody waits for the answer and
//! nobody hears an error, so one is only logged. Locks of the open file description end with it: those of
//! `flock`, and of `fcntl` those that are not a process's. The kernel names the owner of the first only; so
//! all end that were taken through the handle and are still there, which are just these.

use std::sync::Arc;

use fuser::ReplyEmpty;

use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Ends the handle and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, handle: u64, reply: ReplyEmpty) {
    end(shared, handle, move || reply.ok());
}

/// Ends a handle that the kernel has not got: whoever opened it was killed meanwhile.
pub(super) fn take_back(shared: &Arc<Shared>, handle: u64) {
    end(shared, handle, || ());
}

fn end(shared: &Arc<Shared>, handle: u64, then: impl FnOnce() + Send + 'static) {
    let Some(open) = shared.handles.remove(handle) else {
        return then();
    };
    let quick = match &*open {
        Open::Text(_) | Open::Call(_) => true,
        Open::File(file) => {
            let locks = file.close(&shared.client);
            shared.client.is_same_host() && !file.has_dirty() && !locks
        }
    };
    let end = {
        let shared = shared.clone();
        move || {
            if let Some(Open::File(mut file)) = Arc::into_inner(open)
                && let Some(ending) = file.ending()
            {
                ending.run(&shared);
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
