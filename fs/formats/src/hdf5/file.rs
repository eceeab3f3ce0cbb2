//! Files.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use hdf5_metno_sys::h5f::{self, H5F_close_degree_t, H5F_libver_t, H5F_scope_t};
use hdf5_metno_sys::h5p;

use super::group::Group;
use super::handle::{Handle, checked, with_lock};
use crate::{FormatError, Result};

/// An open HDF5 file.
///
/// One that is only read stays open as long as an object of it. One that can be written is closed with all its objects
/// when it is dropped, and errors are lost: it needs [`File::close`].
#[derive(Debug)]
pub struct File {
    handle: Handle,
}

/// How a file is created. The default is the format of HDF5 1.8, which NetCDF-4 files have.
#[derive(Debug, Clone, Copy, Default)]
pub struct Create {
    /// Bytes that are allocated at once for what describes datasets; 0 for the library's default.
    pub meta_block: u64,
    /// Half the number of entries of a node in the index of chunks; 0 for the library's default.
    pub index_k: u32,
    /// A file that is there is emptied; otherwise that is an error.
    pub replace: bool,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// It is no HDF5 file, or cannot be read.
    pub fn open(path: &Path) -> Result<File> {
        File::with_access(path, h5f::H5F_ACC_RDONLY)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// As for [`File::open`].
    pub fn open_writable(path: &Path) -> Result<File> {
        File::with_access(path, h5f::H5F_ACC_RDWR)
    }

    fn with_access(path: &Path, mode: u32) -> Result<File> {
        let (text, path) = (c_path(path)?, Arc::from(path));
        let access = access(&path, mode == h5f::H5F_ACC_RDONLY)?;
        let handle = Handle::new(&path, "opening it", || {
            // SAFETY: the path is a C string, and the list of properties is open.
            unsafe { h5f::H5Fopen(text.as_ptr(), mode, access.id) }
        })?;
        Ok(File { handle })
    }

    /// Creates a file where there is none; errors name `named`.
    ///
    /// # Errors
    /// There is one, or the directory cannot be written.
    pub fn create(path: &Path, named: &Path, create: Create) -> Result<File> {
        let (text, path) = (c_path(path)?, Arc::from(named));
        let access = access(&path, false)?;
        if create.meta_block > 0 {
            checked(&path, "creating it", || {
                // SAFETY: the list of properties is open.
                unsafe { h5p::H5Pset_meta_block_size(access.id, create.meta_block) }
            })?;
        }
        let list = Handle::new(&path, "creating it", || {
            // SAFETY: a class of the library.
            unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_FILE_CREATE) }
        })?;
        let order = h5p::H5P_CRT_ORDER_TRACKED | h5p::H5P_CRT_ORDER_INDEXED;
        checked(&path, "creating it", || {
            // SAFETY: the list of properties is open.
            unsafe {
                h5p::H5Pset_link_creation_order(list.id, order)
                    .min(h5p::H5Pset_attr_creation_order(list.id, order))
                    .min(h5p::H5Pset_obj_track_times(list.id, 0))
                    .min(match create.index_k {
                        0 => 0,
                        k => h5p::H5Pset_istore_k(list.id, k),
                    })
            }
        })?;
        let mode = match create.replace {
            true => h5f::H5F_ACC_TRUNC,
            false => h5f::H5F_ACC_EXCL,
        };
        let handle = Handle::new(&path, "creating it", || {
            // SAFETY: the path is a C string, and the lists of properties are open.
            unsafe { h5f::H5Fcreate(text.as_ptr(), mode, list.id, access.id) }
        })?;
        Ok(File { handle })
    }

    /// The path that errors name.
    pub fn path(&self) -> &Path {
        &self.handle.file
    }

    /// The root group.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn root(&self) -> Result<Group> {
        Group::open(&self.handle, "/")
    }

    /// The number of bytes before the file's own first byte, which addresses in it do not count; `None` if addresses
    /// and lengths in it have other than eight bytes.
    ///
    /// # Errors
    /// Of the library.
    pub fn base(&self) -> Result<Option<u64>> {
        let path = &self.handle.file;
        let list = Handle::new(path, "its properties", || {
            // SAFETY: the file is open.
            unsafe { h5f::H5Fget_create_plist(self.handle.id) }
        })?;
        let (mut base, mut address, mut length) = (0, 0, 0);
        checked(path, "its properties", || {
            // SAFETY: the list is open, and the numbers outlive the calls.
            unsafe {
                h5p::H5Pget_userblock(list.id, &mut base).min(h5p::H5Pget_sizes(
                    list.id,
                    &mut address,
                    &mut length,
                ))
            }
        })?;
        Ok((address == 8 && length == 8).then_some(base))
    }

    /// Hands everything that was written to the operating system.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&self) -> Result<()> {
        checked(&self.handle.file, "writing it", || {
            // SAFETY: the file is open.
            unsafe { h5f::H5Fflush(self.handle.id, H5F_scope_t::H5F_SCOPE_LOCAL) }
        })?;
        Ok(())
    }

    /// Closes the file with all objects of it that are still open. An error means that it is incomplete.
    ///
    /// # Errors
    /// Of the library.
    pub fn close(self) -> Result<()> {
        // SAFETY: the identifier is valid; the second reference goes with the handle, for which a closed file is no error.
        checked(&self.handle.file, "closing it", || unsafe {
            h5f::H5Fclose(self.handle.id)
        })?;
        Ok(())
    }
}

/// How files are opened. Locks that a filesystem has not are done without.
fn access(path: &Arc<Path>, read_only: bool) -> Result<Handle> {
    let close = match read_only {
        true => H5F_close_degree_t::H5F_CLOSE_WEAK,
        false => H5F_close_degree_t::H5F_CLOSE_STRONG,
    };
    let list = Handle::new(path, "opening it", || {
        // SAFETY: a class of the library.
        unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_FILE_ACCESS) }
    })?;
    checked(path, "opening it", || {
        // SAFETY: the list is open.
        unsafe {
            h5p::H5Pset_fclose_degree(list.id, close)
                .min(h5p::H5Pset_libver_bounds(
                    list.id,
                    H5F_libver_t::H5F_LIBVER_V18,
                    h5f::H5F_LIBVER_LATEST,
                ))
                .min(h5p::H5Pset_file_locking(list.id, 1, 1))
        }
    })?;
    Ok(list)
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| FormatError::Unsupported {
        path: path.to_owned(),
        what: "its name".to_owned(),
        why: "has a zero byte".to_owned(),
    })
}

/// Whether the library has a filter, or finds a plug-in for it.
pub(super) fn has_filter(id: u32) -> bool {
    // SAFETY: a number.
    let found = with_lock(|| unsafe {
        i32::try_from(id).map_or(0, |id| hdf5_metno_sys::h5z::H5Zfilter_avail(id))
    });
    found > 0
}
