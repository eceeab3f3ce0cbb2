//! Codes, the message of a thread, and the one place where a panic stops.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use slabfs_fs::session::{Error, ErrorKind, FsError};

/// It was done.
pub const SLABFS_OK: i32 = 0;
/// There is nothing of that name.
pub const SLABFS_ENOTFOUND: i32 = -1;
/// The name exists already.
pub const SLABFS_EEXISTS: i32 = -2;
/// A container was needed.
pub const SLABFS_ENOTCONTAINER: i32 = -3;
/// A container was not allowed.
pub const SLABFS_EISCONTAINER: i32 = -4;
/// The container has something in it.
pub const SLABFS_ENOTEMPTY: i32 = -5;
/// The user may not.
pub const SLABFS_EDENIED: i32 = -6;
/// The session, or the object as it was opened, does not allow changes.
pub const SLABFS_EREADONLY: i32 = -7;
/// The request makes no sense; the message says what would.
pub const SLABFS_EINVALID: i32 = -8;
/// A name, a size or a number beyond its limit.
pub const SLABFS_ETOOLARGE: i32 = -9;
/// A disk is full, or an object has as many tags as it may have.
pub const SLABFS_ENOSPACE: i32 = -10;
/// This filesystem does not do that.
pub const SLABFS_ENOTSUPPORTED: i32 = -11;
/// Somebody else is at it; later it may work.
pub const SLABFS_EBUSY: i32 = -12;
/// The object is gone or another one than when it was opened.
pub const SLABFS_ESTALE: i32 = -13;
/// A server could not be reached in time; later it may work.
pub const SLABFS_EUNAVAILABLE: i32 = -14;
/// The session is lost: what it had not flushed may be lost.
pub const SLABFS_ELOST: i32 = -15;
/// Stored data is not what was written.
pub const SLABFS_EDAMAGED: i32 = -16;
/// A disk or a protocol failed.
pub const SLABFS_EIO: i32 = -17;
/// The session was closed.
pub const SLABFS_ECLOSED: i32 = -18;
/// No such handle, or not any more.
pub const SLABFS_EHANDLE: i32 = -19;
/// The library failed within; a fault of it, which its message names.
pub const SLABFS_EINTERNAL: i32 = -20;
/// It was cancelled before anything of it was done.
pub const SLABFS_ECANCELLED: i32 = -21;

/// A call's failure on its way out.
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

    /// With what it is about in front.
    pub(crate) fn about(mut self, what: &str) -> Failure {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// About this element of a batch, by its path.
    pub(crate) fn element(mut self, path: Vec<u32>) -> Failure {
        self.elements = vec![path];
        self
    }

    /// About this one of several things.
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

/// What the last call of a thread came to.
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

/// Does what a call is for: its error becomes code and message, and so does a panic.
pub(crate) fn call(work: impl FnOnce() -> Result<(), Failure>) -> i32 {
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_default();
        Err(Failure::new(
            SLABFS_EINTERNAL,
            format!("the library failed within: {text}; please report it"),
        ))
    });
    let (code, failure) = match done {
        Ok(()) => (SLABFS_OK, Failure::new(SLABFS_OK, "")),
        Err(failure) => (failure.code, failure),
    };
    let index = failure.index;
    let mut bytes = failure.message.into_bytes();
    bytes.retain(|&byte| byte != 0);
    let last = Last {
        message: CString::new(bytes).unwrap_or_default(),
        index: index.map_or(-1, |index| index as i64),
        elements: failure.elements,
    };
    // A thread that is ending has no message any more.
    let _ = LAST.try_with(|place| *place.borrow_mut() = last);
    code
}

/// What went wrong in the last call of this thread, in words, and what to do; empty where nothing did. It is there
/// until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().message.as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// Which of several things that the last call of this thread was for its error is about, from 0; -1 where that does
/// not matter.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_error_index() -> i64 {
    LAST.try_with(|last| last.borrow().index).unwrap_or(-1)
}

/// Where in its batch an element is that the error of the last call of this thread is about: its index in the top vector,
/// then in the vector below, and so on. An error names one element, or two that do not go together: `which` is 0 or 1.
/// Returns how many indices that are, 0 where no element is named, and writes as many of them as there is `room` for.
///
/// # Safety
/// `path` points to `room` numbers, or is NULL and `room` 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_error_element(which: usize, path: *mut u32, room: usize) -> usize {
    let indices = LAST.try_with(|last| last.borrow().elements.get(which).cloned());
    let indices = indices.ok().flatten().unwrap_or_default();
    let some = indices.len().min(room);
    if some > 0 && !path.is_null() {
        // SAFETY: there is room for so many, as the caller says, and it is not ours.
        unsafe { std::ptr::copy_nonoverlapping(indices.as_ptr(), path, some) };
    }
    indices.len()
}

/// The name of a code, as `SLABFS_ENOTFOUND`; of a number that is none, `unknown`.
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

/// The version of this library, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
