//! [`Own`]: a value that only the process that made it may use.

use std::mem::ManuallyDrop;

use parking_lot::Mutex;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::closed;

/// A value of one process, until it is taken. In a child of `fork` it is neither used nor dropped: its threads do not
/// exist there, and its sockets are the parent's.
pub(crate) struct Own<T: Send> {
    process: u32,
    value: ManuallyDrop<Mutex<Option<T>>>,
}

impl<T: Send> Own<T> {
    pub(crate) fn new(value: T) -> Own<T> {
        Own {
            process: std::process::id(),
            value: ManuallyDrop::new(Mutex::new(Some(value))),
        }
    }

    fn check(&self) -> PyResult<()> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(PyRuntimeError::new_err(
                "this session belongs to the parent process: a child of fork() has to connect by itself, after \
                 exec(); use the start method 'spawn' or 'forkserver' of multiprocessing",
            )),
        }
    }

    /// What `f` makes of it.
    ///
    /// # Errors
    /// In a child of the process; when it was taken.
    pub(crate) fn with<R>(&self, py: Python<'_>, f: impl FnOnce(&T) -> R) -> PyResult<R> {
        self.check()?;
        match &*self.value.lock() {
            Some(value) => Ok(f(value)),
            None => Err(closed(py)),
        }
    }

    /// Takes it; the second time there is none.
    pub(crate) fn take(&self) -> PyResult<Option<T>> {
        self.check()?;
        Ok(self.value.lock().take())
    }
}

impl<T: Send> Drop for Own<T> {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        let Some(value) = self.value.lock().take() else {
            return;
        };
        // It may write back, which takes time: not with the interpreter's lock.
        let mut value = Some(value);
        let detached = Python::try_attach(|py| {
            let value = value.take();
            py.detach(move || drop(value));
        });
        if detached.is_none() {
            drop(value);
        }
    }
}
