//! Extended attributes through the system calls, for tests.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

fn check(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `setxattr` without flags.
pub(super) fn set(path: &Path, name: &str, value: &str) -> io::Result<()> {
    let (path, name) = (c(path), CString::new(name).unwrap());
    // SAFETY: both names are terminated by a zero, and the value has the given length.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    check(result as isize).map(|_| ())
}

/// `getxattr` with a buffer of 64 KiB.
pub(super) fn get(path: &Path, name: &str) -> io::Result<String> {
    let (path, name) = (c(path), CString::new(name).unwrap());
    let mut value = vec![0u8; 64 << 10];
    // SAFETY: both names are terminated by a zero, and the buffer has the given length.
    let result = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(check(result)?);
    Ok(String::from_utf8(value).unwrap())
}

/// `listxattr` with a buffer of 64 KiB.
pub(super) fn list(path: &Path) -> io::Result<Vec<String>> {
    let path = c(path);
    let mut names = vec![0u8; 64 << 10];
    // SAFETY: the path is terminated by a zero, and the buffer has the given length.
    let result = unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(check(result)?);
    Ok(names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8(name.to_vec()).unwrap())
        .collect())
}

/// The errno of a failure.
pub(super) fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}
