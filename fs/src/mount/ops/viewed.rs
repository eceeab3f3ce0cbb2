//! Reads and writes of a file that has a view: packed bytes of its batch, from and to the servers.
//!
//! On the pool, since they may wait for rights and servers. A write drops the pages that the kernel has of the object,
//! including those of this inode: the kernel assumes other offsets than the view's.

use std::sync::Arc;

use fuser::{Errno, ReplyData, ReplyWrite};

use super::write::How;
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;
use crate::mount::viewed::Viewed;

/// Reads packed bytes and replies; fewer than asked for at the end of the view.
pub(super) fn read(
    shared: &Arc<Shared>,
    open: &Arc<Open>,
    view: Arc<Viewed>,
    offset: u64,
    len: u32,
    reply: ReplyData,
) {
    let range = view.range(offset, len.into());
    if range.is_empty() {
        return reply.data(&[]);
    }
    let (worker, open) = (shared.clone(), open.clone());
    shared.for_bytes().submit(Box::new(move || {
        let Open::File(file) = &*open else {
            return reply.error(Errno::EBADF);
        };
        let mut bytes = worker.buffers.take(0);
        let out = bytes.sized((range.end - range.start) as usize);
        match file.handle().read_batch(view.plan(), range, out) {
            Ok(()) => reply.data(&bytes),
            Err(error) => {
                let failure = error.into();
                reply.error(report("read", file.inode, &failure));
            }
        }
    }));
}

/// Writes packed bytes and replies.
pub(super) fn write(
    shared: &Arc<Shared>,
    open: &Arc<Open>,
    view: Arc<Viewed>,
    offset: u64,
    data: &[u8],
    how: How,
    reply: ReplyWrite,
) {
    let Open::File(file) = &**open else { return };
    let range = view.range(offset, data.len() as u64);
    let (object, inode) = (file.object, file.inode);
    let drop_setid = how.drop_setid.filter(|_| shared.setids.has(object));
    let copied = shared.buffers.copy(data);
    let (worker, open) = (shared.clone(), open.clone());

    shared.for_bytes().submit(Box::new(move || {
        worker.change_bytes(
            object,
            None,
            move |shared| -> Outcome<(u32, bool)> {
                let Open::File(file) = &*open else {
                    return refused(Errno::EBADF, "not a file");
                };
                if range.end - range.start < copied.len() as u64 {
                    return refused(Errno::EFBIG, "a write beyond the end of the file's view");
                }
                // Writes through a view have explicit offsets, whether or not the file was opened to append.
                let writer = file.writer(&shared.client, false)?;
                writer.write_batch(view.plan(), range, &copied)?;
                if how.sync {
                    file.fsync()?;
                }
                let dropped = match drop_setid {
                    Some(caller) => shared.drop_setid(object, caller)?,
                    None => false,
                };
                Ok((copied.len() as u32, dropped))
            },
            move |shared, written| match written {
                Ok((len, true)) => shared.forget_attributes(object.0, move || reply.written(len)),
                Ok((len, false)) => reply.written(len),
                Err(failure) => {
                    reply.error(report("write", inode, &failure));
                }
            },
        );
    }));
}
