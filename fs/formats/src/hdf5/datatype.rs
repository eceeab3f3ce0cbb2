//! Datatypes.

use hdf5_metno_sys::h5i;
use hdf5_metno_sys::h5o;
use hdf5_metno_sys::h5t::{self, H5T_class_t, H5T_order_t, H5T_sign_t};

use super::handle::{Handle, checked, with_lock};
use crate::Result;

/// The most bytes of an element of a type.
const MAX_SIZE: usize = 1 << 30;

/// A datatype.
#[derive(Debug)]
pub struct Datatype {
    handle: Handle,
}

/// The kind of a datatype.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Integers.
    Integer {
        /// They can be negative.
        signed: bool,
    },
    /// Floating point.
    Float,
    /// Text of a fixed number of bytes.
    FixedString,
    /// Text of any length, by a pointer.
    VariableString,
    /// Sequences of any length, by a pointer.
    VariableLength,
    /// References to objects or parts of them, which hold in their own file only.
    Reference,
    /// Sets of bits.
    Bitfield,
    /// Bytes without meaning.
    Opaque,
    /// Records of members.
    Compound,
    /// Named integers.
    Enum,
    /// Arrays of a fixed shape.
    Array,
    /// Times of old files.
    Time,
}

impl Datatype {
    pub(super) fn new(handle: Handle) -> Datatype {
        Datatype { handle }
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The same type without a name in a file.
    ///
    /// # Errors
    /// Of the library.
    pub fn copy(&self) -> Result<Datatype> {
        // SAFETY: the type is open.
        let copy = Handle::new(&self.handle.file, "a type", || unsafe {
            h5t::H5Tcopy(self.handle.id)
        })?;
        Ok(Datatype::new(copy))
    }

    /// Another reference to it, with its name in a file.
    ///
    /// # Errors
    /// Of the library.
    pub fn again(&self) -> Result<Datatype> {
        let handle = Handle::new(&self.handle.file, "a type", || {
            // SAFETY: the type is open; the new reference is released by its own handle.
            match unsafe { h5i::H5Iinc_ref(self.handle.id) } {
                1.. => self.handle.id,
                _ => -1,
            }
        })?;
        Ok(Datatype::new(handle))
    }

    /// Its kind.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn class(&self) -> Result<Class> {
        // SAFETY: the type is open.
        let class = with_lock(|| unsafe { h5t::H5Tget_class(self.handle.id) });
        Ok(match class {
            H5T_class_t::H5T_INTEGER => {
                // SAFETY: the type is open.
                let sign = with_lock(|| unsafe { h5t::H5Tget_sign(self.handle.id) });
                let signed = sign == H5T_sign_t::H5T_SGN_2;
                Class::Integer { signed }
            }
            H5T_class_t::H5T_FLOAT => Class::Float,
            H5T_class_t::H5T_STRING => {
                let variable = checked(&self.handle.file, "a type", || {
                    // SAFETY: the type is open.
                    unsafe { h5t::H5Tis_variable_str(self.handle.id) }
                })?;
                match variable > 0 {
                    true => Class::VariableString,
                    false => Class::FixedString,
                }
            }
            H5T_class_t::H5T_VLEN => Class::VariableLength,
            H5T_class_t::H5T_REFERENCE => Class::Reference,
            H5T_class_t::H5T_BITFIELD => Class::Bitfield,
            H5T_class_t::H5T_OPAQUE => Class::Opaque,
            H5T_class_t::H5T_COMPOUND => Class::Compound,
            H5T_class_t::H5T_ENUM => Class::Enum,
            H5T_class_t::H5T_ARRAY => Class::Array,
            H5T_class_t::H5T_TIME => Class::Time,
            _ => return Err(self.handle.unsupported("a type", "is of an unknown class")),
        })
    }

    /// Bytes of an element in memory.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn size(&self) -> Result<usize> {
        // SAFETY: the type is open.
        let size = with_lock(|| unsafe { h5t::H5Tget_size(self.handle.id) });
        match size {
            1..=MAX_SIZE => Ok(size),
            _ => Err(self
                .handle
                .unsupported("a type", format!("has {size} bytes"))),
        }
    }

    /// Whether its elements are stored with the most significant byte first; false where that has no meaning.
    pub fn is_big_endian(&self) -> bool {
        // SAFETY: the type is open.
        let order = with_lock(|| unsafe { h5t::H5Tget_order(self.handle.id) });
        order == H5T_order_t::H5T_ORDER_BE
    }

    /// The same type with the given order of bytes.
    ///
    /// # Errors
    /// It has no order.
    pub fn with_order(&self, big_endian: bool) -> Result<Datatype> {
        let copy = self.copy()?;
        let order = match big_endian {
            true => H5T_order_t::H5T_ORDER_BE,
            false => H5T_order_t::H5T_ORDER_LE,
        };
        checked(&self.handle.file, "the byte order of a type", || {
            // SAFETY: the type is open.
            unsafe { h5t::H5Tset_order(copy.handle.id, order) }
        })?;
        Ok(copy)
    }

    /// Whether an element has references to objects, or is one.
    ///
    /// # Errors
    /// Of the library.
    pub fn has_references(&self) -> Result<bool> {
        self.detects(H5T_class_t::H5T_REFERENCE)
    }

    /// Whether an element has parts of variable length, other than a string.
    ///
    /// # Errors
    /// Of the library.
    pub fn has_sequences(&self) -> Result<bool> {
        self.detects(H5T_class_t::H5T_VLEN)
    }

    fn detects(&self, class: H5T_class_t) -> Result<bool> {
        let found = checked(&self.handle.file, "a type", || {
            // SAFETY: the type is open.
            unsafe { h5t::H5Tdetect_class(self.handle.id, class) }
        })?;
        Ok(found > 0)
    }

    /// Whether an element is in one piece: no pointers to other memory, and no references.
    ///
    /// # Errors
    /// Of the library.
    pub fn is_flat(&self) -> Result<bool> {
        let pointers = self.detects(H5T_class_t::H5T_VLEN)?
            || self.detects(H5T_class_t::H5T_REFERENCE)?
            || self.has_variable_strings()?;
        Ok(!pointers)
    }

    /// `H5Tdetect_class` takes strings of any length for strings, also in compounds: members are looked at one by one.
    fn has_variable_strings(&self) -> Result<bool> {
        match self.class()? {
            Class::VariableString => Ok(true),
            Class::Array => Datatype::new(self.part(|id| {
                // SAFETY: an array type that is open.
                unsafe { h5t::H5Tget_super(id) }
            })?)
            .has_variable_strings(),
            Class::Compound => {
                let members = checked(&self.handle.file, "a type", || {
                    // SAFETY: the type is open.
                    unsafe { h5t::H5Tget_nmembers(self.handle.id) }
                })?;
                for at in 0..members as u32 {
                    let member = self.part(|id| {
                        // SAFETY: a compound that is open, and has more members.
                        unsafe { h5t::H5Tget_member_type(id, at) }
                    })?;
                    if Datatype::new(member).has_variable_strings()? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    fn part(&self, call: impl FnOnce(i64) -> i64) -> Result<Handle> {
        Handle::new(&self.handle.file, "a part of a type", || {
            call(self.handle.id)
        })
    }

    /// Whether it has a name in a file: many datasets can share it.
    ///
    /// # Errors
    /// Of the library.
    pub fn is_named(&self) -> Result<bool> {
        let named = checked(&self.handle.file, "a type", || {
            // SAFETY: the type is open.
            unsafe { h5t::H5Tcommitted(self.handle.id) }
        })?;
        Ok(named > 0)
    }

    /// The address of the header of a type with a name.
    ///
    /// # Errors
    /// It has no name; the file is damaged.
    pub fn address(&self) -> Result<u64> {
        let mut info = h5o::H5O_info1_t::default();
        checked(&self.handle.file, "a type", || {
            // SAFETY: the type is open, and `info` outlives the call.
            unsafe { h5o::H5Oget_info2(self.handle.id, &mut info, h5o::H5O_INFO_BASIC) }
        })?;
        Ok(info.addr)
    }

    /// Whether both describe the same elements.
    ///
    /// # Errors
    /// Of the library.
    pub fn equals(&self, other: &Datatype) -> Result<bool> {
        let equal = checked(&self.handle.file, "comparing types", || {
            // SAFETY: both types are open.
            unsafe { h5t::H5Tequal(self.handle.id, other.handle.id) }
        })?;
        Ok(equal > 0)
    }

    /// The type as bytes, which [`Datatype::decode`] reads.
    ///
    /// # Errors
    /// Of the library.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let file = &self.handle.file;
        let mut size = 0;
        checked(file, "encoding a type", || {
            // SAFETY: without a buffer the library only says how long it has to be.
            unsafe { h5t::H5Tencode(self.handle.id, std::ptr::null_mut(), &mut size) }
        })?;
        let mut bytes = vec![0_u8; size];
        checked(file, "encoding a type", || {
            // SAFETY: the buffer has `size` bytes.
            unsafe { h5t::H5Tencode(self.handle.id, bytes.as_mut_ptr().cast(), &mut size) }
        })?;
        Ok(bytes)
    }

    /// A type from bytes of [`Datatype::encode`]; errors name `file`. The library does not know how many bytes there are:
    /// give it none that others could have changed.
    ///
    /// # Errors
    /// They are no type.
    pub fn decode(file: &std::path::Path, bytes: &[u8]) -> Result<Datatype> {
        // The library reads a length from the first bytes and has no limit; zeros end what it follows.
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len() + 4096, 0);
        let file = std::sync::Arc::from(file);
        let handle = Handle::new(&file, "decoding a type", || {
            // SAFETY: the buffer is longer than the encoded type.
            unsafe { h5t::H5Tdecode(padded.as_ptr().cast()) }
        })?;
        Ok(Datatype::new(handle))
    }

    /// A type of integers of 1, 2, 4 or 8 bytes or floats of 4 or 8, in the given byte order; errors name `file`.
    ///
    /// # Errors
    /// There is none of this size.
    pub fn number(
        file: &std::path::Path,
        class: Class,
        size: usize,
        big_endian: bool,
    ) -> Result<Datatype> {
        // The library's types have identifiers when it has been started.
        with_lock(|| ());
        let id = match (class, size) {
            (Class::Integer { signed: true }, 1) => *h5t::H5T_STD_I8LE,
            (Class::Integer { signed: true }, 2) => *h5t::H5T_STD_I16LE,
            (Class::Integer { signed: true }, 4) => *h5t::H5T_STD_I32LE,
            (Class::Integer { signed: true }, 8) => *h5t::H5T_STD_I64LE,
            (Class::Integer { signed: false }, 1) => *h5t::H5T_STD_U8LE,
            (Class::Integer { signed: false }, 2) => *h5t::H5T_STD_U16LE,
            (Class::Integer { signed: false }, 4) => *h5t::H5T_STD_U32LE,
            (Class::Integer { signed: false }, 8) => *h5t::H5T_STD_U64LE,
            (Class::Float, 4) => *h5t::H5T_IEEE_F32LE,
            (Class::Float, 8) => *h5t::H5T_IEEE_F64LE,
            _ => {
                return Err(crate::FormatError::Unsupported {
                    path: file.to_owned(),
                    what: "a type".to_owned(),
                    why: format!("is {class:?} of {size} bytes"),
                });
            }
        };
        let file = std::sync::Arc::from(file);
        // SAFETY: a type of the library.
        let handle = Handle::new(&file, "a type", || unsafe { h5t::H5Tcopy(id) })?;
        let little = Datatype::new(handle);
        match big_endian {
            true => little.with_order(true),
            false => Ok(little),
        }
    }

    /// A type of texts: of `size` bytes padded with zeros, or of any length; errors name `file`.
    ///
    /// # Errors
    /// Of the library.
    pub fn text(file: &std::path::Path, size: Option<usize>, utf8: bool) -> Result<Datatype> {
        let file: std::sync::Arc<std::path::Path> = std::sync::Arc::from(file);
        // SAFETY: a type of the library.
        let handle = Handle::new(&file, "a type", || unsafe { h5t::H5Tcopy(*h5t::H5T_C_S1) })?;
        let set = match utf8 {
            true => h5t::H5T_cset_t::H5T_CSET_UTF8,
            false => h5t::H5T_cset_t::H5T_CSET_ASCII,
        };
        let size = size.unwrap_or(h5t::H5T_VARIABLE);
        checked(&file, "a type", || {
            // SAFETY: the type is open and its own.
            unsafe { h5t::H5Tset_size(handle.id, size).min(h5t::H5Tset_cset(handle.id, set)) }
        })?;
        Ok(Datatype::new(handle))
    }
}
