//! Error codes, the error message of each thread, and the only place that catches panics.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use slabfs_fs::session::{Error, ErrorKind, FsError};

/// Success.
pub const SLABFS_OK: i32 = 0;
/// No entry with that name exists.
pub const SLABFS_ENOTFOUND: i32 = -1;
/// The name exists already.
pub const SLABFS_EEXISTS: i32 = -2;
/// The operation requires a container.
pub const SLABFS_ENOTCONTAINER: i32 = -3;
/// The operation does not accept a container.
pub const SLABFS_EISCONTAINER: i32 = -4;
/// The container is not empty.
pub const SLABFS_ENOTEMPTY: i32 = -5;
/// The user lacks permission.
pub const SLABFS_EDENIED: i32 = -6;
/// The session is read-only, or the object was not opened for writing.
pub const SLABFS_EREADONLY: i32 = -7;
/// The request is invalid; the message gives the reason and the remedy.
pub const SLABFS_EINVALID: i32 = -8;
/// A name, a size or a number exceeds its limit.
pub const SLABFS_ETOOLARGE: i32 = -9;
/// A disk is full, or an object has the maximum number of tags.
pub const SLABFS_ENOSPACE: i32 = -10;
/// The filesystem does not support the operation.
pub const SLABFS_ENOTSUPPORTED: i32 = -11;
/// Another client is using it; a later retry may succeed.
pub const SLABFS_EBUSY: i32 = -12;
/// The object was removed or replaced since it was opened.
pub const SLABFS_ESTALE: i32 = -13;
/// A server could not be reached in time; a later retry may succeed.
pub const SLABFS_EUNAVAILABLE: i32 = -14;
/// The session is lost; data that was not flushed may be lost.
pub const SLABFS_ELOST: i32 = -15;
/// Stored data is damaged: its checksum does not match.
pub const SLABFS_EDAMAGED: i32 = -16;
/// A disk or a protocol failed.
pub const SLABFS_EIO: i32 = -17;
/// The session was closed.
pub const SLABFS_ECLOSED: i32 = -18;
/// The handle does not exist or was closed.
pub const SLABFS_EHANDLE: i32 = -19;
/// Internal error: a bug of the library, described by the message.
pub const SLABFS_EINTERNAL: i32 = -20;
/// The operation was cancelled before any part of it was done.
pub const SLABFS_ECANCELLED: i32 = -21;

/// The failure of a call: code, message, and position.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    code: i32,
    message: String,
    index: Option<usize>,
    elements: Vec<Vec<u32>>,
}

impl Failure {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Failure {
        Failure {
            code,
            message: message.into(),
            index: None,
            elements: Vec::new(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(SLABFS_EINVALID, message)
    }

    /// Prefixes the message with its subject.
    pub(crate) fn about(mut self, what: &str) -> Failure {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// Sets the path of the batch element that it refers to.
    pub(crate) fn element(mut self, path: Vec<u32>) -> Failure {
        self.elements = vec![path];
        self
    }

    /// Sets the index of the argument that it refers to.
    pub(crate) fn at(mut self, index: usize) -> Failure {
        self.index = Some(index);
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            code: code(error.kind()),
            index: error.index(),
            elements: error.elements().to_vec(),
            message: error.to_string(),
        }
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        Error::from(error).into()
    }
}

fn code(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => SLABFS_ENOTFOUND,
        ErrorKind::Exists => SLABFS_EEXISTS,
        ErrorKind::NotContainer => SLABFS_ENOTCONTAINER,
        ErrorKind::IsContainer => SLABFS_EISCONTAINER,
        ErrorKind::NotEmpty => SLABFS_ENOTEMPTY,
        ErrorKind::Denied => SLABFS_EDENIED,
        ErrorKind::ReadOnly => SLABFS_EREADONLY,
        ErrorKind::Invalid => SLABFS_EINVALID,
        ErrorKind::TooLarge => SLABFS_ETOOLARGE,
        ErrorKind::NoSpace => SLABFS_ENOSPACE,
        ErrorKind::NotSupported => SLABFS_ENOTSUPPORTED,
        ErrorKind::Busy => SLABFS_EBUSY,
        ErrorKind::Stale => SLABFS_ESTALE,
        ErrorKind::Unavailable => SLABFS_EUNAVAILABLE,
        ErrorKind::Lost => SLABFS_ELOST,
        ErrorKind::Damaged => SLABFS_EDAMAGED,
        ErrorKind::Io => SLABFS_EIO,
        ErrorKind::Cancelled => SLABFS_ECANCELLED,
        ErrorKind::Closed => SLABFS_ECLOSED,
    }
}

/// The result of a thread's last call.
struct Last {
    message: CString,
    index: i64,
    elements: Vec<Vec<u32>>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last {
        message: CString::default(),
        index: -1,
        elements: Vec::new(),
    });
}

/// Runs the body of a call, and converts an error or a panic to a code and a message.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(Failure::new(
            SLABFS_EINTERNAL,
            format!("internal error: {text}; please report it"),
        ))
    });
    let failure = done.err().unwrap_or(Failure::new(SLABFS_OK, ""));
    let mut bytes = failure.message.into_bytes();
    bytes.retain(|&byte| byte != 0);
    let last = Last {
        message: CString::new(bytes).unwrap_or_default(),
        index: failure.index.map_or(-1, |index| index as i64),
        elements: failure.elements,
    };
    // A thread that is terminating has no message.
    let _ = LAST.try_with(|place| *place.borrow_mut() = last);
    failure.code
}

/// The error message of the last call of this thread, with the remedy; empty if the call succeeded. The string is
/// valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// The index, from 0, of the argument that the last error of this thread refers to, in a call with a list of
/// arguments; otherwise -1.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_error_index() -> i64 {
    LAST.try_with(|last| last.borrow().index).unwrap_or(-1)
}

/// The position of the batch element that the last error of this thread refers to: its index in the top vector,
/// then in the vector below, and so on. An error refers to one element, or to two that conflict: `which` is 0 or
/// 1. Returns the number of indices, 0 if there is no such element, and writes at most `room` of them to `path`.
///
/// # Safety
/// `path` points to `room` numbers, or is NULL with `room` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_error_element(which: usize, path: *mut u32, room: usize) -> usize {
    let indices = LAST.try_with(|last| last.borrow().elements.get(which).cloned());
    let indices = indices.ok().flatten().unwrap_or_default();
    let some = indices.len().min(room);
    if some > 0 && !path.is_null() {
        // SAFETY: the caller guarantees the space, which does not overlap.
        unsafe { std::ptr::copy_nonoverlapping(indices.as_ptr(), path, some) };
    }
    indices.len()
}

/// The name of a code, like `SLABFS_ENOTFOUND`; `unknown` for other numbers.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_error_name(code: i32) -> *const c_char {
    let name = match code {
        SLABFS_OK => c"SLABFS_OK",
        SLABFS_ENOTFOUND => c"SLABFS_ENOTFOUND",
        SLABFS_EEXISTS => c"SLABFS_EEXISTS",
        SLABFS_ENOTCONTAINER => c"SLABFS_ENOTCONTAINER",
        SLABFS_EISCONTAINER => c"SLABFS_EISCONTAINER",
        SLABFS_ENOTEMPTY => c"SLABFS_ENOTEMPTY",
        SLABFS_EDENIED => c"SLABFS_EDENIED",
        SLABFS_EREADONLY => c"SLABFS_EREADONLY",
        SLABFS_EINVALID => c"SLABFS_EINVALID",
        SLABFS_ETOOLARGE => c"SLABFS_ETOOLARGE",
        SLABFS_ENOSPACE => c"SLABFS_ENOSPACE",
        SLABFS_ENOTSUPPORTED => c"SLABFS_ENOTSUPPORTED",
        SLABFS_EBUSY => c"SLABFS_EBUSY",
        SLABFS_ESTALE => c"SLABFS_ESTALE",
        SLABFS_EUNAVAILABLE => c"SLABFS_EUNAVAILABLE",
        SLABFS_ELOST => c"SLABFS_ELOST",
        SLABFS_EDAMAGED => c"SLABFS_EDAMAGED",
        SLABFS_EIO => c"SLABFS_EIO",
        SLABFS_ECLOSED => c"SLABFS_ECLOSED",
        SLABFS_EHANDLE => c"SLABFS_EHANDLE",
        SLABFS_EINTERNAL => c"SLABFS_EINTERNAL",
        SLABFS_ECANCELLED => c"SLABFS_ECANCELLED",
        _ => c"unknown",
    };
    name.as_ptr()
}

/// The version of this library, like `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
