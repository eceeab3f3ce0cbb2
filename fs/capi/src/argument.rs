//! Validates pointers and lengths passed by the program, as far as possible: NULL, limits, UTF-8.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::{Failure, SLABFS_ETOOLARGE, call};

/// The maximum rank of an object.
pub(crate) const MAX_RANK: usize = 32;
/// The maximum length of a path, including the NUL.
const MAX_PATH: usize = 4097;
/// The maximum length of a short text: a key, a property, an address.
pub(crate) const MAX_TEXT: usize = 65_536;
/// The maximum length of a query.
pub(crate) const MAX_QUERY: usize = 1 << 21;

/// The bytes of a NUL-terminated string.
///
/// # Safety
/// `text` is NULL or points to a string that is valid for `'a`.
unsafe fn string<'a>(text: *const c_char, what: &str, limit: usize) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL; give a string")));
    }
    // SAFETY: it is a string, and no byte beyond its end is read.
    let len = unsafe { libc::strnlen(text, limit) };
    if len == limit {
        return Err(Failure::new(
            SLABFS_ETOOLARGE,
            format!("{what} has {limit} bytes or more; give a shorter one"),
        ));
    }
    // SAFETY: `strnlen` has counted these bytes.
    Ok(unsafe { std::slice::from_raw_parts(text.cast(), len) })
}

/// A text.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn text<'a>(
    text: *const c_char,
    what: &str,
    limit: usize,
) -> Result<&'a str, Failure> {
    // SAFETY: the caller's.
    let bytes = unsafe { string(text, what, limit) }?;
    std::str::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
}

/// An optional text.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn text_or_none<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a str>, Failure> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: the caller's.
        false => unsafe { text(pointer, what, MAX_TEXT) }.map(Some),
    }
}

/// A path; its names need not be UTF-8.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn path<'a>(text: *const c_char, what: &str) -> Result<&'a Path, Failure> {
    // SAFETY: the caller's.
    let bytes = unsafe { string(text, what, MAX_PATH) }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// An optional path.
///
/// # Safety
/// As [`string`].
pub(crate) unsafe fn path_or_none<'a>(
    pointer: *const c_char,
    what: &str,
) -> Result<Option<&'a Path>, Failure> {
    match pointer.is_null() {
        true => Ok(None),
        // SAFETY: the caller's.
        false => unsafe { path(pointer, what) }.map(Some),
    }
}

/// A list of at most `limit` elements.
///
/// # Safety
/// `pointer` is NULL or points to `len` elements that are valid for `'a`.
pub(crate) unsafe fn list<'a, T>(
    pointer: *const T,
    len: usize,
    what: &str,
    limit: usize,
) -> Result<&'a [T], Failure> {
    if len > limit {
        return Err(Failure::new(
            SLABFS_ETOOLARGE,
            format!("{what}: {len} are too many; at most {limit} are possible"),
        ));
    }
    if len == 0 {
        return Ok(&[]);
    }
    if pointer.is_null() {
        return Err(Failure::invalid(format!(
            "{what} is NULL, and its length is given as {len}"
        )));
    }
    // SAFETY: the caller's; the length is within a limit.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// One number per axis.
///
/// # Safety
/// As [`list`].
pub(crate) unsafe fn axes<'a>(
    pointer: *const u64,
    rank: usize,
    what: &str,
) -> Result<&'a [u64], Failure> {
    // SAFETY: the caller's.
    unsafe { list(pointer, rank, what, MAX_RANK) }
}

/// A buffer to read from.
///
/// # Safety
/// As [`list`], and no other code writes the bytes meanwhile.
pub(crate) unsafe fn bytes<'a>(buffer: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's.
    unsafe { list(buffer.cast(), len, "the buffer", isize::MAX as usize) }
}

/// A buffer to write to.
///
/// # Safety
/// As [`list`], and no other code uses the bytes meanwhile.
pub(crate) unsafe fn bytes_mut<'a>(
    buffer: *mut c_void,
    len: usize,
) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller's; `bytes` checks that it is not NULL and not too long.
    unsafe {
        bytes(buffer, len)?;
        match len {
            0 => Ok(&mut []),
            len => Ok(std::slice::from_raw_parts_mut(buffer.cast(), len)),
        }
    }
}

/// A struct of arguments.
///
/// # Safety
/// `pointer` is NULL or points to a struct that is valid for `'a`.
pub(crate) unsafe fn one<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

/// Runs the body of a call that has a result, and stores that at `place`.
///
/// # Safety
/// `place` is NULL or points to memory for the result, writable during the call.
pub(crate) unsafe fn result<T>(
    place: *mut T,
    what: &str,
    work: impl FnOnce() -> Result<T, Failure>,
) -> i32 {
    call(|| {
        if place.is_null() {
            return Err(Failure::invalid(format!(
                "{what} is NULL; give a place for the result"
            )));
        }
        let value = work()?;
        // SAFETY: the caller's.
        unsafe { place.write(value) };
        Ok(())
    })
}

/// The element `index` of a list that was returned.
pub(crate) fn nth<'a, T>(list: &'a [T], index: usize, what: &str) -> Result<&'a T, Failure> {
    list.get(index).ok_or_else(|| {
        Failure::invalid(format!(
            "there is no {what} {index}; the list has {}",
            list.len()
        ))
    })
}

/// Refuses reserved members that are not zero, which a later version may define.
pub(crate) fn unused(reserved: &[u64], what: &str) -> Result<(), Failure> {
    match reserved.iter().all(|&word| word == 0) {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "a reserved member of {what} is not zero; set the entire struct to zero first"
        ))),
    }
}
