//! The native part of the Python package `slabfs`: sessions, open objects and transfers, for NumPy's arrays.
//!
//! It moves elements between objects and the memory of NumPy's arrays, and knows neither indexing nor attributes: these
//! are in Python (`slabfs/`). By file: `session` for names, tags and searches, `object` for reads and writes, `transfer`
//! for those that are started and waited for, `memory` for the arrays, `own` for what a process may use, `error` for
//! exceptions.
//!
//! Invariants: no call waits for anything with the interpreter's lock. In the main thread waits end with Ctrl-C. A child
//! of `fork` gets an error from all that its parent made, and changes nothing of it.

mod error;
mod index;
mod memory;
mod object;
mod own;
mod session;
mod transfer;

use pyo3::prelude::*;

/// The module `slabfs._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<session::Session>()?;
    module.add_class::<object::Object>()?;
    module.add_class::<transfer::Transfer>()?;
    module.add_function(wrap_pyfunction!(transfer::start_all, module)?)?;
    module.add("version", env!("CARGO_PKG_VERSION"))
}
