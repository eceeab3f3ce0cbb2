//! Texts of any length: elements of datasets, and attributes with a type of their own.

use std::ffi::{CStr, CString, c_char};

use hdf5_metno_sys::{h5d, h5p};

use super::attribute::{Attributed, put};
use super::dataset::Dataset;
use super::datatype::{Class, Datatype};
use super::handle::{Handle, checked};
use super::space::{Space, select};
use crate::{FormatError, Result};

/// The most texts that are read or written at a time.
const MOST: u64 = 1 << 26;

impl Dataset {
    /// Reads a box of texts of any length; a null pointer is an empty text.
    ///
    /// # Errors
    /// The file is damaged; the box is not in the shape; it has other elements.
    pub fn read_texts(&self, start: &[u64], count: &[u64]) -> Result<Vec<Vec<u8>>> {
        let datatype = self.texts_only()?;
        let (file, memory, elements) = self.text_boxes(start, count)?;
        if elements == 0 {
            return Ok(Vec::new());
        }
        let mut pointers: Vec<*mut c_char> = vec![std::ptr::null_mut(); elements as usize];
        let (typ, data) = (datatype.handle().id, pointers.as_mut_ptr());
        let what = format!("reading {}", self.name());
        checked(&self.handle().file, &what, || {
            // SAFETY: `pointers` has a member for each element of the box.
            unsafe {
                h5d::H5Dread(
                    self.handle().id,
                    typ,
                    memory.id,
                    file.id,
                    h5p::H5P_DEFAULT,
                    data.cast(),
                )
            }
        })?;
        let texts = pointers.iter().map(|&pointer| match pointer.is_null() {
            true => Vec::new(),
            // SAFETY: the library wrote a pointer to a C string, which is freed below.
            false => unsafe { CStr::from_ptr(pointer) }.to_bytes().to_vec(),
        });
        let texts = texts.collect();
        checked(&self.handle().file, &what, || {
            // SAFETY: the texts were copied; what the pointers point to is not used any more.
            unsafe { h5d::H5Dvlen_reclaim(typ, memory.id, h5p::H5P_DEFAULT, data.cast()) }
        })?;
        Ok(texts)
    }

    /// Writes a box of texts of any length, none of which has a zero byte.
    ///
    /// # Errors
    /// As for [`Dataset::read_texts`].
    pub fn write_texts(&self, start: &[u64], count: &[u64], texts: &[&[u8]]) -> Result<()> {
        let datatype = self.texts_only()?;
        let (file, memory, elements) = self.text_boxes(start, count)?;
        if elements != texts.len() as u64 {
            return Err(self
                .handle()
                .unsupported(self.name(), "has a box of other elements"));
        }
        if elements == 0 {
            return Ok(());
        }
        let texts = c_texts(self, self.name(), texts)?;
        let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        checked(
            &self.handle().file,
            format_args!("writing {}", self.name()),
            || {
                // SAFETY: `pointers` has a C string for each element of the box, which outlive the call.
                unsafe {
                    h5d::H5Dwrite(
                        self.handle().id,
                        datatype.handle().id,
                        memory.id,
                        file.id,
                        h5p::H5P_DEFAULT,
                        pointers.as_ptr().cast(),
                    )
                }
            },
        )?;
        Ok(())
    }

    /// Its type, if it is one of texts of any length.
    fn texts_only(&self) -> Result<Datatype> {
        let datatype = self.datatype()?;
        match datatype.class()? {
            Class::VariableString => Ok(datatype),
            _ => Err(self
                .handle()
                .unsupported(self.name(), "has no texts of any length")),
        }
    }

    /// The box in the file, a space of its shape in memory, and the number of its elements.
    fn text_boxes(&self, start: &[u64], count: &[u64]) -> Result<(Handle, Handle, u64)> {
        let memory = Space::fixed(count);
        let elements = memory.elements().filter(|&elements| elements <= MOST);
        let Some(elements) = elements else {
            return Err(self
                .handle()
                .unsupported(self.name(), "has too many elements in a box"));
        };
        let file = self.space_handle()?;
        if elements > 0 {
            select(&file, start, count)?;
        }
        Ok((file, memory.make(self.handle())?, elements))
    }
}

/// Creates an attribute of texts of any length, of the given type.
///
/// # Errors
/// Those of the library; a text has a zero byte; the type is another.
pub fn put_texts_of(
    to: &impl Attributed,
    name: &str,
    datatype: &Datatype,
    space: &Space,
    texts: &[&[u8]],
) -> Result<()> {
    let right =
        datatype.class()? == Class::VariableString && space.elements() == Some(texts.len() as u64);
    if !right {
        let file = to.id().1;
        return Err(FormatError::unsupported(
            file,
            format!("attribute {name}"),
            "has another shape",
        ));
    }
    let texts = c_texts(to, name, texts)?;
    let pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    put(to.id(), name, datatype, space, pointers.as_ptr().cast())
}

fn c_texts(of: &impl Attributed, name: &str, texts: &[&[u8]]) -> Result<Vec<CString>> {
    let texts = texts.iter().map(|text| CString::new(*text));
    let texts = texts.collect::<std::result::Result<Vec<_>, _>>();
    texts.map_err(|_| {
        let why = "has a text with a zero byte, which a text of any length cannot have";
        FormatError::unsupported(of.id().1, name, why)
    })
}
