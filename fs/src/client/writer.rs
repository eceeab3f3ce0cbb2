//! What the shared parts of an object know of a handle: its id, and where an error waits for it.

use parking_lot::Mutex;

use super::error::FsError;

/// Which handle, within one mount; never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HandleId(pub(super) u64);

/// An error that a flush in the background met; it waits here until the program asks, and is told once.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Option<FsError>>);

impl Waiting {
    /// Keeps an error, unless an older one waits already.
    pub(super) fn keep(&self, error: FsError) {
        self.0.lock().get_or_insert(error);
    }

    /// Tells the error that waits, if one does, and keeps it.
    pub(super) fn look(&self) -> Result<(), FsError> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }

    /// Takes the error that waits, if one does.
    pub(super) fn take(&self) -> Result<(), FsError> {
        match self.0.lock().take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
