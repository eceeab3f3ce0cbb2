//! Read. Data in this process is answered at once and without a copy; a read that needs the network, or a right that
//! is not held, goes to a pool.
//!
//! A read without a lock owner comes from the kernel's own page cache: the file is mapped, or the kernel itself copies
//! from it (`splice`, `sendfile`), which goes through pages unless the file is `O_DIRECT`. That is noted before the
//! bytes are read, so that a later write through another inode knows of the page (`families.rs`).
//!
//! Pages are the object's, whatever the view of an open file. A copy through them would silently take other bytes than
//! the program means, so pages of a file that has a view and is not `O_DIRECT` are refused. A program that sets a view
//! sets `O_DIRECT` with it (`slabfs_ioctl.h`); then only mappings use pages.

use std::io::IoSlice;
use std::sync::Arc;

use fuser::{Errno, LockOwner, OpenFlags, ReplyData, RequestId};
use slabfs_objstore::StoreError;

use crate::client::{FsError, ReadSink, for_thread};
use crate::mount::composed::Composed;
use crate::mount::errno::{Failure, report};
use crate::mount::exchange::{Waiting, part};
use crate::mount::interrupts::Awaited;
use crate::mount::open_file::{Open, OpenFile};
use crate::mount::pages::HABIT;
use crate::mount::shared::Shared;
use crate::mount::viewed::Viewed;

/// The kernel's flags of a read.
#[derive(Debug, Clone, Copy)]
pub(in crate::mount) struct How {
    /// The kernel reads a page for its own cache.
    by_kernel: bool,
    /// The file is `O_DIRECT`: copies that the kernel makes of it come as ordinary reads, not through pages.
    past_pages: bool,
    /// The thread that reads.
    thread: u32,
    request: RequestId,
}

impl How {
    pub(in crate::mount) fn new(
        open: OpenFlags,
        owner: Option<LockOwner>,
        (thread, request): (u32, RequestId),
    ) -> How {
        How {
            by_kernel: owner.is_none(),
            past_pages: open.0 & libc::O_DIRECT != 0,
            thread,
            request,
        }
    }
}

/// Reads and replies.
pub(in crate::mount) fn answer(
    shared: &Arc<Shared>,
    inode: u64,
    handle: u64,
    offset: u64,
    len: u32,
    how: How,
    reply: ReplyData,
) {
    let How {
        by_kernel,
        past_pages,
        thread,
        request,
    } = how;
    let Some(open) = shared.handles.get(handle) else {
        return reply.error(Errno::EBADF);
    };
    let file = match &*open {
        Open::File(file) => file,
        Open::Text(text) => return reply.data(part(text, offset, len)),
        Open::Composed(file) => {
            return read_composed(shared, &open, file, (inode, by_kernel, offset, len), reply);
        }
        Open::Call(call) => {
            let (waiting, mount) = (Waiting { offset, len, reply }, shared.clone());
            let job = call.read(waiting, move |changed| mount.inval.forget_changed(changed));
            if let Some(job) = job {
                shared.calls.submit(call.uid(), job);
            }
            return;
        }
    };
    if by_kernel {
        if !past_pages && (file.views().get().is_some() || file.chunks().is_some()) {
            return reply.error(report("read", inode, &pages_of_a_view()));
        }
        file.note_mapped();
        if !file.write && file.requests().0 == 0 {
            // Its first read-ahead: if the program's reads are large, it begins with as much as a request may have.
            file.count_request(len as usize);
        }
    } else if file.chunks().is_some() {
        return read_chunks(shared, &open, offset, len, reply);
    } else if let Some(view) = file.views().get() {
        return read_viewed(shared, &open, view, offset, len, reply);
    } else if file.count_request(len as usize) == HABIT {
        shared.note_habit(file);
    }
    let mut sink = Replying(Some(reply));
    let done = file
        .handle()
        .try_read(by_kernel, offset, len as usize, &mut sink);
    match (done, sink.0) {
        (Ok(false), Some(reply)) => {
            let open = open.clone();
            // A read of a coupled object may wait for data.
            let waits = file.handle().awaits_data();
            if waits && !shared.interrupts.enter(request.0, Awaited::Data) {
                return reply.error(Errno::EINTR);
            }
            let pool = match waits {
                true => &shared.waits,
                false => shared.for_bytes(),
            };
            let mount = shared.clone();
            pool.submit(Box::new(move || {
                if let Open::File(file) = &*open {
                    for_thread(thread, || {
                        read(&mount, file, inode, (offset, len), by_kernel, reply);
                    });
                }
                if waits {
                    mount.interrupts.leave(request.0);
                }
            }));
        }
        (done, reply) => {
            note_damage(shared, file, by_kernel, &done);
            finish(inode, done.map(|_| ()), reply);
        }
    }
}

fn read(
    shared: &Shared,
    file: &OpenFile,
    inode: u64,
    (offset, len): (u64, u32),
    by_kernel: bool,
    reply: ReplyData,
) {
    let mut sink = Replying(Some(reply));
    let done = match by_kernel {
        true => file.handle().read_page(offset, len as usize, &mut sink),
        false => file.handle().read(offset, len as usize, &mut sink),
    };
    note_damage(shared, file, by_kernel, &done);
    finish(inode, done, sink.0);
}

/// A damaged chunk fails the pages, and the larger units of pages, that have any byte of it. The next files on the object
/// read exactly what programs ask for, so that the rest can be read.
fn note_damage<T>(shared: &Shared, file: &OpenFile, by_kernel: bool, read: &Result<T, FsError>) {
    let damaged = matches!(read, Err(FsError::Store(error)) if !matches!(error, StoreError::Unavailable { .. }));
    if by_kernel && damaged {
        shared.habits.note_damaged(file.object);
    }
}

/// Reads a file of a view, and replies: as a plain read, if it lies in one object that is open.
fn read_composed(
    shared: &Arc<Shared>,
    open: &Arc<Open>,
    file: &Composed,
    (inode, by_kernel, offset, len): (u64, bool, u64, u32),
    mut reply: ReplyData,
) {
    let len = file.readable(offset, len);
    if len == 0 {
        return reply.data(&[]);
    }
    if let Some(bytes) = file.bytes(offset, len) {
        return reply.data(bytes);
    }
    if !file.must_open(offset)
        && let Ok(Some((object, at))) = file.object(shared, offset, len)
    {
        if by_kernel {
            object.note_mapped();
        }
        let mut sink = Replying(Some(reply));
        let done = object.handle().try_read(by_kernel, at, len, &mut sink);
        match (done, sink.0) {
            // The other way says what is wrong.
            (Ok(false) | Err(_), Some(left)) => reply = left,
            (done, reply) => return finish(inode, done.map(|_| ()), reply),
        }
    }
    let (worker, open) = (shared.clone(), open.clone());
    shared.for_bytes().submit(Box::new(move || {
        let Open::Composed(file) = &*open else {
            return reply.error(Errno::EBADF);
        };
        let mut bytes = worker.buffers.take(0);
        let out = bytes.sized(len);
        match file.read(&worker, by_kernel, offset, out) {
            Ok(()) => reply.data(&bytes),
            Err(failure) => reply.error(report("read", inode, &failure)),
        }
    }));
}

/// Reads packed bytes of a view and replies; fewer than asked for at its end. On the pool, since it may wait for rights
/// and servers.
fn read_viewed(
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
    // Each view has a file behind it; a read of a coupled object may wait for data.
    let pool = match &*open {
        Open::File(file) if file.handle().awaits_data() => &shared.waits,
        _ => shared.for_bytes(),
    };
    pool.submit(Box::new(move || {
        let Open::File(file) = &*open else {
            return reply.error(Errno::EBADF);
        };
        let mut bytes = worker.buffers.take(0);
        let out = bytes.sized((range.end - range.start) as usize);
        match file.handle().read_batch(view.plan(), range, out) {
            Ok(()) => reply.data(&bytes),
            Err(error) => reply.error(report("read", file.inode, &error.into())),
        }
    }));
}

/// Reads an encoded chunk and replies. On the pool, since it may wait for servers.
fn read_chunks(shared: &Arc<Shared>, open: &Arc<Open>, offset: u64, len: u32, reply: ReplyData) {
    let open = open.clone();
    shared.for_bytes().submit(Box::new(move || {
        let Open::File(file) = &*open else {
            return reply.error(Errno::EBADF);
        };
        let Some(chunks) = file.chunks() else {
            return reply.error(Errno::EINVAL);
        };
        match chunks.read(file.handle(), offset, len) {
            Ok((bytes, at)) => reply.data(part(&bytes, at, len)),
            Err(failure) => reply.error(report("read", file.inode, &failure)),
        }
    }));
}

/// The refusal of pages; see the module documentation.
fn pages_of_a_view() -> Failure {
    Failure::Refused {
        errno: Errno::EIO,
        why: "a page is asked for through a file that has a view, or is one of encoded chunks, and no O_DIRECT",
    }
}

fn finish(inode: u64, read: Result<(), FsError>, reply: Option<ReplyData>) {
    // The reply is still here if no bytes were given: after an error, or at the end of the file.
    if let Some(reply) = reply {
        match read {
            Ok(()) => reply.data(&[]),
            Err(error) => reply.error(report("read", inode, &error.into())),
        }
    } else if let Err(error) = read {
        tracing::error!(inode, %error, "a read failed after it had been answered");
    }
}

/// Sends the bytes to the kernel from where they are, without a copy.
struct Replying(Option<ReplyData>);

impl ReadSink for Replying {
    fn give(&mut self, bytes: &[u8]) {
        if let Some(reply) = self.0.take() {
            reply.data(bytes);
        }
    }

    fn give_parts(&mut self, parts: &[IoSlice<'_>]) {
        if let Some(reply) = self.0.take() {
            reply.data_vectored(parts);
        }
    }
}
