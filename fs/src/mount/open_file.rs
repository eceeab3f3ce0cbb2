//! What is behind a file handle.
//!
//! The kernel releases a handle when all requests on it are answered. That is no longer to say that they are done: one
//! whose sender was killed may be answered long before (`killed.rs`). So an open file ends ([`Ending`]) when the last
//! of those lets go of it that work on it, which is nearly always whoever serves the release.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use slabfs_mdserver::api::{Ino, LockFile, LockKind, LockOwner};
use slabfs_model::Selection;

use crate::client::{Client, FsError, Handle, OpenMode};

use super::call::Call;
use super::errno::report;
use super::families::Family;
use super::shared::Shared;
use super::viewed::Views;

/// An open file of the mount.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are files, and each is behind an Arc"
)]
pub(super) enum Open {
    /// An object, or a selection of one.
    File(OpenFile),
    /// A hidden file: its text as it was when it was opened.
    Text(Vec<u8>),
    /// `.slabfs/call`.
    Call(Arc<Call>),
}

/// An open object, or an open selection of one.
///
/// Whether a write appends is a flag that a program may change after opening, and a page that the kernel
/// writes back always has a place of its own even if the only handle is an appending one. The client's
/// handles append always or never; so there may be two behind one file, the second made when it is needed.
pub(super) struct OpenFile {
    /// Never used twice: the number of the handle is, and so is the kernel's for the owner of its locks.
    pub(super) id: u64,
    /// The inode of the mount it was opened through.
    pub(super) inode: u64,
    /// The object whose bytes these are.
    pub(super) object: Ino,
    /// Open for writing.
    pub(super) write: bool,
    /// Its object's open inodes.
    pub(super) family: Arc<Family>,
    /// Whether the kernel is known to have pages of the inode, so that it need not be noted again.
    mapped: AtomicBool,
    selection: Option<Selection>,
    handle: Arc<Handle>,
    appends: bool,
    other: OnceLock<Arc<Handle>>,
    views: Views,
    mount: Weak<Shared>,
    /// Locks that end with it, once it is released.
    closing: OnceLock<Vec<(LockKind, LockOwner)>>,
    over: bool,
}

/// What is to be done when nobody works on an open file any more.
pub(super) struct Ending {
    handles: [Option<Arc<Handle>>; 2],
    family: Arc<Family>,
    inode: u64,
    write: bool,
    locks: Vec<(LockKind, LockOwner)>,
    lock_file: LockFile,
}

impl Ending {
    /// Flushes what was written and ends the handles, and after that the locks: whoever gets one finds what was written
    /// under it. Nobody hears an error, so it is only logged.
    pub(super) fn run(self, shared: &Shared) {
        for handle in self.handles.into_iter().flatten() {
            if let Err(error) = handle.release() {
                report("release", self.inode, &error.into());
            }
        }
        shared.families.leave(&self.family, self.inode, self.write);
        for (kind, owner) in self.locks {
            shared
                .client
                .unlock_all(self.lock_file.clone(), kind, owner);
        }
    }
}

impl OpenFile {
    pub(super) fn new(
        mount: &Arc<Shared>,
        id: u64,
        inode: u64,
        mode: OpenMode,
        selection: Option<Selection>,
        handle: Arc<Handle>,
        family: Arc<Family>,
    ) -> OpenFile {
        OpenFile {
            id,
            inode,
            object: handle.ino(),
            write: mode.write,
            family,
            mapped: AtomicBool::new(false),
            selection,
            handle,
            appends: mode.append,
            other: OnceLock::new(),
            views: Views::default(),
            mount: Arc::downgrade(mount),
            closing: OnceLock::new(),
            over: false,
        }
    }

    /// It is released; says whether any locks end with it.
    pub(super) fn close(&self, client: &Arc<Client>) -> bool {
        let locks = client.closing_locks(&self.lock_file(), self.id);
        let any = !locks.is_empty();
        if self.closing.set(locks).is_err() {
            tracing::error!(inode = self.inode, "a file was released twice");
        }
        any
    }

    /// What ends it, by whoever had the last of it; once.
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

    /// What its locks are on.
    pub(super) fn lock_file(&self) -> LockFile {
        LockFile {
            ino: self.object,
            selection: self.selection.clone(),
        }
    }

    /// A lock is about to be asked for through it.
    pub(super) fn note_locker(&self, client: &Client) {
        client.note_locker(self.id, &self.handle);
    }

    /// Whether it shows a selection.
    pub(super) fn is_selection(&self) -> bool {
        self.selection.is_some()
    }

    /// The view that a program has set on it.
    pub(super) fn views(&self) -> &Views {
        &self.views
    }

    /// The handle for reads, seeks and whatever else has a place.
    pub(super) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// The handle for a write that appends, or that has a place, if it is there already. A selection has
    /// no end to append to: its writes have a place whatever the flags say.
    pub(super) fn ready_writer(&self, append: bool) -> Option<&Arc<Handle>> {
        let append = append && self.selection.is_none();
        if append == self.appends {
            Some(&self.handle)
        } else {
            self.other.get()
        }
    }

    /// The same; opens it, which asks the metadata service, if need be.
    pub(super) fn writer(
        &self,
        client: &Arc<Client>,
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
            // Somebody was faster.
            unused.release()?;
        }
        Ok(self.other.get().unwrap_or(&self.handle))
    }

    /// Notes, before its bytes are read, that the kernel is about to have a page of the inode.
    pub(super) fn note_mapped(&self) {
        if !self.mapped.swap(true, Ordering::AcqRel) {
            self.family.mark_mapped(self.inode);
        }
    }

    /// Whether a close would have to write anything.
    pub(super) fn has_dirty(&self) -> bool {
        self.handle.has_dirty() || self.other.get().is_some_and(|other| other.has_dirty())
    }

    /// As `close(2)`.
    pub(super) fn flush(&self) -> Result<(), FsError> {
        self.each(Handle::flush)
    }

    /// As `fsync(2)`.
    pub(super) fn fsync(&self) -> Result<(), FsError> {
        self.each(Handle::fsync)
    }

    /// Does `what` with each of its handles, even if the first one fails.
    fn each(&self, what: impl Fn(&Handle) -> Result<(), FsError>) -> Result<(), FsError> {
        let first = what(&self.handle);
        let second = self.other.get().map_or(Ok(()), |other| what(other));
        first.and(second)
    }
}

/// The last to work on it may be anybody: it ends on a thread that may wait.
impl Drop for OpenFile {
    fn drop(&mut self) {
        if let (Some(shared), Some(ending)) = (self.mount.upgrade(), self.ending()) {
            let worker = shared.clone();
            shared.waits.submit(Box::new(move || ending.run(&worker)));
        }
    }
}
