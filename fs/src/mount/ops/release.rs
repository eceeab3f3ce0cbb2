//! Release: the last descriptor and the last mapping of a handle are gone. No program waits for the answer or receives
//! an error, so an error is only logged. Locks of the open file description end with it: `flock` locks, and `fcntl`
//! locks that do not belong to a process. The kernel sends the owner of the former only. So all locks end that were
//! taken through the handle and still exist, which are exactly these.

use std::sync::Arc;

use fuser::ReplyEmpty;

use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Ends the handle and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, handle: u64, reply: ReplyEmpty) {
    end(shared, handle, move || reply.ok());
}

/// Ends a handle that the kernel did not receive, since the opening program was killed meanwhile.
pub(super) fn take_back(shared: &Arc<Shared>, handle: u64) {
    end(shared, handle, || ());
}

fn end(shared: &Arc<Shared>, handle: u64, then: impl FnOnce() + Send + 'static) {
    let Some(open) = shared.handles.remove(handle) else {
        return then();
    };
    let quick = match &*open {
        Open::Text(_) | Open::Call(_) => true,
        // Its files end when they are dropped.
        Open::Composed(_) => false,
        Open::File(file) => {
            shared.note_habit(file);
            if file.write {
                shared.habits.note_written(file.object);
            }
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
                ending.run(&shared.client, &shared.families);
                // Again: a lookup may have been answered meanwhile.
                if file.write {
                    shared.habits.note_written(file.object);
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
