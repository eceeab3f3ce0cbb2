//! A transfer under way for a program in C: anybody may start, test, wait for, cancel or free it, at the same time.
//!
//! The program lends the buffer from the start to the end of the transfer; nothing here knows whether it keeps to that.
//! What the library promises: from the end on, which `wait` and `free` wait for, it does not touch the buffer.

use parking_lot::Mutex;
use slabfs_fs::session::{Control, Error, Failed, Object, Transfer};

use crate::error::Failure;

/// A program's buffer.
#[derive(Debug)]
pub(crate) struct Borrowed {
    start: *mut u8,
    len: usize,
}

// SAFETY: bytes at an address, which the program may use from any thread.
unsafe impl Send for Borrowed {}

impl Borrowed {
    /// # Safety
    /// `start` points to `len` bytes until the transfer that gets this has ended, that nobody else writes, and, if it is
    /// read into, nobody else reads meanwhile. It is no NULL unless `len` is 0.
    pub(crate) unsafe fn new(start: *mut u8, len: usize) -> Borrowed {
        Borrowed { start, len }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: as the constructor asks.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }
}

impl AsMut<[u8]> for Borrowed {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: as the constructor asks.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }
}

/// A transfer, and its result when it has ended and somebody looked.
#[derive(Debug)]
pub(crate) struct Pending {
    control: Control,
    /// What errors are about.
    path: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Under(Transfer<Borrowed>),
    Over(Result<(), Failure>),
}

impl Pending {
    /// What became of making one.
    pub(crate) fn of(
        object: &Object,
        made: Result<Transfer<Borrowed>, Failed<Borrowed>>,
    ) -> Result<Pending, Failure> {
        let path = object.path().display().to_string();
        let transfer = made.map_err(|failed| Failure::from(Error::from(failed)).about(&path))?;
        Ok(Pending {
            control: transfer.control(),
            path,
            state: Mutex::new(State::Under(transfer)),
        })
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    pub(crate) fn start(&self) -> Result<(), Failure> {
        let started = self.control.start();
        started.map_err(|error| Failure::from(Error::from(error)).about(&self.path))
    }

    /// Waits for its end, after starting it if nobody has; the same result for all who wait.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        // One that is refused ends below with that.
        if self.control.start().is_ok() {
            self.control.wait();
        }
        let mut state = self.state.lock();
        if let State::Over(result) = &*state {
            return result.clone();
        }
        let State::Under(transfer) = std::mem::replace(&mut *state, State::Over(Ok(()))) else {
            return Ok(());
        };
        let result = match transfer.wait() {
            Ok(_) => Ok(()),
            Err(failed) => Err(Failure::from(Error::from(failed)).about(&self.path)),
        };
        *state = State::Over(result.clone());
        result
    }

    /// Ends it, done or not.
    pub(crate) fn end(&self) {
        self.control.cancel();
        self.control.wait();
    }
}
