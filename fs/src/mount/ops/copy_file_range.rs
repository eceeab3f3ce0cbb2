//! Copy_file_range: bytes from one open file to another without a trip through the kernel and the program.
//! On the pool, in pieces, at most so much a request that a signal does not wait long; the program asks
//! again for the rest.

use std::sync::Arc;

use fuser::{Errno, ReplyWrite};

use crate::client::FsError;
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::shared::Shared;

const PIECE: u64 = 1 << 20;
const MOST: u64 = 64 << 20;

/// Copies up to `len` bytes; `from` and `to` are a handle and an offset each.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    from: (u64, u64),
    to: (u64, u64),
    len: u64,
    reply: ReplyWrite,
) {
    let opened = (shared.handles.get(from.0), shared.handles.get(to.0));
    let (Some(source), Some(target)) = opened else {
        return reply.error(Errno::EBADF);
    };
    let Open::File(file) = &*target else {
        return reply.error(Errno::EBADF);
    };
    let (object, through) = (file.object, file.inode);
    let worker = shared.clone();
    shared.for_bytes().submit(Box::new(move || {
        worker.change_bytes(
            object,
            Some(through),
            move |shared| copy(shared, &source, from.1, &target, to.1, len.min(MOST)),
            move |_, copied| match copied {
                Ok(len) => reply.written(len as u32),
                Err(failure) => reply.error(report("copy_file_range", inode, &failure)),
            },
        );
    }));
}

/// How many bytes were copied; an error only if none were.
fn copy(
    shared: &Arc<Shared>,
    source: &Open,
    mut from: u64,
    target: &Open,
    mut to: u64,
    len: u64,
) -> Outcome<u64> {
    let (Open::File(source), Open::File(target)) = (source, target) else {
        // The kernel copies through itself then.
        return refused(Errno::EOPNOTSUPP, "hidden files are read, not copied from");
    };
    if source.views().get().is_some() || target.views().get().is_some() {
        return refused(Errno::EOPNOTSUPP, "a file with a view is read and written");
    }
    let mut copied = 0;
    while copied < len {
        match copy_piece(shared, source, from, target, to, (len - copied).min(PIECE)) {
            Ok(0) => break,
            Ok(piece) => {
                copied += piece;
                from += piece;
                to += piece;
            }
            Err(error) if copied == 0 => return Err(error.into()),
            Err(error) => {
                // The next request meets it again, and tells.
                tracing::debug!(%error, copied, "a copy stops early");
                break;
            }
        }
    }
    Ok(copied)
}

fn copy_piece(
    shared: &Arc<Shared>,
    source: &OpenFile,
    from: u64,
    target: &OpenFile,
    to: u64,
    len: u64,
) -> Result<u64, FsError> {
    // Copied out first: what the read holds while it gives its bytes may be what the write needs.
    let mut bytes = shared.buffers.take(len as usize);
    bytes.clear();
    source
        .handle()
        .read(from, len as usize, &mut |piece: &[u8]| bytes.append(piece))?;
    if !bytes.is_empty() {
        target.writer(&shared.client, false)?.write(to, &bytes)?;
    }
    Ok(bytes.len() as u64)
}
