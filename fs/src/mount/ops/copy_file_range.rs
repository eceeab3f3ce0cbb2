//! Copy_file_range: copies bytes from one open file to another within the daemon. Runs on the pool, in pieces, and
//! bounded per request so that a signal does not wait for long; the program asks again for the rest.
//!
//! From a file that has a view, the bytes of the view are copied; bytes copied into such a file go where its view
//! puts them. The kernel assumes that a file ends where the object does, and asks for nothing behind that. A view
//! that is longer than its object is refused, so that no caller takes a part for all of it; programs fall back to
//! reading.

use std::sync::Arc;

use fuser::{Errno, ReplyWrite};

use super::write;
use crate::mount::errno::{Outcome, refused};
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::shared::{Caller, Shared};
use crate::mount::viewed::Viewed;

const PIECE: u64 = 1 << 20;
const MOST: u64 = 64 << 20;

/// Copies up to `len` bytes; `from` and `to` are a handle and an offset each.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    caller: Caller,
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
    // With a view the bytes are not where the kernel assumes.
    let through = file.views().get().is_none().then_some(file.inode);
    let (object, there) = (file.object, shared.clone());
    shared.change_on_pool(
        object,
        through,
        move |shared| {
            let copied = copy(shared, &source, from.1, &target, to.1, len.min(MOST))?;
            Ok((copied as u32, shared.drop_setid_unmarked(object, caller)?))
        },
        move |copied| write::give(&there, "copy_file_range", inode, copied, reply),
    );
}

/// One side of a copy, with the view that it had when the copy began.
struct End<'a> {
    file: &'a OpenFile,
    view: Option<Arc<Viewed>>,
}

impl<'a> End<'a> {
    fn of(open: &'a Open) -> Outcome<End<'a>> {
        match open {
            Open::File(file) if file.chunks().is_some() => refused(
                Errno::EINVAL,
                "a file of encoded chunks is read and written, not copied",
            ),
            Open::File(file) => Ok(End {
                file,
                view: file.views().get(),
            }),
            // The kernel then copies by reading and writing.
            _ => refused(Errno::EOPNOTSUPP, "hidden files are read, not copied from"),
        }
    }
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
    let (source, target) = (End::of(source)?, End::of(target)?);
    if let Some(view) = &source.view
        && view.plan().bytes() > source.file.handle().size()
    {
        return refused(
            Errno::EINVAL,
            "a view that is longer than its object is read, not copied from",
        );
    }
    let mut copied = 0;
    while copied < len {
        let piece = (len - copied).min(PIECE);
        match copy_piece(shared, &source, from, &target, to, piece) {
            Ok(0) => break,
            Ok(piece) => {
                copied += piece;
                from += piece;
                to += piece;
            }
            Err(failure) if copied == 0 => return Err(failure),
            Err(failure) => {
                // The next request meets the error again, and returns it.
                tracing::debug!(%failure, copied, "a copy stops early");
                break;
            }
        }
    }
    Ok(copied)
}

/// Copies up to `len` bytes; fewer where the source or the view of the target ends.
fn copy_piece(
    shared: &Arc<Shared>,
    source: &End<'_>,
    from: u64,
    target: &End<'_>,
    to: u64,
    len: u64,
) -> Outcome<u64> {
    // Through a buffer: the read may hold, while it delivers its bytes, what the write needs.
    let mut bytes = shared.buffers.take(len as usize);
    bytes.clear();
    let handle = source.file.handle();
    match &source.view {
        None => handle.read(from, len as usize, &mut |piece: &[u8]| bytes.append(piece))?,
        Some(view) => {
            let range = view.range(from, len);
            let out = bytes.sized((range.end - range.start) as usize);
            handle.read_batch(view.plan(), range, out)?;
        }
    }
    if bytes.is_empty() {
        return Ok(0);
    }
    let writer = target.file.writer(&shared.client, false)?;
    let Some(view) = &target.view else {
        writer.write(to, &bytes)?;
        return Ok(bytes.len() as u64);
    };
    let range = view.range(to, bytes.len() as u64);
    let fits = range.end - range.start;
    if fits == 0 {
        return refused(Errno::EFBIG, "a copy beyond the end of the file's view");
    }
    writer.write_batch(view.plan(), range, &bytes[..fits as usize])?;
    Ok(fits)
}
