//! Transfers: reads and writes that are started and waited for.

use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use slabfs_fs::session::{self, Control, Error, Failed};

use crate::error::{call, checked, closed, raised};
use crate::memory::Array;
use crate::object::LOOK;

/// A read or write of an array.
#[pyclass(module = "slabfs._native", frozen)]
pub(crate) struct Transfer {
    process: u32,
    control: Control,
    state: Mutex<State>,
}

/// How long a wait that was interrupted waits for the end of what runs.
const LAST: Duration = Duration::from_secs(2);

enum State {
    Unfinished(session::Transfer<Array>),
    /// Another thread takes the result now.
    Taken,
    Ended(Result<(), Error>),
}

/// Waits until a transfer has ended. Signals that come to the main thread cancel it, and raise what their handler does.
fn wait(py: Python<'_>, control: &Control) -> PyResult<()> {
    while !py.detach(|| control.wait_for(LOOK)) {
        if let Err(error) = checked(py) {
            // If it runs, it ends by itself, and uses the memory up to then: mostly at once.
            py.detach(|| {
                control.cancel();
                control.wait_for(LAST);
            });
            return Err(error);
        }
    }
    Ok(())
}

/// Makes a transfer, without the interpreter's lock: it looks at the form of the object, which a call that waits for that
/// lock may change.
pub(crate) fn made(
    py: Python<'_>,
    make: impl FnOnce() -> Result<session::Transfer<Array>, Failed<Array>> + Send,
) -> PyResult<session::Transfer<Array>> {
    call(py, || make().map_err(Error::from))
}

/// Starts a transfer and waits for it.
pub(crate) fn finish(py: Python<'_>, mut transfer: session::Transfer<Array>) -> PyResult<()> {
    call(py, || transfer.start().map_err(Error::from))?;
    wait(py, &transfer.control())?;
    let result = py.detach(|| transfer.wait().map(drop));
    result.map_err(|failed| raised(py, &failed.into()))
}

impl Transfer {
    pub(crate) fn of(
        py: Python<'_>,
        make: impl FnOnce() -> Result<session::Transfer<Array>, Failed<Array>> + Send,
    ) -> PyResult<Transfer> {
        let transfer = made(py, make)?;
        Ok(Transfer {
            process: std::process::id(),
            control: transfer.control(),
            state: Mutex::new(State::Unfinished(transfer)),
        })
    }

    fn control(&self, py: Python<'_>) -> PyResult<&Control> {
        match self.process == std::process::id() {
            true => Ok(&self.control),
            false => Err(closed(py)),
        }
    }
}

#[pymethods]
impl Transfer {
    /// Starts it, if it was not started.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        let control = self.control(py)?;
        call(py, || control.start().map_err(Error::from))
    }

    /// Whether it has ended.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.control(py)?.test())
    }

    /// Cancels it, as far as it has had no effect.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let control = self.control(py)?;
        py.detach(|| control.cancel());
        Ok(())
    }

    /// Waits for its end, after starting it if necessary.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let control = self.control(py)?;
        call(py, || control.start().map_err(Error::from))?;
        wait(py, control)?;
        // Not with the lock: an exception is made by Python, in which other threads may run.
        let error = py.detach(|| {
            let mut state = self.state.lock();
            if let State::Unfinished(_) = &*state
                && let State::Unfinished(transfer) = std::mem::replace(&mut *state, State::Taken)
            {
                // It has ended: this does not wait.
                *state = State::Ended(transfer.wait().map(drop).map_err(Error::from));
            }
            match &*state {
                State::Ended(Err(error)) => Some(error.clone()),
                State::Ended(Ok(())) | State::Taken | State::Unfinished(_) => None,
            }
        });
        match error {
            Some(error) => Err(raised(py, &error)),
            None => Ok(()),
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The parent's.
            let state = std::mem::replace(&mut *self.state.lock(), State::Taken);
            std::mem::forget(state);
        }
    }
}

/// Starts transfers together: their requests to a data server travel in one message.
#[pyfunction]
pub(crate) fn start_all(py: Python<'_>, transfers: Vec<PyRef<'_, Transfer>>) -> PyResult<()> {
    let controls: PyResult<Vec<Control>> = transfers
        .iter()
        .map(|transfer| transfer.control(py).cloned())
        .collect();
    let mut controls = controls?;
    call(py, || {
        session::start_all(&mut controls).map_err(Error::from)
    })
}
