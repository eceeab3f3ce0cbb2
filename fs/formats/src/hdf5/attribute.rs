//! Attributes of groups and datasets.

use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::sync::Arc;

use hdf5_metno_sys::h5::{H5_index_t, H5_iter_order_t};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::{h5a, h5d, h5o, h5p, h5t};

use super::datatype::{Class, Datatype};
use super::handle::{Handle, checked};
use super::space::Space;
use crate::{FormatError, Result};

/// Objects with more attributes than this are refused.
const MOST_ATTRIBUTES: u64 = 1 << 20;
/// Attributes with more bytes than this are refused.
const MOST_BYTES: u64 = 1 << 30;

/// An attribute.
#[derive(Debug)]
pub struct Attribute {
    handle: Handle,
    name: String,
}

/// A group or a dataset: what can have attributes.
pub trait Attributed {
    /// Its identifier, and the file that errors name.
    #[doc(hidden)]
    fn id(&self) -> (hid_t, &Arc<Path>);

    /// The names of the attributes, in the order of their creation where the file has that.
    ///
    /// # Errors
    /// The file is damaged; there are more than 2^20; a name is not UTF-8.
    fn attribute_names(&self) -> Result<Vec<String>> {
        let (id, file) = self.id();
        let mut info = h5o::H5O_info1_t::default();
        checked(file, "its attributes", || {
            // SAFETY: the object is open, and `info` outlives the call.
            unsafe { h5o::H5Oget_info2(id, &mut info, h5o::H5O_INFO_NUM_ATTRS) }
        })?;
        if info.num_attrs > MOST_ATTRIBUTES {
            return Err(FormatError::Unsupported {
                path: file.to_path_buf(),
                what: "an object".to_owned(),
                why: format!(
                    "has {} attributes, more than {MOST_ATTRIBUTES}",
                    info.num_attrs
                ),
            });
        }
        // A file that does not have the order has names only.
        let names = match names(id, file, H5_index_t::H5_INDEX_CRT_ORDER) {
            Ok(names) => names,
            Err(_) => names(id, file, H5_index_t::H5_INDEX_NAME)?,
        };
        let text = |name: Vec<u8>| {
            String::from_utf8(name).map_err(|error| FormatError::Unsupported {
                path: file.to_path_buf(),
                what: format!("the attribute {}", error.as_bytes().escape_ascii()),
                why: "has a name that is not UTF-8".to_owned(),
            })
        };
        names.into_iter().map(text).collect()
    }

    /// Opens an attribute; `None` if there is none of this name.
    ///
    /// # Errors
    /// The file is damaged.
    fn attribute(&self, name: &str) -> Result<Option<Attribute>> {
        let (id, file) = self.id();
        let text = c_name(file, name)?;
        let what = format!("attribute {name}");
        // SAFETY: the object is open, and the name is a C string.
        let exists = checked(file, &what, || unsafe { h5a::H5Aexists(id, text.as_ptr()) })?;
        if exists == 0 {
            return Ok(None);
        }
        let handle = Handle::new(file, &what, || {
            // SAFETY: the object is open, and the name is a C string.
            unsafe { h5a::H5Aopen(id, text.as_ptr(), h5p::H5P_DEFAULT) }
        })?;
        let name = name.to_owned();
        Ok(Some(Attribute { handle, name }))
    }

    /// Creates an attribute from its elements as they lie in memory; none for an empty shape.
    ///
    /// # Errors
    /// There is one of this name; it does not fit.
    fn put_attribute(
        &self,
        name: &str,
        datatype: &Datatype,
        space: &Space,
        bytes: &[u8],
    ) -> Result<()> {
        let (_, file) = self.id();
        let expected = space
            .elements()
            .and_then(|all| all.checked_mul(datatype.size().ok()? as u64));
        if expected != Some(bytes.len() as u64) || !datatype.is_flat()? {
            return Err(FormatError::Unsupported {
                path: file.to_path_buf(),
                what: format!("attribute {name}"),
                why: "has not the bytes of its type and shape".to_owned(),
            });
        }
        put(self.id(), name, datatype, space, bytes.as_ptr().cast())
    }

    /// Creates an attribute of texts of any length.
    ///
    /// # Errors
    /// As for [`Attributed::put_attribute`]; a text has a zero byte.
    fn put_texts(&self, name: &str, space: &Space, texts: &[Vec<u8>]) -> Result<()> {
        let (_, file) = self.id();
        let datatype = Datatype::text(file, None, true)?;
        let texts = texts
            .iter()
            .map(|text| std::ffi::CString::new(text.as_slice()))
            .collect::<std::result::Result<Vec<_>, _>>();
        let texts = texts
            .ok()
            .filter(|texts| space.elements() == Some(texts.len() as u64));
        let Some(texts) = texts else {
            return Err(FormatError::Unsupported {
                path: file.to_path_buf(),
                what: format!("attribute {name}"),
                why: "has texts with zero bytes, or not as many as its shape".to_owned(),
            });
        };
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        put(self.id(), name, &datatype, space, pointers.as_ptr().cast())
    }
}

/// `data` points to the elements of `space`, as `datatype` has them in memory.
pub(super) fn put(
    (id, file): (hid_t, &Arc<Path>),
    name: &str,
    datatype: &Datatype,
    space: &Space,
    data: *const c_void,
) -> Result<()> {
    let what = format!("creating attribute {name}");
    let text = c_name(file, name)?;
    let typ = datatype.handle();
    let made = space.make(typ)?;
    let list = Handle::new(file, &what, || {
        // SAFETY: a class of the library.
        unsafe { h5p::H5Pcreate(*h5p::H5P_CLS_ATTRIBUTE_CREATE) }
    })?;
    checked(file, &what, || {
        // SAFETY: the list is open.
        unsafe { h5p::H5Pset_char_encoding(list.id, h5t::H5T_cset_t::H5T_CSET_UTF8) }
    })?;
    let made = Handle::new(file, &what, || {
        // SAFETY: all identifiers are open, and the name is a C string.
        unsafe {
            h5a::H5Acreate2(
                id,
                text.as_ptr(),
                typ.id,
                made.id,
                list.id,
                h5p::H5P_DEFAULT,
            )
        }
    })?;
    if space.elements() == Some(0) {
        return Ok(());
    }
    // SAFETY: the caller gives the elements.
    checked(file, &what, || unsafe {
        h5a::H5Awrite(made.id, typ.id, data)
    })?;
    Ok(())
}

impl Attribute {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn datatype(&self) -> Result<Datatype> {
        let handle = Handle::new(&self.handle.file, self.what(), || {
            // SAFETY: the attribute is open.
            unsafe { h5a::H5Aget_type(self.handle.id) }
        })?;
        Ok(Datatype::new(handle))
    }

    /// Its shape.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn space(&self) -> Result<Space> {
        Space::of(&self.space_handle()?)
    }

    /// The bytes of its elements, as they are stored; for types that are in one piece ([`Datatype::is_flat`]).
    ///
    /// # Errors
    /// The file is damaged; the type has pointers; there are more than 1 GiB.
    pub fn read(&self) -> Result<Vec<u8>> {
        let datatype = self.datatype()?;
        if !datatype.is_flat()? {
            let why = "has a type with pointers or references";
            return Err(self.handle.unsupported(self.what(), why));
        }
        let bytes = self.read_raw(&datatype)?;
        Ok(bytes)
    }

    /// Its texts, of any length or of a fixed one; `None` for a null pointer. Zeros that pad a text are left out.
    ///
    /// # Errors
    /// The file is damaged; it is no text.
    pub fn read_texts(&self) -> Result<Vec<Option<Vec<u8>>>> {
        let datatype = self.datatype()?;
        let size = datatype.size()?;
        match datatype.class()? {
            Class::FixedString => {
                let bytes = self.read_raw(&datatype)?;
                let texts = bytes.chunks_exact(size).map(|text| {
                    let end = text
                        .iter()
                        .rposition(|&byte| byte != 0)
                        .map_or(0, |at| at + 1);
                    Some(text[..end].to_vec())
                });
                Ok(texts.collect())
            }
            Class::VariableString => {
                let mut bytes = self.read_raw(&datatype)?;
                let texts = bytes
                    .chunks_exact(size_of::<*const c_char>())
                    .map(|bytes| {
                        // SAFETY: the library wrote pointers to C strings or null.
                        unsafe {
                            let pointer = bytes.as_ptr().cast::<*const c_char>().read_unaligned();
                            (!pointer.is_null())
                                .then(|| CStr::from_ptr(pointer).to_bytes().to_vec())
                        }
                    })
                    .collect();
                self.reclaim(&datatype, &mut bytes)?;
                Ok(texts)
            }
            _ => Err(self.handle.unsupported(self.what(), "is no text")),
        }
    }

    /// Creates the same attribute of another object, of the given type, which is equal to its own.
    ///
    /// # Errors
    /// Of the library; the type has references, which do not hold in another file.
    pub fn copy_to(&self, to: &impl Attributed, datatype: &Datatype) -> Result<()> {
        let own = self.datatype()?;
        if own.has_references()? {
            let why = "has references to objects, which do not hold in another file";
            return Err(self.handle.unsupported(self.what(), why));
        }
        let space = self.space()?;
        let mut bytes = self.read_raw(&own)?;
        let put = put(to.id(), &self.name, datatype, &space, bytes.as_ptr().cast());
        let flat = own.is_flat()?;
        if !flat {
            self.reclaim(&own, &mut bytes)?;
        }
        put
    }

    /// The elements as the library puts them into memory; what pointers in them point to is freed by `reclaim`.
    pub(super) fn read_raw(&self, datatype: &Datatype) -> Result<Vec<u8>> {
        let size = datatype.size()? as u64;
        let bytes = self
            .space()?
            .elements()
            .and_then(|all| all.checked_mul(size));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= MOST_BYTES) else {
            return Err(self.handle.unsupported(self.what(), "has more than 1 GiB"));
        };
        let mut buffer = vec![0_u8; bytes as usize];
        if buffer.is_empty() {
            return Ok(buffer);
        }
        checked(&self.handle.file, self.what(), || {
            // SAFETY: the buffer has the bytes of all elements of this type.
            unsafe {
                h5a::H5Aread(
                    self.handle.id,
                    datatype.handle().id,
                    buffer.as_mut_ptr().cast(),
                )
            }
        })?;
        Ok(buffer)
    }

    pub(super) fn reclaim(&self, datatype: &Datatype, buffer: &mut [u8]) -> Result<()> {
        if buffer.is_empty() {
            return Ok(());
        }
        let space = self.space_handle()?;
        checked(&self.handle.file, self.what(), || {
            // SAFETY: the buffer has the elements that the library read, and what they point to is not used any more.
            unsafe {
                let (typ, data) = (datatype.handle().id, buffer.as_mut_ptr().cast());
                h5d::H5Dvlen_reclaim(typ, space.id, h5p::H5P_DEFAULT, data)
            }
        })?;
        Ok(())
    }

    fn space_handle(&self) -> Result<Handle> {
        Handle::new(&self.handle.file, self.what(), || {
            // SAFETY: the attribute is open.
            unsafe { h5a::H5Aget_space(self.handle.id) }
        })
    }

    fn what(&self) -> String {
        format!("attribute {}", self.name)
    }
}

fn names(id: hid_t, file: &Arc<Path>, index: H5_index_t) -> Result<Vec<Vec<u8>>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    checked(file, "its attributes", || {
        let taken: *mut Vec<Vec<u8>> = &mut names;
        let order = H5_iter_order_t::H5_ITER_INC;
        // SAFETY: the object is open; the callback gets a pointer to `names`, which outlives the call.
        unsafe {
            h5a::H5Aiterate2(
                id,
                index,
                order,
                std::ptr::null_mut(),
                Some(take_name),
                taken.cast::<c_void>(),
            )
        }
    })?;
    Ok(names)
}

unsafe extern "C" fn take_name(
    _: hid_t,
    name: *const c_char,
    _: *const h5a::H5A_info_t,
    names: *mut c_void,
) -> i32 {
    // SAFETY: the library gives a C string; `names` is the vector of `names`.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes().to_vec();
        (*names.cast::<Vec<Vec<u8>>>()).push(name);
    }
    0
}

fn c_name(file: &Arc<Path>, name: &str) -> Result<std::ffi::CString> {
    std::ffi::CString::new(name).map_err(|_| FormatError::Unsupported {
        path: file.to_path_buf(),
        what: format!("{name:?}"),
        why: "has a zero byte".to_owned(),
    })
}
