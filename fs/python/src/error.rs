//! Exceptions: each kind of error has a class in `slabfs._errors`.

use std::cell::Cell;
use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use slabfs_fs::session::{Error, ErrorKind, Interrupt};

/// The name of the class.
fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Exists => "ExistsError",
        ErrorKind::NotContainer => "NotAContainerError",
        ErrorKind::IsContainer => "IsAContainerError",
        ErrorKind::NotEmpty => "NotEmptyError",
        ErrorKind::Denied => "AccessError",
        ErrorKind::ReadOnly => "ReadOnlyError",
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::TooLarge => "TooLargeError",
        ErrorKind::NoSpace => "NoSpaceError",
        ErrorKind::NotSupported => "NotSupportedError",
        ErrorKind::Busy => "BusyError",
        ErrorKind::Stale => "StaleError",
        ErrorKind::Unavailable | ErrorKind::Lost => "ServiceError",
        ErrorKind::Damaged => "DamagedError",
        ErrorKind::Io => "StorageError",
        ErrorKind::Cancelled => "CancelledError",
        ErrorKind::Closed => "ClosedError",
    }
}

fn made(py: Python<'_>, class: &str, message: String) -> PyErr {
    let error = py
        .import("slabfs._errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| class.call1((message,)));
    match error {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// The exception of an error.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    made(py, class(error.kind()), error.to_string())
}

/// The exception of a request that makes no sense.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    made(py, "InvalidError", message.into())
}

/// The exception of what was closed.
pub(crate) fn closed(py: Python<'_>) -> PyErr {
    made(
        py,
        "ClosedError",
        "the session or the array was closed".to_owned(),
    )
}

/// Runs a call without the interpreter's lock. In the main thread signals of Python end its waits, and what their handler
/// raises is its result.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    outermost(py)?;
    let done = py.detach(|| SIGNALS.with(|signals| signals.interrupt.during(work)));
    match SIGNALS.with(|signals| signals.raised.lock().take()) {
        Some(error) => Err(error),
        None => done.map_err(|error| raised(py, &error)),
    }
}

/// As [`call`], to its end whatever signals come: for what may leave data behind.
pub(crate) fn call_to_end<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    outermost(py)?;
    py.detach(work).map_err(|error| raised(py, &error))
}

/// Runs handlers of signals that have come.
pub(crate) fn checked(py: Python<'_>) -> PyResult<()> {
    CHECKING.set(true);
    let result = py.check_signals();
    CHECKING.set(false);
    result
}

/// Fails in a handler of a signal that has come during another call of this thread: that call may hold what this one needs.
fn outermost(py: Python<'_>) -> PyResult<()> {
    match CHECKING.get() {
        false => Ok(()),
        true => Err(made(
            py,
            "BusyError",
            "a handler of a signal has interrupted a call of slabfs, and cannot make another one"
                .to_owned(),
        )),
    }
}

/// What ends the calls of a thread: an exception of a handler of signals, which Python runs in the main thread only.
struct Signals {
    interrupt: Interrupt,
    raised: Arc<Mutex<Option<PyErr>>>,
}

thread_local! {
    /// Whether handlers of signals run during a call.
    static CHECKING: Cell<bool> = const { Cell::new(false) };
    static SIGNALS: Signals = {
        let raised = Arc::new(Mutex::new(None));
        let (own, place) = (std::thread::current().id(), raised.clone());
        let check = move || {
            // Other threads help with calls, and never need the interpreter.
            if std::thread::current().id() != own {
                return false;
            }
            let error = Python::try_attach(|py| checked(py).err()).flatten();
            let found = error.is_some();
            if found {
                *place.lock() = error;
            }
            found
        };
        Signals {
            interrupt: Interrupt::new(check),
            raised,
        }
    };
}
