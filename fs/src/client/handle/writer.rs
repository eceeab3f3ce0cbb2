//! The part of a handle that its object refers to: its id, and its deferred error.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::client::error::FsError;

/// Id of a handle within one mount; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::client) struct HandleId(pub(in crate::client) u64);

/// The deferred state of a handle: an error of a flush in the background, which is returned once, by the next call
/// that checks it; and whether a lock that was taken through the handle is lost.
#[derive(Debug, Default)]
pub(in crate::client) struct Waiting {
    error: Mutex<Option<FsError>>,
    unlocked: AtomicBool,
}

impl Waiting {
    /// Stores an error, unless an older one is stored already.
    pub(in crate::client) fn keep(&self, error: FsError) {
        self.error.lock().get_or_insert(error);
    }

    /// Returns the deferred error, if any, without clearing it.
    pub(in crate::client) fn look(&self) -> Result<(), FsError> {
        self.error.lock().clone().map_or(Ok(()), Err)
    }

    /// Returns the deferred error, if any, and clears it.
    pub(in crate::client) fn take(&self) -> Result<(), FsError> {
        match self.error.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Sets whether a lock that was taken through the handle is lost with its session; cleared when a lock is
    /// requested again.
    pub(in crate::client) fn set_unlocked(&self, unlocked: bool) {
        self.unlocked.store(unlocked, Ordering::SeqCst);
    }

    /// Fails if the program may believe to hold a lock that it does not.
    pub(in crate::client) fn check_locks(&self) -> Result<(), FsError> {
        match self.unlocked.load(Ordering::SeqCst) {
            false => Ok(()),
            true => Err(FsError::Unlocked),
        }
    }
}
