//! Write. A write is answered when its bytes are in the daemon's write-behind, or, for a large write, on the path in
//! `client/handle/write.rs`; later errors are returned by `fsync` or `close`.
//!
//! The fast path is inline and copies nothing here. Four rare conditions take a write off it:
//!
//! - it may have to wait for a right, a server, or for disks (`O_SYNC`): the bytes are copied and go to a pool;
//! - the object is mapped through another inode: the pages of that are written back before and dropped
//!   after (`Shared::change_bytes`);
//! - the kernel has pages of the written range: the write waits until they are dropped
//!   (`client/coherence/rights/page_overlap.rs`);
//! - it clears set-user-id: the kernel drops the cached mode before the write is answered.
//!
//! Writes that the kernel makes of mapped pages (`FUSE_WRITE_CACHE`) always have an explicit offset, whatever the
//! handle's append flag, and never wait for an invalidation: an invalidation may be waiting for them. When the
//! session is over, data in pages is lost with it, and such writes fail.

use std::sync::Arc;

use fuser::{Errno, OpenFlags, ReplyWrite, WriteFlags};

use crate::client::{FsError, for_thread};
use crate::mount::errno::{Outcome, refused, report};
use crate::mount::inval::Forget;
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::page_writes::PageWrite;
use crate::mount::pages::HABIT;
use crate::mount::shared::{Caller, Shared};
use crate::mount::viewed::Viewed;

/// The kernel's flags of a write.
#[derive(Debug, Clone, Copy)]
pub(in crate::mount) struct How {
    /// The kernel writes a mapped page back.
    by_kernel: bool,
    /// The write goes to the end of the file.
    append: bool,
    /// Answered when the data is on disk: the file is open with `O_SYNC` or `O_DSYNC`.
    sync: bool,
    /// The caller, if its writes clear set-user-id and set-group-id.
    drop_setid: Option<Caller>,
    /// The thread that writes.
    thread: u32,
}

impl How {
    pub(in crate::mount) fn new(caller: Caller, write: WriteFlags, open: OpenFlags) -> How {
        let by_kernel = write.contains(WriteFlags::FUSE_WRITE_CACHE);
        How {
            by_kernel,
            append: !by_kernel && open.0 & libc::O_APPEND != 0,
            sync: !by_kernel && open.0 & libc::O_DSYNC != 0,
            drop_setid: write
                .contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
                .then_some(caller),
            thread: caller.pid,
        }
    }
}

/// What the bytes of a write are, if not those of the object from the offset on.
enum Through {
    /// Packed bytes of a view.
    View(Arc<Viewed>),
    /// A part of a stream of encoded chunks.
    Chunks,
}

fn through_of(file: &OpenFile) -> Option<Through> {
    match file.chunks() {
        Some(_) => Some(Through::Chunks),
        None => file.views().get().map(Through::View),
    }
}

/// Writes and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    handle: u64,
    offset: u64,
    data: &[u8],
    mut how: How,
    reply: ReplyWrite,
) {
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    let file = match &*open {
        Open::File(file) => file,
        Open::Text(_) | Open::Composed(_) => return reply.error(Errno::EBADF),
        Open::Call(call) => {
            return match call.write(offset, data) {
                Ok(()) => reply.written(data.len() as u32),
                Err(failure) => reply.error(report("call", 0, &failure)),
            };
        }
    };
    how.drop_setid = how.drop_setid.filter(|_| shared.setids.has(file.object));
    // Before anything else: the write then detects a loss of the session after this point.
    let epoch = how.by_kernel.then(|| shared.client.of(file.object).epoch());
    if how.by_kernel && file.family.discards() {
        return reply.error(report("write", file.inode, &FsError::Lost.into()));
    }
    if !how.by_kernel
        && let Some(through) = through_of(file)
    {
        return match how.append {
            true => reply.error(Errno::EINVAL),
            false => write_on_pool(shared, &open, Some(through), offset, data, how, reply),
        };
    }
    let page = how.by_kernel.then(|| shared.page_writes.begin());
    if !how.by_kernel && file.count_request(data.len()) == HABIT {
        shared.note_habit(file);
    }
    let others = !file.family.mapped(Some(file.inode)).is_empty();
    let waits = how.sync
        || file
            .ready_writer(how.append)
            .is_none_or(|writer| writer.may_block_write(offset, data.len()));
    if how.by_kernel && (waits || others) {
        write_back(shared, &open, epoch, offset, data, (page, reply));
    } else if how.drop_setid.is_some() || waits || others {
        write_on_pool(shared, &open, None, offset, data, how, reply);
    } else {
        let writer = file.ready_writer(how.append);
        let tried = writer.map_or(Ok(None), |writer| writer.try_write(epoch, offset, data));
        match tried {
            Ok(None) if how.by_kernel => {
                write_back(shared, &open, epoch, offset, data, (page, reply));
            }
            Ok(None) => write_on_pool(shared, &open, None, offset, data, how, reply),
            Ok(Some(_)) => {
                answer_after_drop(shared, file, how, Ok(data.len() as u32), reply);
            }
            Err(error) => answer_after_drop(shared, file, how, Err(error.into()), reply),
        }
    }
}

/// Answers the write. Pages that other inodes have read during the write are dropped before; for the kernel's own
/// writes they are dropped later.
fn answer_after_drop(
    shared: &Arc<Shared>,
    file: &OpenFile,
    how: How,
    written: Outcome<u32>,
    reply: ReplyWrite,
) {
    let inode = file.inode;
    let after = file.family.mapped(Some(inode));
    if after.is_empty() {
        give(shared, "write", inode, written, reply);
    } else if how.by_kernel {
        shared.inval.forget(after, Forget::Pages, None);
        give(shared, "write", inode, written, reply);
    } else {
        let there = shared.clone();
        let then = Box::new(move || give(&there, "write", inode, written, reply));
        shared.inval.forget(after, Forget::Pages, Some(then));
    }
}

/// Replies with the number of bytes written.
pub(super) fn give(
    shared: &Shared,
    operation: &'static str,
    inode: u64,
    written: Outcome<u32>,
    reply: ReplyWrite,
) {
    match written {
        Ok(len) => reply.written(len),
        Err(failure) => reply.error(shared.refusal(operation, inode, None, &failure)),
    }
}

fn write(
    shared: &Arc<Shared>,
    file: &OpenFile,
    epoch: Option<u64>,
    offset: u64,
    data: &[u8],
    append: bool,
) -> Outcome<u32> {
    let writer = file.writer(&shared.client, append)?;
    match epoch {
        Some(epoch) => writer.write_page(epoch, offset, data)?,
        None => writer.write(offset, data)?,
    };
    Ok(data.len() as u32)
}

/// Executes a write of mapped pages that may wait for a server: on the pool, and answered as soon as it is done.
fn write_back(
    shared: &Arc<Shared>,
    open: &Arc<Open>,
    epoch: Option<u64>,
    offset: u64,
    data: &[u8],
    (page, reply): (Option<PageWrite>, ReplyWrite),
) {
    let copied = shared.buffers.copy(data);
    let (worker, open) = (shared.clone(), open.clone());
    shared.writebacks.submit(Box::new(move || {
        let Open::File(file) = &*open else { return };
        let how = How {
            by_kernel: true,
            append: false,
            sync: false,
            drop_setid: None,
            thread: 0,
        };
        let written = write(&worker, file, epoch, offset, &copied, how.append);
        answer_after_drop(&worker, file, how, written, reply);
        drop(page);
    }));
}

/// Executes a write that may wait: on the pool, with a copy of its bytes. Through a view, packed bytes go to the
/// elements of its batch, and encoded chunks to their places; then all inodes drop their pages: the kernel assumes other offsets than the view's.
fn write_on_pool(
    shared: &Arc<Shared>,
    open: &Arc<Open>,
    through: Option<Through>,
    offset: u64,
    data: &[u8],
    how: How,
    reply: ReplyWrite,
) {
    let Open::File(file) = &**open else { return };
    let (object, inode) = (file.object, file.inode);
    let pages = through.is_none().then_some(inode);
    let copied = shared.buffers.copy(data);
    let (open, there) = (open.clone(), shared.clone());
    shared.change_on_pool(
        object,
        pages,
        move |shared| {
            let Open::File(file) = &*open else {
                return refused(Errno::EBADF, "not a file");
            };
            let len = match through {
                Some(Through::View(view)) => write_viewed(shared, file, &view, offset, &copied)?,
                Some(Through::Chunks) => write_chunks(shared, file, offset, &copied)?,
                None => for_thread(how.thread, || {
                    write(shared, file, None, offset, &copied, how.append)
                })?,
            };
            if how.sync {
                file.fsync()?;
                shared.client.sync_name(file.object)?;
            }
            let dropped = match how.drop_setid {
                Some(caller) => shared.drop_setid(object, caller)?,
                None => false,
            };
            Ok((len, dropped))
        },
        move |written| give(&there, "write", inode, written, reply),
    );
}

fn write_chunks(shared: &Shared, file: &OpenFile, offset: u64, data: &[u8]) -> Outcome<u32> {
    let Some(chunks) = file.chunks() else {
        return refused(Errno::EINVAL, "not a file of encoded chunks");
    };
    let writer = file.writer(&shared.client, false)?;
    chunks.write(writer, offset, data)?;
    Ok(data.len() as u32)
}

fn write_viewed(
    shared: &Shared,
    file: &OpenFile,
    view: &Viewed,
    offset: u64,
    data: &[u8],
) -> Outcome<u32> {
    let range = view.range(offset, data.len() as u64);
    if range.end - range.start < data.len() as u64 {
        return refused(Errno::EFBIG, "a write beyond the end of the file's view");
    }
    // Writes through a view have explicit offsets, whether or not the file was opened to append.
    let writer = file.writer(&shared.client, false)?;
    writer.write_batch(view.plan(), range, data)?;
    Ok(data.len() as u32)
}
