//! Lseek: `SEEK_DATA` and `SEEK_HOLE`; the kernel does the others itself. Hidden files, and files with a view, are
//! entirely data. Dirty mapped pages are data too. The kernel does not write them back before it asks, as it does
//! before a read, so this makes it write them back.

use std::sync::Arc;

use fuser::{Errno, ReplyLseek};

use crate::mount::errno::{Outcome, refused, report};
use crate::mount::open_file::Open;
use crate::mount::shared::Shared;

/// Replies with the offset of the next data or hole at or behind `offset`.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    handle: u64,
    offset: i64,
    whence: i32,
    reply: ReplyLseek,
) {
    let answer = move |shared: &Arc<Shared>| match seek(shared, handle, offset, whence) {
        Ok(found) => reply.offset(found),
        Err(failure) => reply.error(report("lseek", inode, &failure)),
    };
    let paged = match shared.handles.get(handle).as_deref() {
        Some(Open::File(file)) => file.family.mapped(None),
        _ => Vec::new(),
    };
    match paged.is_empty() {
        true => answer(shared),
        false => shared.after_pages(paged, answer),
    }
}

fn seek(shared: &Shared, handle: u64, offset: i64, whence: i32) -> Outcome<i64> {
    let Some(open) = shared.handles.get(handle) else {
        return refused(Errno::EBADF, "no such handle");
    };
    let Ok(offset) = u64::try_from(offset) else {
        return refused(Errno::ENXIO, "in front of the file");
    };
    let view = match &*open {
        Open::File(file) => file.views().get(),
        Open::Text(_) | Open::Composed(_) | Open::Call(_) => None,
    };
    if let Some(view) = view {
        return all_data(view.plan().bytes(), offset, whence).map(|found| found as i64);
    }
    let found = match (&*open, whence) {
        (Open::File(file), libc::SEEK_DATA) => file.handle().seek_data(offset)?,
        (Open::File(file), libc::SEEK_HOLE) => file.handle().seek_hole(offset)?,
        (Open::Text(text), libc::SEEK_DATA | libc::SEEK_HOLE) => {
            all_data(text.len() as u64, offset, whence)?
        }
        (Open::Composed(file), libc::SEEK_DATA | libc::SEEK_HOLE) => {
            all_data(file.size(), offset, whence)?
        }
        _ => return refused(Errno::EINVAL, "the kernel seeks the rest itself"),
    };
    i64::try_from(found).map_or_else(|_| refused(Errno::EOVERFLOW, "beyond 2^63"), Ok)
}

/// The answer where no holes are known: a hole only at the end.
fn all_data(size: u64, offset: u64, whence: i32) -> Outcome<u64> {
    match whence {
        _ if offset >= size => refused(Errno::ENXIO, "behind the end"),
        libc::SEEK_DATA => Ok(offset),
        libc::SEEK_HOLE => Ok(size),
        _ => refused(Errno::EINVAL, "the kernel seeks the rest itself"),
    }
}
