//! What the shared parts of an object know of a handle: its id, and where an error waits for it.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::error::FsError;

/// Which handle, within one mount; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HandleId(pub(super) u64);

/// What has to be told to whoever uses a handle: an error that a flush in the background met, which waits here until
/// the program asks, and is told once; and whether a lock that was taken through it is lost.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    error: Mutex<Option<FsError>>,
    unlocked: AtomicBool,
}

impl Waiting {
    /// Keeps an error, unless an older one waits already.
    pub(super) fn keep(&self, error: FsError) {
        self.error.lock().get_or_insert(error);
    }

    /// Tells the error that waits, if one does, and keeps it.
    pub(super) fn look(&self) -> Result<(), FsError> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Takes the error that waits, if one does.
    pub(super) fn take(&self) -> Result<(), FsError> {
        match self.error.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// A lock that was taken through the handle is lost with its session, or (`false`) one is asked for anew.
    pub(super) fn set_unlocked(&self, unlocked: bool) {
        self.unlocked.store(unlocked, Ordering::SeqCst);
    }

    /// Whether the program may believe to hold a lock that it does not.
    pub(super) fn check_locks(&self) -> Result<(), FsError> {
        match self.unlocked.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(FsError::Unlocked),
        }
    }
}
