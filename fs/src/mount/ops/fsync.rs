//! Fsync: when this is answered, all data of the object, written through any handle, is on the servers' disks and in
//! the metadata journal. Always on the pool, since it waits for disks.

use std::sync::Arc;

use fuser::{Errno, ReplyEmpty};

use crate::mount::errno::end;
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Syncs and replies.
pub(in crate::mount) fn answer(shared: &Arc<Shared>, inode: u64, handle: u64, reply: ReplyEmpty) {
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    if !matches!(&*open, Open::File(_) | Open::Composed(_)) {
        return reply.ok();
    }
    let there = Arc::clone(shared);
    shared.pool.submit(Box::new(move || match &*open {
        Open::File(file) => {
            let synced = file.fsync();
            let synced = synced.and_then(|()| there.client.sync_name(file.object));
            end("fsync", inode, synced, reply);
        }
        Open::Composed(file) => end("fsync", inode, file.fsync(), reply),
        Open::Text(_) | Open::Call(_) => reply.ok(),
    }));
}
