//! The calls of the NetCDF library that are needed here, with owned results and errors that name the file.
//!
//! `unsafe` is in this file only. Every call holds the library's global lock. Buffers are checked against the sizes
//! that the library reports before it writes into them.

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use netcdf_sys as nc;

use crate::{FormatError, Result};

/// The number of the variable that stands for the group itself, for attributes.
pub(super) const GLOBAL: c_int = nc::NC_GLOBAL;
/// More members than this in a list of the library (variables, dimensions, groups) are not believed.
const MOST: usize = 1 << 24;

/// An open file, or a group of it.
#[derive(Debug)]
pub(super) struct Open {
    /// The number of the group.
    pub(super) id: c_int,
    path: PathBuf,
    /// It is the root, so that the file is closed with it.
    root: bool,
}

/// A type as the library numbers it.
pub(super) type Type = c_int;

/// What a type is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeInfo {
    pub(super) size: usize,
    /// `None` for atomic types; otherwise the name and the class of a type that the file defines.
    pub(super) user: Option<(String, &'static str)>,
}

/// A variable as the library describes it.
#[derive(Debug, Clone)]
pub(super) struct Var {
    pub(super) id: c_int,
    pub(super) name: String,
    pub(super) typ: Type,
    pub(super) dims: Vec<c_int>,
    pub(super) attributes: usize,
}

impl Open {
    /// Opens a file for reading.
    pub(super) fn read(path: &Path) -> Result<Open> {
        be_quiet();
        let text = c_path(path)?;
        let mut id = 0;
        // SAFETY: the path is a C string, and `id` outlives the call.
        let code = with_lock(|| unsafe { nc::nc_open(text.as_ptr(), nc::NC_NOWRITE, &mut id) });
        let open = Open {
            id,
            path: path.to_owned(),
            root: code == 0,
        };
        open.check(code, "opening it")?;
        Ok(open)
    }

    /// The same group again, which does not close the file.
    pub(super) fn same(&self) -> Open {
        self.group(self.id)
    }

    fn group(&self, id: c_int) -> Open {
        Open {
            id,
            path: self.path.clone(),
            root: false,
        }
    }

    fn check(&self, code: c_int, what: &str) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a pointer to a static string.
        let why = with_lock(|| unsafe { CStr::from_ptr(nc::nc_strerror(code)) });
        Err(FormatError::Library {
            path: self.path.clone(),
            what: what.to_owned(),
            why: why.to_string_lossy().into_owned(),
        })
    }

    /// An error about something in the file.
    pub(super) fn unsupported(
        &self,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> FormatError {
        FormatError::Unsupported {
            path: self.path.clone(),
            what: what.into(),
            why: why.into(),
        }
    }

    /// A list whose length the library reports first.
    fn list(
        &self,
        what: &str,
        call: impl Fn(*mut c_int, *mut c_int) -> c_int,
    ) -> Result<Vec<c_int>> {
        let mut count = 0;
        self.check(with_lock(|| call(&mut count, std::ptr::null_mut())), what)?;
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST);
        let Some(count) = count else {
            return Err(self.unsupported(what, "has an impossible length; the file is damaged"));
        };
        let mut list = vec![0; count];
        let mut again = 0;
        self.check(with_lock(|| call(&mut again, list.as_mut_ptr())), what)?;
        Ok(list)
    }

    fn name(&self, what: &str, call: impl Fn(*mut c_char) -> c_int) -> Result<String> {
        let mut bytes = [0_u8; nc::NC_MAX_NAME as usize + 1];
        self.check(with_lock(|| call(bytes.as_mut_ptr().cast())), what)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(0);
        match std::str::from_utf8(&bytes[..end]) {
            Ok(name) => Ok(name.to_owned()),
            Err(_) => Err(self.unsupported(
                what,
                format!("is not UTF-8: {}", bytes[..end].escape_ascii()),
            )),
        }
    }

    /// The groups in it, with their names.
    pub(super) fn groups(&self) -> Result<Vec<(String, Open)>> {
        // SAFETY: the pointers are null or to as many numbers as the library reported.
        let ids = self.list("its groups", |count, ids| unsafe {
            nc::nc_inq_grps(self.id, count, ids)
        })?;
        ids.into_iter()
            .map(|id| {
                // SAFETY: the buffer has NC_MAX_NAME + 1 bytes.
                let name = self.name("the name of a group", |name| unsafe {
                    nc::nc_inq_grpname(id, name)
                })?;
                Ok((name, self.group(id)))
            })
            .collect()
    }

    /// The dimensions that it defines: number, name, length, unlimited.
    pub(super) fn dims(&self) -> Result<Vec<(c_int, String, u64, bool)>> {
        // SAFETY: as in `groups`.
        let ids = self.list("its dimensions", |count, ids| unsafe {
            nc::nc_inq_dimids(self.id, count, ids, 0)
        })?;
        // SAFETY: as in `groups`.
        let unlimited = self.list("its unlimited dimensions", |count, ids| unsafe {
            nc::nc_inq_unlimdims(self.id, count, ids)
        })?;
        ids.into_iter()
            .map(|id| {
                // SAFETY: the buffer has NC_MAX_NAME + 1 bytes.
                let name = self.name("the name of a dimension", |name| unsafe {
                    nc::nc_inq_dimname(self.id, id, name)
                })?;
                let mut len = 0;
                // SAFETY: `len` outlives the call.
                let code = with_lock(|| unsafe { nc::nc_inq_dimlen(self.id, id, &mut len) });
                self.check(code, &format!("dimension {name}"))?;
                Ok((id, name, len as u64, unlimited.contains(&id)))
            })
            .collect()
    }

    /// Its variables.
    pub(super) fn vars(&self) -> Result<Vec<Var>> {
        // SAFETY: as in `groups`.
        let ids = self.list("its variables", |count, ids| unsafe {
            nc::nc_inq_varids(self.id, count, ids)
        })?;
        ids.into_iter().map(|id| self.var(id)).collect()
    }

    fn var(&self, id: c_int) -> Result<Var> {
        // SAFETY: the buffer has NC_MAX_NAME + 1 bytes.
        let name = self.name("the name of a variable", |name| unsafe {
            nc::nc_inq_varname(self.id, id, name)
        })?;
        let what = format!("variable {name}");
        let (mut typ, mut rank, mut attributes) = (0, 0, 0);
        // SAFETY: null pointers are not written; the others outlive the call.
        let code = with_lock(|| unsafe {
            nc::nc_inq_var(
                self.id,
                id,
                std::ptr::null_mut(),
                &mut typ,
                &mut rank,
                std::ptr::null_mut(),
                &mut attributes,
            )
        });
        self.check(code, &what)?;
        let bad = || self.unsupported(&what, "has an impossible rank; the file is damaged");
        let rank = usize::try_from(rank).ok().filter(|rank| *rank <= 1024);
        let mut dims = vec![0; rank.ok_or_else(bad)?];
        // SAFETY: `dims` has as many members as the variable has dimensions.
        let code = with_lock(|| unsafe { nc::nc_inq_vardimid(self.id, id, dims.as_mut_ptr()) });
        self.check(code, &what)?;
        let attributes = usize::try_from(attributes).unwrap_or(0);
        Ok(Var {
            id,
            name,
            typ,
            dims,
            attributes,
        })
    }

    /// The size of a type, and what it is if the file defines it.
    pub(super) fn type_info(&self, typ: Type) -> Result<TypeInfo> {
        let mut size = 0;
        if typ <= nc::NC_MAX_ATOMIC_TYPE {
            // SAFETY: a null pointer is not written; `size` outlives the call.
            let code = with_lock(|| unsafe {
                nc::nc_inq_type(self.id, typ, std::ptr::null_mut(), &mut size)
            });
            self.check(code, "a type")?;
            return Ok(TypeInfo { size, user: None });
        }
        let mut class = 0;
        let name = self.name("the name of a type", |name| {
            // SAFETY: the buffer has NC_MAX_NAME + 1 bytes; null pointers are not written.
            unsafe {
                nc::nc_inq_user_type(
                    self.id,
                    typ,
                    name,
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                    std::ptr::null_mut(),
                )
            }
        })?;
        // SAFETY: null pointers are not written; the others outlive the call.
        let code = with_lock(|| unsafe {
            nc::nc_inq_user_type(
                self.id,
                typ,
                std::ptr::null_mut(),
                &mut size,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                &mut class,
            )
        });
        self.check(code, "a type")?;
        let class = match class {
            nc::NC_VLEN => "a variable-length type",
            nc::NC_OPAQUE => "an opaque type",
            nc::NC_ENUM => "an enumeration",
            nc::NC_COMPOUND => "a compound type",
            _ => "an unknown type",
        };
        Ok(TypeInfo {
            size,
            user: Some((name, class)),
        })
    }

    /// The number of attributes of the group.
    pub(super) fn attributes(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        let code = with_lock(|| unsafe { nc::nc_inq_natts(self.id, &mut count) });
        self.check(code, "its attributes")?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// The name, type and length of attribute `at` of a variable, or of the group ([`GLOBAL`]).
    pub(super) fn attribute(&self, var: c_int, at: usize) -> Result<(String, Type, usize)> {
        // SAFETY: the buffer has NC_MAX_NAME + 1 bytes.
        let name = self.name("the name of an attribute", |name| unsafe {
            nc::nc_inq_attname(self.id, var, at as c_int, name)
        })?;
        let text = self.c_name(&name)?;
        let (mut typ, mut len) = (0, 0);
        // SAFETY: the name is a C string, and the others outlive the call.
        let code = with_lock(|| unsafe {
            nc::nc_inq_att(self.id, var, text.as_ptr(), &mut typ, &mut len)
        });
        self.check(code, &format!("attribute {name}"))?;
        Ok((name, typ, len))
    }

    /// The members of an attribute of an atomic type other than string, `size` bytes each.
    pub(super) fn attribute_bytes(
        &self,
        var: c_int,
        name: &str,
        size: usize,
        len: usize,
    ) -> Result<Vec<u8>> {
        let text = self.c_name(name)?;
        let total = size.checked_mul(len).filter(|total| *total <= 1 << 30);
        let bad = || self.unsupported(format!("attribute {name}"), "has 1 GiB or more");
        let mut bytes = vec![0; total.ok_or_else(bad)?];
        // SAFETY: the name is a C string; the attribute has `len` members of `size` bytes, as the library reported.
        let code = with_lock(|| unsafe {
            nc::nc_get_att(self.id, var, text.as_ptr(), bytes.as_mut_ptr().cast())
        });
        self.check(code, &format!("attribute {name}"))?;
        Ok(bytes)
    }

    /// The members of an attribute of strings; `None` for a null pointer.
    pub(super) fn attribute_strings(
        &self,
        var: c_int,
        name: &str,
        len: usize,
    ) -> Result<Vec<Option<Vec<u8>>>> {
        let text = self.c_name(name)?;
        if len > MOST {
            return Err(self.unsupported(format!("attribute {name}"), "has too many strings"));
        }
        let mut pointers: Vec<*mut c_char> = vec![std::ptr::null_mut(); len];
        // SAFETY: the name is a C string; the attribute has `len` strings, for which the library allocates memory.
        let code = with_lock(|| unsafe {
            nc::nc_get_att(self.id, var, text.as_ptr(), pointers.as_mut_ptr().cast())
        });
        self.check(code, &format!("attribute {name}"))?;
        let strings = pointers.iter().map(|&pointer| match pointer.is_null() {
            true => None,
            // SAFETY: the library returned a C string, which is freed below.
            false => Some(unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec()),
        });
        let strings = strings.collect();
        // SAFETY: the strings were allocated by the library, and are not used any more.
        with_lock(|| unsafe { nc::nc_free_string(len, pointers.as_mut_ptr()) });
        Ok(strings)
    }

    /// The shape of a variable's chunks, if it has any. Files that are not NetCDF-4 have none.
    pub(super) fn chunks(&self, var: c_int, rank: usize) -> Option<Vec<u64>> {
        let mut storage = 0;
        let mut shape = vec![0; rank.max(1)];
        // SAFETY: `shape` has as many members as the variable has dimensions.
        let code = with_lock(|| unsafe {
            nc::nc_inq_var_chunking(self.id, var, &mut storage, shape.as_mut_ptr())
        });
        let chunked = code == 0 && storage == nc::NC_CHUNKED && rank > 0;
        chunked.then(|| shape.iter().map(|&len| len as u64).collect())
    }

    /// Whether a variable is compressed by deflate, its level, and whether it is shuffled.
    pub(super) fn deflate(&self, var: c_int) -> Option<(u32, bool)> {
        let (mut shuffle, mut deflate, mut level) = (0, 0, 0);
        // SAFETY: the pointers outlive the call.
        let code = with_lock(|| unsafe {
            nc::nc_inq_var_deflate(self.id, var, &mut shuffle, &mut deflate, &mut level)
        });
        let level = u32::try_from(level).unwrap_or(0);
        (code == 0 && deflate != 0).then_some((level, shuffle != 0))
    }

    /// The element of a variable that was never written; `size` is that of an element.
    pub(super) fn fill(&self, var: c_int, size: usize) -> Result<Option<Vec<u8>>> {
        let mut none = 0;
        let mut fill = vec![0; size];
        // SAFETY: `fill` has the size of an element.
        let code = with_lock(|| unsafe {
            nc::nc_inq_var_fill(self.id, var, &mut none, fill.as_mut_ptr().cast())
        });
        self.check(code, "a fill value")?;
        Ok((none == 0).then_some(fill))
    }

    /// Reads a box of a variable of a type without pointers into `out`, which has exactly its bytes.
    pub(super) fn read_box(
        &self,
        var: &Var,
        start: &[u64],
        count: &[u64],
        out: &mut [u8],
    ) -> Result<()> {
        let (start, count) = (sizes(start), sizes(count));
        // SAFETY: `start` and `count` have a member for each dimension (checked by the caller), and `out` has the bytes
        // of the box in the variable's own type, into which `nc_get_vara` converts nothing.
        let code = with_lock(|| unsafe {
            nc::nc_get_vara(
                self.id,
                var.id,
                start.as_ptr(),
                count.as_ptr(),
                out.as_mut_ptr().cast(),
            )
        });
        self.check(code, &format!("reading variable {}", var.name))
    }

    fn c_name(&self, name: &str) -> Result<CString> {
        CString::new(name).map_err(|_| self.unsupported(format!("{name:?}"), "has a zero byte"))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.root {
            // SAFETY: the number is that of an open file, which is not used again. An error cannot matter: the file was
            // only read, or its writer has failed.
            with_lock(|| unsafe { nc::nc_close(self.id) });
        }
    }
}

fn sizes(list: &[u64]) -> Vec<usize> {
    list.iter().map(|&len| len as usize).collect()
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| FormatError::Unsupported {
        path: path.to_owned(),
        what: "its name".to_owned(),
        why: "has a zero byte".to_owned(),
    })
}

/// Keeps the HDF5 library, which the NetCDF library uses, from printing its errors: they are returned.
fn be_quiet() {
    // SAFETY: without a function to call there is none that could be called wrongly.
    with_lock(|| unsafe { hdf5_metno_sys::h5e::H5Eset_auto2(0, None, std::ptr::null_mut()) });
}

fn with_lock<R>(call: impl FnOnce() -> R) -> R {
    let _one = nc::libnetcdf_lock.lock();
    call()
}
