//! The open file behind a file handle.
//!
//! The kernel releases a handle when all requests on it are answered. That does not mean that they are done: a request
//! whose sender was killed may be answered long before (`killed.rs`). So an open file ends ([`Ending`]) when the last
//! request that works on it drops its reference, which is nearly always the release itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use slabfs_mdserver::api::{Ino, LockFile, LockKind, LockOwner};
use slabfs_model::Selection;

use crate::client::{FsError, Handle, OpenMode};
use crate::clients::Clients;

use super::call::Call;
use super::chunks_file::ChunksFile;
use super::composed::Composed;
use super::errno::report;
use super::families::{Families, Family};
use super::pages::Program;
use super::viewed::Views;

/// An open file of the mount.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are files, and each is behind an Arc"
)]
pub(super) enum Open {
    /// An object, or a selection of one.
    File(OpenFile),
    /// A hidden file: its text at the time of the open.
    Text(Vec<u8>),
    /// A file of a view.
    Composed(Composed),
    /// `.slabfs/call`.
    Call(Arc<Call>),
}

/// An open object, or an open selection of one.
///
/// A program may change the append flag after opening, and a page that the kernel writes back always has an explicit
/// offset, even if the only handle is an appending one. A handle of the client appends always or never; so an open
/// file may have two of them, the second opened on demand.
pub(super) struct OpenFile {
    /// Unique; the number of the handle and the kernel's number for the lock owner are reused.
    pub(super) id: u64,
    /// The inode of the mount that was opened.
    pub(super) inode: u64,
    /// The process, or thread, that opened it.
    pub(super) opener: u32,
    /// The object whose bytes these are.
    pub(super) object: Ino,
    /// Open for writing.
    pub(super) write: bool,
    /// The requests that show how large those of the program are: their number, and their bytes.
    requests: [AtomicU64; 2],
    /// It reads through the kernel's pages.
    pages: AtomicBool,
    /// The program that opened it, where that matters (`pages.rs`).
    program: OnceLock<Program>,
    /// The open inodes of the object.
    pub(super) family: Arc<Family>,
    /// Whether it is already noted that the kernel has pages of the inode.
    mapped: AtomicBool,
    selection: Option<Selection>,
    handle: Arc<Handle>,
    appends: bool,
    other: OnceLock<Arc<Handle>>,
    views: Views,
    /// Set once it is a file of encoded chunks.
    chunks: OnceLock<ChunksFile>,
    mount: Weak<dyn Closes>,
    /// Locks that end with this file, once it is released.
    closing: OnceLock<Vec<(LockKind, LockOwner)>>,
    over: bool,
}

/// The work that remains when the last reference to an open file is dropped.
pub(super) struct Ending {
    handles: [Option<Arc<Handle>>; 2],
    family: Arc<Family>,
    inode: u64,
    write: bool,
    locks: Vec<(LockKind, LockOwner)>,
    lock_file: LockFile,
}

impl Ending {
    /// Flushes dirty data, ends the handles, and then the locks: the next holder of a lock sees the writes made under
    /// it. No caller can receive an error, so it is only logged.
    pub(super) fn run(self, client: &Arc<Clients>, families: &Families) {
        for handle in self.handles.into_iter().flatten() {
            if let Err(error) = handle.release() {
                report("release", self.inode, &error.into());
            }
        }
        families.leave(&self.family, self.inode, self.write);
        for (kind, owner) in self.locks {
            let client = client.of(self.lock_file.ino);
            client.unlock_all(self.lock_file.clone(), kind, owner);
        }
    }
}

/// The mount of an open file.
pub(super) trait Closes: Send + Sync {
    /// Ends a file on a thread that may block.
    fn end(self: Arc<Self>, ending: Ending);
}

impl OpenFile {
    pub(super) fn new(
        mount: Weak<dyn Closes>,
        id: u64,
        (inode, opener): (u64, u32),
        mode: OpenMode,
        selection: Option<Selection>,
        handle: Arc<Handle>,
        family: Arc<Family>,
    ) -> OpenFile {
        OpenFile {
            id,
            inode,
            opener,
            object: handle.ino(),
            write: mode.write,
            requests: Default::default(),
            pages: AtomicBool::new(false),
            program: OnceLock::new(),
            family,
            mapped: AtomicBool::new(false),
            selection,
            handle,
            appends: mode.append,
            other: OnceLock::new(),
            views: Views::default(),
            chunks: OnceLock::new(),
            mount,
            closing: OnceLock::new(),
            over: false,
        }
    }

    /// Marks the file as released; returns whether any locks end with it.
    pub(super) fn close(&self, client: &Arc<Clients>) -> bool {
        let locks = client
            .of(self.object)
            .closing_locks(&self.lock_file(), self.id);
        let any = !locks.is_empty();
        if self.closing.set(locks).is_err() {
            tracing::error!(inode = self.inode, "a file was released twice");
        }
        any
    }

    /// The work that ends the file; `None` after the first call.
    pub(super) fn ending(&mut self) -> Option<Ending> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        Some(Ending {
            handles: [Some(self.handle.clone()), self.other.take()],
            family: self.family.clone(),
            inode: self.inode,
            write: self.write,
            locks: self.closing.take().unwrap_or_default(),
            lock_file: self.lock_file(),
        })
    }

    /// The file that its locks are on.
    pub(super) fn lock_file(&self) -> LockFile {
        LockFile {
            ino: self.object,
            selection: self.selection.clone(),
        }
    }

    /// Notes that a lock is about to be requested through this file.
    pub(super) fn note_locker(&self, client: &Clients) {
        client.of(self.object).note_locker(self.id, &self.handle);
    }

    /// Whether it shows a selection.
    pub(super) fn is_selection(&self) -> bool {
        self.selection.is_some()
    }

    /// The view that a program has set on it.
    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    /// What makes it a file of encoded chunks, if it is one.
    pub(super) fn chunks(&self) -> Option<&ChunksFile> {
        self.chunks.get()
    }

    /// Makes it a file of encoded chunks; it stays one.
    pub(super) fn set_chunks(&self, chunks: ChunksFile) {
        // A second call finds it done.
        let _done = self.chunks.set(chunks);
    }

    /// The handle for reads, seeks and other operations with an explicit offset.
    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The handle for a write that appends, or that has an explicit offset, if it is open already. A selection cannot
    /// be appended to: its writes have an offset whatever the flags are.
    pub(super) fn ready_writer(&self, append: bool) -> Option<&Arc<Handle>> {
        let append = append && self.selection.is_none();
        if append == self.appends {
            Some(&self.handle)
        } else {
            self.other.get()
        }
    }

    /// The same; opens the handle if necessary, which asks the metadata service.
    pub(super) fn writer(
        &self,
        client: &Arc<Clients>,
        append: bool,
    ) -> Result<&Arc<Handle>, FsError> {
        if let Some(ready) = self.ready_writer(append) {
            return Ok(ready);
        }
        let mode = OpenMode {
            write: self.write,
            append,
        };
        let made = client.open(self.object, mode, self.selection.as_ref())?;
        if let Err(unused) = self.other.set(made) {
            // Another thread was faster.
            unused.release()?;
        }
        Ok(self.other.get().unwrap_or(&self.handle))
    }

    /// Counts a request; returns the number of requests so far.
    pub(super) fn count_request(&self, len: usize) -> u64 {
        self.requests[1].fetch_add(len as u64, Ordering::Relaxed);
        self.requests[0].fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of requests, and their bytes.
    pub(super) fn requests(&self) -> (u64, u64) {
        let [requests, bytes] = &self.requests;
        (
            requests.load(Ordering::Relaxed),
            bytes.load(Ordering::Relaxed),
        )
    }

    /// Sets that it reads through the kernel's pages.
    pub(super) fn set_pages(&self) {
        self.pages.store(true, Ordering::Release);
    }

    /// Whether it reads through the kernel's pages, which are the object's.
    pub(super) fn has_pages(&self) -> bool {
        self.pages.load(Ordering::Acquire)
    }

    /// The program that opened it, if that is known.
    pub(super) fn program(&self) -> Option<Program> {
        self.program.get().copied()
    }

    /// Sets it.
    pub(super) fn set_program(&self, program: Option<Program>) {
        if let Some(program) = program {
            // A file is opened once.
            let _known = self.program.set(program);
        }
    }

    /// Notes, before its bytes are read, that the kernel is about to cache a page of the inode.
    pub(super) fn note_mapped(&self) {
        if !self.mapped.swap(true, Ordering::AcqRel) {
            self.family.mark_mapped(self.inode);
        }
    }

    /// Whether a close would have to write anything back.
    pub(super) fn has_dirty(&self) -> bool {
        self.handle.has_dirty() || self.other.get().is_some_and(|other| other.has_dirty())
    }

    /// Flushes, as `close(2)` does.
    pub(super) fn flush(&self) -> Result<(), FsError> {
        self.check_chunks().and(self.each(Handle::flush))
    }

    /// Fails if the last encoded chunk is incomplete.
    fn check_chunks(&self) -> Result<(), FsError> {
        self.chunks().map_or(Ok(()), ChunksFile::check)
    }

    /// Syncs, as `fsync(2)` does.
    pub(super) fn fsync(&self) -> Result<(), FsError> {
        self.check_chunks().and(self.each(Handle::fsync))
    }

    /// Does `what` with each of its handles, even if the first one fails.
    fn each(&self, what: impl Fn(&Handle) -> Result<(), FsError>) -> Result<(), FsError> {
        let first = what(&self.handle);
        let second = self.other.get().map_or(Ok(()), |other| what(other));
        first.and(second)
    }
}

/// Any thread may drop the last reference: the file ends on a thread that may block.
impl Drop for OpenFile {
    fn drop(&mut self) {
        if let (Some(mount), Some(ending)) = (self.mount.upgrade(), self.ending()) {
            mount.end(ending);
        }
    }
}
