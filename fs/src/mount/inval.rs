//! Invalidation: makes the kernel drop what it caches of an inode.
//!
//! The kernel caches pages of an inode only while it is mapped (all handles bypass the page cache). But a
//! selection and the plain file are different inodes over the same bytes: a write through one makes pages
//! of the other stale, and a dirty page of the other, written back later, would undo the write. So a write
//! on an object that is mapped through another inode runs like this:
//!
//! 1. the other inode's pages are written back and dropped,
//! 2. the write is done,
//! 3. pages that were read meanwhile are dropped again, and only then is the write answered.
//!
//! Dropping pages waits for the kernel, which waits for this daemon to answer the write-backs and the reads
//! in flight. Therefore it happens on threads that hold no lock and that nothing in the daemon waits for:
//! the step after an invalidation is given to it as a continuation. Write-backs themselves (they come
//! with `FUSE_WRITE_CACHE`) never wait for an invalidation; the ones they cause are only queued.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use fuser::{INodeNo, Notifier};

use crate::call::Changed;

use super::pool::{Job, Pool};

const THREADS: usize = 4;

/// What the kernel should drop of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forget {
    /// Size, times and mode; pages stay.
    Attributes,
    /// Pages too; dirty ones are written back first.
    Pages,
}

/// The threads that send notifications to the kernel.
pub(super) struct Inval {
    notifier: OnceLock<Notifier>,
    pool: Pool,
}

impl Inval {
    pub(super) fn new() -> Inval {
        Inval {
            notifier: OnceLock::new(),
            pool: Pool::unbounded("slabfs-inval", THREADS),
        }
    }

    /// Sets the channel to the kernel; before that the kernel caches nothing.
    pub(super) fn connect(&self, notifier: Notifier) {
        if self.notifier.set(notifier).is_err() {
            tracing::error!("a mount has got a second session; its invalidations go to the first");
        }
    }

    /// Drops `what` of each inode, and then runs `then`, on a thread of this pool; returns at once.
    ///
    /// `then` must not wait for the kernel.
    pub(super) fn forget(&self, inodes: Vec<u64>, what: Forget, then: Option<Job>) {
        let Some(notifier) = self.notifier.get().cloned() else {
            if let Some(then) = then {
                self.pool.submit(then);
            }
            return;
        };
        self.pool.submit(Box::new(move || {
            for inode in inodes {
                forget_one(&notifier, inode, what);
            }
            if let Some(then) = then {
                then();
            }
        }));
    }

    /// Drops the pages of an inode that overlap `bytes`; returns when they are gone. The kernel may wait for its own
    /// reads and writes of these pages meanwhile, so only threads that those do not need may call this
    /// (`client/coherence/rights/recall.rs`, `client/coherence/rights/page_overlap.rs`).
    pub(super) fn drop_now(&self, inode: u64, bytes: Range<u64>) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        // Length 0 means to the end.
        let (offset, len) = match (i64::try_from(bytes.start), i64::try_from(bytes.end)) {
            (Ok(from), Ok(to)) => (from, to - from),
            (Ok(from), Err(_)) => (from, 0),
            (Err(_), _) => return,
        };
        if let Err(error) = notifier.inval_inode(INodeNo(inode), offset, len) {
            // The session is ending: nothing is left that could be stale.
            tracing::debug!(%error, inode, "pages were not dropped");
        }
    }

    /// Drops all names, and the attributes of `open` inodes; attributes of other inodes are looked up again with their
    /// names. Waits for nothing. Returns false if the kernel does not support it.
    pub(super) fn forget_names(&self, open: &[u64]) -> bool {
        self.notifier
            .get()
            .is_none_or(|notifier| forget_names(notifier, open))
    }

    /// The same on a thread of this pool.
    pub(super) fn forget_names_soon(&self, open: Vec<u64>) {
        let Some(notifier) = self.notifier.get().cloned() else {
            return;
        };
        self.pool.submit(Box::new(move || {
            if !forget_names(&notifier, &open) {
                tracing::debug!("the kernel keeps cached names until they expire");
            }
        }));
    }

    /// Drops names and attributes that a call has changed; waits for the kernel, on the caller's thread.
    ///
    /// The kernel drops a name under its directory's lock, whose holder may wait for one of the threads here. So this
    /// is for threads of calls only: nothing waits for those.
    pub(super) fn forget_changed(&self, changed: Changed) {
        let Some(notifier) = self.notifier.get() else {
            return;
        };
        let Changed { names, mut inodes } = changed;
        for (parent, name) in names {
            let shown = OsStr::from_bytes(&name);
            if let Err(error) = notifier.inval_entry(INodeNo(parent.0), shown) {
                // The kernel did not have the name.
                tracing::trace!(%error, %parent, "a name was not forgotten");
            }
        }
        inodes.sort_unstable();
        inodes.dedup();
        for inode in inodes {
            forget_one(notifier, inode.0, Forget::Attributes);
        }
    }

    /// Finishes what is queued, then ends the threads.
    pub(super) fn stop(&self) {
        self.pool.stop();
    }
}

fn forget_names(notifier: &Notifier, open: &[u64]) -> bool {
    for &inode in open {
        forget_one(notifier, inode, Forget::Attributes);
    }
    match notifier.inc_epoch() {
        Ok(()) => true,
        Err(error) => {
            tracing::debug!(%error, "the kernel does not forget names at once");
            false
        }
    }
}

fn forget_one(notifier: &Notifier, inode: u64, what: Forget) {
    // A negative offset means attributes only; length 0 means to the end.
    let offset = match what {
        Forget::Attributes => -1,
        Forget::Pages => 0,
    };
    if let Err(error) = notifier.inval_inode(INodeNo(inode), offset, 0) {
        // The session is ending: nothing is left that could be stale.
        tracing::debug!(%error, inode, ?what, "an invalidation did not reach the kernel");
    }
}
