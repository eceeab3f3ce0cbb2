//! Identifiers of the HDF5 library, its lock, and its errors.
//!
//! A [`Handle`] is one reference to an object of the library and is released when it is dropped. [`checked`] makes every
//! call: it holds the lock until the error of the call has been read, because the library has one stack of errors.

use std::ffi::{CStr, CString, c_uint, c_void};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use hdf5_metno_sys::h5i::{self, hid_t};
use hdf5_metno_sys::{LOCK, h5, h5e};

use crate::{FormatError, Result};

/// Reference to an object of the library; `file` is named in errors.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) id: hid_t,
    pub(super) file: Arc<Path>,
}

impl Handle {
    /// Takes the identifier that `call` returns.
    pub(super) fn new(
        file: &Arc<Path>,
        what: impl Display,
        call: impl FnOnce() -> hid_t,
    ) -> Result<Handle> {
        let id = checked(file, what, call)?;
        let file = Arc::clone(file);
        Ok(Handle { id, file })
    }

    /// An error about something in the file.
    pub(super) fn unsupported(&self, what: impl Display, why: impl Display) -> FormatError {
        FormatError::Unsupported {
            path: self.file.to_path_buf(),
            what: what.to_string(),
            why: why.to_string(),
        }
    }

    /// A name for the library.
    pub(super) fn c_name(&self, name: &str) -> Result<CString> {
        CString::new(name).map_err(|_| self.unsupported(format!("{name:?}"), "has a zero byte"))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the identifier is not used after this. It may have been closed with its file; the library then returns
        // an error, which does not matter.
        with_lock(|| unsafe { h5i::H5Idec_ref(self.id) });
    }
}

/// What a call of the library returns; negative is an error.
pub(super) trait Status: Copy {
    fn failed(self) -> bool;
}

macro_rules! status {
    ($($number:ty),*) => {$(
        impl Status for $number {
            fn failed(self) -> bool {
                self < 0
            }
        }
    )*};
}
status!(i32, i64, isize);

/// Makes a call; its error becomes one that names the file and `what` was done.
pub(super) fn checked<T: Status>(
    file: &Path,
    what: impl Display,
    call: impl FnOnce() -> T,
) -> Result<T> {
    let _one = LOCK.lock();
    be_quiet();
    let status = call();
    if !status.failed() {
        return Ok(status);
    }
    Err(FormatError::Library {
        path: file.to_owned(),
        what: what.to_string(),
        why: last_error(),
    })
}

/// Calls with the lock of the library.
pub(super) fn with_lock<R>(call: impl FnOnce() -> R) -> R {
    let _one = LOCK.lock();
    be_quiet();
    call()
}

/// Stops the library from printing errors, and from flushing files at exit that were left open because of one.
/// The setting belongs to each thread; it costs little.
fn be_quiet() {
    thread_local! {
        static QUIET: () = {
            // SAFETY: without a function to call there is none that could be called wrongly. `H5dont_atexit` fails if the
            // library is in use already, and that does not matter.
            unsafe {
                h5::H5dont_atexit();
                h5e::H5Eset_auto2(h5e::H5E_DEFAULT, None, std::ptr::null_mut());
            }
        };
    }
    QUIET.with(|()| ());
}

/// The text of the last error: what failed, and the innermost reason. The lock is held since the call.
fn last_error() -> String {
    let mut texts: Vec<String> = Vec::new();
    // SAFETY: the callback gets a pointer to `texts`, which outlives the walk.
    unsafe {
        let texts: *mut Vec<String> = &mut texts;
        h5e::H5Ewalk2(
            h5e::H5E_DEFAULT,
            h5e::H5E_WALK_DOWNWARD,
            Some(take_text),
            texts.cast::<c_void>(),
        );
        h5e::H5Eclear2(h5e::H5E_DEFAULT);
    }
    let Some(outer) = texts.first() else {
        return "the HDF5 library gives no reason".to_owned();
    };
    // The errors of system calls are in a long text with times and pointers.
    let system = texts.iter().rev().find_map(|text| {
        let (_, rest) = text.split_once("error message = '")?;
        rest.split_once('\'').map(|(message, _)| message.to_owned())
    });
    match (system, texts.last()) {
        (Some(system), _) => format!("{outer}: {system}"),
        (None, Some(inner)) if inner != outer => format!("{outer}: {inner}"),
        _ => outer.clone(),
    }
}

unsafe extern "C" fn take_text(
    _: c_uint,
    error: *const h5e::H5E_error2_t,
    texts: *mut c_void,
) -> i32 {
    // SAFETY: the library gives an error whose text is a C string or null; `texts` is the vector of `last_error`.
    unsafe {
        let text = (*error).desc;
        if !text.is_null() {
            let text = CStr::from_ptr(text).to_string_lossy().into_owned();
            (*texts.cast::<Vec<String>>()).push(text);
        }
    }
    0
}
