//! System calls on files that the standard library lacks, and short names for those it has.
//!
//! The `unsafe` code calls the extended attribute functions and maps files.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::{Mmap, MmapMut};
use nix::errno::Errno;

/// Opens for reading and writing.
///
/// # Panics If that fails.
#[track_caller]
pub fn open(path: &Path) -> File {
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) => panic!("opening {}: {error}", path.display()),
    }
}

/// Creates a file, open for reading and writing.
///
/// # Panics If that fails.
#[track_caller]
pub fn open_new(path: &Path) -> File {
    match OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
    {
        Ok(file) => file,
        Err(error) => panic!("making {}: {error}", path.display()),
    }
}

/// A path with a suffix: `named(object, "@[0:3]")`.
pub fn named(path: &Path, more: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(more);
    name.into()
}

/// Reads all of a file.
///
/// # Panics If that fails.
#[track_caller]
pub fn read(path: &Path) -> Vec<u8> {
    match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => panic!("reading {}: {error}", path.display()),
    }
}

/// Writes all of a file, as `cp` does: it is truncated first.
///
/// # Panics If that fails.
#[track_caller]
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    let written = File::create(path).and_then(|file| {
        file.write_all_at(bytes.as_ref(), 0)?;
        close(file)
    });
    if let Err(error) = written {
        panic!("writing {}: {error}", path.display());
    }
}

/// Writes at an offset and closes, without truncating the file first.
///
/// # Panics If that fails.
#[track_caller]
pub fn write_at(path: &Path, offset: u64, bytes: &[u8]) {
    let file = open(path);
    let written = file.write_all_at(bytes, offset).and_then(|()| close(file));
    if let Err(error) = written {
        panic!("writing {}: {error}", path.display());
    }
}

/// Closes and returns the result.
///
/// # Errors Those of close(2), among them errors of the flush.
pub fn close(file: File) -> Result<()> {
    Ok(nix::unistd::close(file.into_raw_fd())?)
}

/// The error number of a failed call.
///
/// # Panics If it succeeded.
#[track_caller]
pub fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    match result {
        Ok(value) => {
            let value: String = format!("{value:?}").chars().take(200).collect();
            panic!("expected an error, not {value}")
        }
        Err(error) => Errno::from_raw(
            error
                .raw_os_error()
                .unwrap_or_else(|| panic!("no error number: {error}")),
        ),
    }
}

/// `fsync` of a directory.
///
/// # Errors
/// Those of open(2) and fsync(2).
pub fn sync_dir(path: &Path) -> Result<()> {
    File::open(path)?.sync_all()
}

/// The next data or hole at or after `from`; `None` at the end.
///
/// # Errors Those of lseek(2) other than `ENXIO`.
pub fn seek(file: &File, from: i64, what: nix::unistd::Whence) -> Result<Option<i64>> {
    match nix::unistd::lseek(file, from, what) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::ENXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Maps a file for reading and writing, shared.
///
/// # Errors
/// Those of mmap(2).
pub fn map(file: &File) -> Result<MmapMut> {
    // SAFETY: the tests that use it read and write bytes only, for which any value is valid; a file that
    // becomes shorter under the mapping ends the test, as intended.
    unsafe { MmapMut::map_mut(file) }
}

/// Maps the first `len` bytes of a file shared and writable.
///
/// # Errors
/// Those of mmap(2).
pub fn map_some(file: &File, len: usize) -> Result<MmapMut> {
    // SAFETY: as above.
    unsafe { memmap2::MmapOptions::new().len(len).map_mut(file) }
}

/// Maps a file to read only.
///
/// # Errors
/// Those of mmap(2).
pub fn map_to_read(file: &File) -> Result<Mmap> {
    // SAFETY: as above; the tests look for concurrent writes of others.
    unsafe { Mmap::map(file) }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("a path")
}

fn c_name(name: &str) -> CString {
    CString::new(name).expect("a name")
}

fn size_of(result: libc::ssize_t) -> Result<usize> {
    usize::try_from(result).map_err(|_| Error::last_os_error())
}

/// Longest value and listing of extended attributes (xattr(7)).
const LONGEST: usize = 64 << 10;

/// Value of an extended attribute.
///
/// # Errors
/// Those of getxattr(2).
pub fn get_xattr(path: &Path, name: &str) -> Result<Vec<u8>> {
    let (path, name) = (c_path(path), c_name(name));
    let mut value = vec![0_u8; LONGEST];
    // SAFETY: both strings end in NUL, `value` has the length given, all stay valid through the call.
    let size = unsafe {
        libc::getxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(size_of(size)?);
    Ok(value)
}

/// Value of an extended attribute, as text.
///
/// # Panics If there is none.
#[track_caller]
pub fn xattr(path: &Path, name: &str) -> String {
    match get_xattr(path, name) {
        Ok(value) => String::from_utf8(value).expect("text"),
        Err(error) => panic!("{name} of {}: {error}", path.display()),
    }
}

/// Sets an extended attribute; `flags` is 0, `XATTR_CREATE` or `XATTR_REPLACE`.
///
/// # Errors
/// Those of setxattr(2).
pub fn set_xattr(path: &Path, name: &str, value: impl AsRef<[u8]>, flags: i32) -> Result<()> {
    let (path, name, value) = (c_path(path), c_name(name), value.as_ref());
    // SAFETY: both strings end in NUL, `value` has the length given, all stay valid through the call.
    let result = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            flags,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// Removes an extended attribute.
///
/// # Errors
/// Those of removexattr(2).
pub fn remove_xattr(path: &Path, name: &str) -> Result<()> {
    let (path, name) = (c_path(path), c_name(name));
    // SAFETY: both strings end in NUL and stay valid through the call.
    let result = unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}

/// Names of all listed extended attributes.
///
/// # Panics If they cannot be listed.
#[track_caller]
pub fn list_xattrs(path: &Path) -> Vec<String> {
    let name = c_path(path);
    let mut list = vec![0_u8; LONGEST];
    // SAFETY: the string ends in NUL, `list` has the length given, both stay valid through the call.
    let size = unsafe { libc::listxattr(name.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    let size = size_of(size).unwrap_or_else(|error| panic!("listing {}: {error}", path.display()));
    list[..size]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .collect()
}

/// The descriptor's path for programs: `/dev/fd/N` is a way to open an unlinked file.
pub fn descriptor(file: &File) -> std::path::PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}
