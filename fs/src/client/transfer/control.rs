//! A second handle on a transfer, to start, watch and cancel it from another thread.

use std::sync::Arc;
use std::time::Duration;

use super::own::sealed::{Inside, Sealed};
use super::{Startable, Transfer, start_all};
use crate::client::error::FsError;
use crate::client::request::core::{Core, Phase};

/// Starts, watches and cancels a transfer that another thread may wait for; clones refer to the same transfer. The
/// result and the buffer stay with the [`Transfer`] itself; a transfer that was dropped before it was started can no
/// longer be started.
#[derive(Debug, Clone)]
pub struct Control(Arc<Core>);

// A borrowed buffer may be freed while this exists: only its scope knows when, and nothing may start then.
impl<B: 'static> Transfer<B> {
    /// A handle on this transfer for another thread.
    ///
    /// Not available for a transfer of a borrowed buffer:
    ///
    /// ```compile_fail
    /// # use slabfs_fs::client::transfer::{self, Memory};
    /// # use slabfs_model::Hyperslab;
    /// # fn f(handle: &std::sync::Arc<slabfs_fs::client::Handle>) {
    /// let buffer = vec![0u8; 100];
    /// let control = transfer::scope(|scope| {
    ///     let write = scope.write(handle, &Hyperslab::all(&[100]), &Memory::packed(), &buffer);
    ///     write.unwrap().control()
    /// });
    /// # }
    /// ```
    ///
    /// # Panics
    /// If it was polled to its end before.
    pub fn control(&self) -> Control {
        let Some(core) = self.core() else {
            panic!("the control of a transfer was requested after its end");
        };
        Control(core.clone())
    }
}

impl Control {
    /// As [`Transfer::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(&self) -> Result<(), FsError> {
        start_all([&mut self.clone()])
    }

    /// As [`Transfer::test`].
    pub fn test(&self) -> bool {
        self.0.phase() == Phase::Ended
    }

    /// As [`Transfer::cancel`].
    pub fn cancel(&self) {
        self.0.plan.handle.client.transfers().cancel(&self.0);
    }

    /// Waits for the end of a transfer that was started; returns at once if it was not.
    pub fn wait(&self) {
        self.0.wait();
    }

    /// As [`Control::wait`], for at most this time. Returns whether the transfer is neither queued nor running then.
    pub fn wait_for(&self, time: Duration) -> bool {
        self.0.wait_for(time)
    }
}

impl Startable for Control {}

impl Sealed for Control {
    fn inside(&self) -> Option<Inside> {
        Some(Inside(self.0.clone()))
    }
}
