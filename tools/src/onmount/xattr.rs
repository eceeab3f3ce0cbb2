//! Extended attributes by system call; the standard library has no functions for them.

use std::ffi::CString;
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The value of attribute `name` of `path`.
pub(crate) fn get(path: &Path, name: &str) -> Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    loop {
        // SAFETY: both strings end in NUL and stay valid through the call; size 0 queries the size only.
        let size = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
        let size = usize::try_from(size).map_err(|_| Error::last_os_error())?;
        let mut value = vec![0_u8; size];
        // SAFETY: as above, and `value` has room for the `size` bytes passed.
        let size = unsafe {
            libc::getxattr(
                path.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                size,
            )
        };
        match usize::try_from(size) {
            Ok(size) => {
                value.truncate(size);
                return Ok(value);
            }
            // The value grew in between: query the size again.
            Err(_) if Error::last_os_error().raw_os_error() == Some(libc::ERANGE) => {}
            Err(_) => return Err(Error::last_os_error()),
        }
    }
}

/// Sets attribute `name` of `path`.
pub(crate) fn set(path: &Path, name: &str, value: &[u8]) -> Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let name = CString::new(name)?;
    // SAFETY: both strings end in NUL, `value` has the length given, all stay valid through the call.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}
