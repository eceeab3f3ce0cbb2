//! A transfer of a C program: any threads may start, test, wait for, cancel or free it concurrently.
//!
//! The library uses the program's buffer from the start to the end of the transfer; it cannot check that the program
//! leaves it alone meanwhile. After the end, which `wait` and `free` wait for, the library does not touch the buffer.

use std::ffi::c_void;

use parking_lot::Mutex;
use slabfs_fs::session::{Control, Error, Failed, Object, Transfer};

use crate::argument::bytes;
use crate::error::Failure;

/// A program's buffer.
#[derive(Debug)]
pub(crate) struct Borrowed {
    start: *mut u8,
    len: usize,
}

// SAFETY: plain memory, which any thread may use.
unsafe impl Send for Borrowed {}

impl Borrowed {
    /// Refuses NULL and excessive lengths.
    ///
    /// # Safety
    /// Until the transfer that takes this has ended, `start` points to `len` bytes that no other code writes and, for a
    /// read, no other code reads. For a write, nothing is changed.
    pub(crate) unsafe fn new(start: *const c_void, len: usize) -> Result<Borrowed, Failure> {
        // SAFETY: nothing is read.
        unsafe { bytes(start, len)? };
        let start = start.cast_mut().cast();
        Ok(Borrowed { start, len })
    }

    /// Without its first bytes; `offset` is within the buffer or at its end.
    pub(crate) fn from(self, offset: usize) -> Borrowed {
        Borrowed {
            // The offset of NULL is 0.
            start: self.start.wrapping_add(offset),
            len: self.len - offset,
        }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        match self.len {
            0 => &[],
            // SAFETY: guaranteed by the constructor's contract.
            len => unsafe { std::slice::from_raw_parts(self.start, len) },
        }
    }
}

impl AsMut<[u8]> for Borrowed {
    fn as_mut(&mut self) -> &mut [u8] {
        match self.len {
            0 => &mut [],
            // SAFETY: guaranteed by the constructor's contract.
            len => unsafe { std::slice::from_raw_parts_mut(self.start, len) },
        }
    }
}

/// The result of creating a transfer.
pub(crate) type Made = Result<Transfer<Borrowed>, Failed<Borrowed>>;

/// A transfer, and its result once it has been waited for.
#[derive(Debug)]
pub(crate) struct Pending {
    control: Control,
    /// The path that error messages name.
    path: String,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Unfinished(Transfer<Borrowed>),
    Ended(Result<(), Failure>),
}

impl Pending {
    /// Wraps the result of creating a transfer.
    pub(crate) fn of(object: &Object, made: Made) -> Result<Pending, Failure> {
        let path = object.path().display().to_string();
        let transfer = made.map_err(|failed| Failure::from(Error::from(failed)).about(&path))?;
        Ok(Pending {
            control: transfer.control(),
            path,
            state: Mutex::new(State::Unfinished(transfer)),
        })
    }

    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    pub(crate) fn start(&self) -> Result<(), Failure> {
        let started = self.control.start();
        started.map_err(|error| Failure::from(Error::from(error)).about(&self.path))
    }

    /// Waits for its end, starting it if necessary; all waiters get the same result.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        // If the start is refused, the wait below returns that error.
        if self.control.start().is_ok() {
            self.control.wait();
        }
        let mut state = self.state.lock();
        if let State::Ended(result) = &*state {
            return result.clone();
        }
        let State::Unfinished(transfer) = std::mem::replace(&mut *state, State::Ended(Ok(())))
        else {
            return Ok(());
        };
        let result = transfer.wait().map(drop);
        let result = result.map_err(|failed| Failure::from(Error::from(failed)).about(&self.path));
        *state = State::Ended(result.clone());
        result
    }

    /// Cancels it if necessary, and waits for its end.
    pub(crate) fn end(&self) {
        self.control.cancel();
        self.control.wait();
    }
}
