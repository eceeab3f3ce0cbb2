//! Datatypes in words, and back: [`Hdf5Type`].

use std::ffi::{CStr, CString, c_char};
use std::path::Path;

use hdf5_metno_sys::h5t::{self, H5T_class_t, H5T_cset_t, H5T_str_t};
use slabfs_model::{ByteOrder, DType, DTypeKind};

use super::datatype::{Class, Datatype};
use super::handle::{Handle, checked, with_lock};
use crate::types::{Hdf5Type, Pad};
use crate::{FormatError, Result};

/// Types nested deeper than this are not described.
const MAX_DEPTH: usize = 16;
/// The most members of a type.
const MOST_MEMBERS: i32 = 1 << 16;

unsafe extern "C" {
    // Not in hdf5-metno-sys: frees what the library allocated.
    fn H5free_memory(mem: *mut std::ffi::c_void) -> i32;
}

impl Datatype {
    /// The type in words; `None` if there are none for it: pointers other than strings, references, numbers that are not of
    /// a usual size and form.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn describe(&self) -> Result<Option<Hdf5Type>> {
        let Some(typ) = self.described(0)? else {
            return Ok(None);
        };
        // What the words do not say makes another type.
        let again = Datatype::build(&self.handle().file, &typ)?;
        let same = match (self.class()?, self.size()?) {
            // The library compares an order of one byte too.
            (Class::Integer { .. }, 1) => again.equals(&self.with_order(false)?)?,
            _ => again.equals(self)?,
        };
        Ok(same.then_some(typ))
    }

    fn described(&self, depth: usize) -> Result<Option<Hdf5Type>> {
        if depth > MAX_DEPTH {
            return Ok(None);
        }
        let size = self.size()?;
        let number = |letter: char| -> Option<DType> {
            // One byte has no order, whatever the file says.
            let big = size > 1 && self.is_big_endian();
            let order = if big { ">" } else { "" };
            format!("{order}{letter}{size}").parse().ok()
        };
        let len = u32::try_from(size).unwrap_or(0);
        Ok(match self.class()? {
            Class::Integer { signed: true } => number('i').map(Hdf5Type::Number),
            Class::Integer { signed: false } => number('u').map(Hdf5Type::Number),
            Class::Float => number('f').map(Hdf5Type::Number),
            Class::Bitfield => number('u').map(Hdf5Type::Bitfield),
            Class::FixedString => self.string(Some(len)),
            Class::VariableString => self.string(None),
            Class::Opaque => self.tag()?.map(|tag| Hdf5Type::Opaque { len, tag }),
            Class::Enum => self.enumeration()?,
            Class::Compound => self.compound(len, depth)?,
            Class::Array => self.array(depth)?,
            Class::VariableLength | Class::Reference | Class::Time => None,
        })
    }

    fn string(&self, len: Option<u32>) -> Option<Hdf5Type> {
        let id = self.handle().id;
        // SAFETY: a type of strings that is open.
        let (pad, set) = with_lock(|| unsafe { (h5t::H5Tget_strpad(id), h5t::H5Tget_cset(id)) });
        Some(Hdf5Type::String {
            len,
            pad: match pad {
                H5T_str_t::H5T_STR_NULLTERM => Pad::NullTerm,
                H5T_str_t::H5T_STR_NULLPAD => Pad::NullPad,
                H5T_str_t::H5T_STR_SPACEPAD => Pad::SpacePad,
                _ => return None,
            },
            utf8: match set {
                H5T_cset_t::H5T_CSET_ASCII => false,
                H5T_cset_t::H5T_CSET_UTF8 => true,
                _ => return None,
            },
        })
    }

    /// A text that the library allocates; `None` if it is not UTF-8.
    fn owned_text(&self, call: impl FnOnce(i64) -> *mut c_char) -> Option<String> {
        with_lock(|| {
            let text = call(self.handle().id);
            if text.is_null() {
                return None;
            }
            // SAFETY: a C string of the library, which is freed after it was copied.
            unsafe {
                let copy = CStr::from_ptr(text).to_str().ok().map(str::to_owned);
                H5free_memory(text.cast());
                copy
            }
        })
    }

    fn tag(&self) -> Result<Option<String>> {
        // SAFETY: an opaque type that is open.
        Ok(self.owned_text(|id| unsafe { h5t::H5Tget_tag(id) }))
    }

    fn members(&self) -> Result<u32> {
        let count = checked(&self.handle().file, "a type", || {
            // SAFETY: the type is open.
            unsafe { h5t::H5Tget_nmembers(self.handle().id) }
        })?;
        match count <= MOST_MEMBERS {
            true => Ok(count as u32),
            false => Err(self.handle().unsupported("a type", "has too many members")),
        }
    }

    fn member_name(&self, at: u32) -> Option<String> {
        // SAFETY: a type with more members, which is open.
        self.owned_text(|id| unsafe { h5t::H5Tget_member_name(id, at) })
    }

    /// The type of which it is made.
    fn base(&self) -> Result<Datatype> {
        let id = self.handle().id;
        let handle = Handle::new(&self.handle().file, "a type", || {
            // SAFETY: the type is open.
            unsafe { h5t::H5Tget_super(id) }
        })?;
        Ok(Datatype::new(handle))
    }

    fn enumeration(&self) -> Result<Option<Hdf5Type>> {
        let Some(Hdf5Type::Number(base)) = self.base()?.described(0)? else {
            return Ok(None);
        };
        let mut members = Vec::new();
        for at in 0..self.members()? {
            let Some(name) = self.member_name(at) else {
                return Ok(None);
            };
            let mut value = [0_u8; 8];
            checked(&self.handle().file, "a type", || {
                // SAFETY: a value has at most 8 bytes, as the base is a number of a dtype.
                unsafe { h5t::H5Tget_member_value(self.handle().id, at, value.as_mut_ptr().cast()) }
            })?;
            members.push((name, integer(&base, &value)));
        }
        Ok(Some(Hdf5Type::Enum { base, members }))
    }

    fn compound(&self, len: u32, depth: usize) -> Result<Option<Hdf5Type>> {
        let mut members = Vec::new();
        for at in 0..self.members()? {
            let id = self.handle().id;
            let typ = Handle::new(&self.handle().file, "a type", || {
                // SAFETY: a compound with more members, which is open.
                unsafe { h5t::H5Tget_member_type(id, at) }
            })?;
            // SAFETY: as above.
            let offset = with_lock(|| unsafe { h5t::H5Tget_member_offset(id, at) });
            let typ = Datatype::new(typ).described(depth + 1)?;
            let (Some(name), Some(typ)) = (self.member_name(at), typ) else {
                return Ok(None);
            };
            if typ.size().is_none() {
                return Ok(None);
            }
            members.push((name, u32::try_from(offset).unwrap_or(u32::MAX), typ));
        }
        Ok(Some(Hdf5Type::Compound { len, members }))
    }

    fn array(&self, depth: usize) -> Result<Option<Hdf5Type>> {
        let file = &self.handle().file;
        let rank = checked(file, "a type", || {
            // SAFETY: an array type that is open.
            unsafe { h5t::H5Tget_array_ndims(self.handle().id) }
        })?;
        let mut dims = vec![0; rank.clamp(0, 1024) as usize];
        checked(file, "a type", || {
            // SAFETY: `dims` has a member for each axis, of which the library has at most 32.
            unsafe { h5t::H5Tget_array_dims2(self.handle().id, dims.as_mut_ptr()) }
        })?;
        let of = self.base()?.described(depth + 1)?;
        Ok(of
            .filter(|of| of.size().is_some())
            .map(|of| Hdf5Type::Array {
                of: Box::new(of),
                dims,
            }))
    }

    /// The type that words describe; errors name `file`.
    ///
    /// # Errors
    /// There is no such type.
    pub fn build(file: &Path, typ: &Hdf5Type) -> Result<Datatype> {
        match typ {
            Hdf5Type::Number(dtype) => number(file, dtype),
            Hdf5Type::Bitfield(dtype) => bitfield(file, dtype),
            Hdf5Type::String { len, pad, utf8 } => {
                let built = Datatype::text(file, len.map(|len| len as usize), *utf8)?;
                let pad = match pad {
                    Pad::NullTerm => H5T_str_t::H5T_STR_NULLTERM,
                    Pad::NullPad => H5T_str_t::H5T_STR_NULLPAD,
                    Pad::SpacePad => H5T_str_t::H5T_STR_SPACEPAD,
                };
                // SAFETY: the type is open.
                built.change(|id| unsafe { h5t::H5Tset_strpad(id, pad) })?;
                Ok(built)
            }
            Hdf5Type::Enum { base, members } => {
                let number = number(file, base)?;
                let id = number.handle().id;
                // SAFETY: the base is open.
                let built = Datatype::made(file, || unsafe { h5t::H5Tenum_create(id) })?;
                for (name, value) in members {
                    let (name, bytes) = (c_text(file, name)?, stored(base, *value));
                    built.change(|id| {
                        // SAFETY: the name is a C string, and the value has the bytes of the base.
                        unsafe { h5t::H5Tenum_insert(id, name.as_ptr(), bytes.as_ptr().cast()) }
                    })?;
                }
                Ok(built)
            }
            Hdf5Type::Compound { len, members } => {
                let len = *len as usize;
                // SAFETY: a class and a size.
                let built = Datatype::made(file, || unsafe {
                    h5t::H5Tcreate(H5T_class_t::H5T_COMPOUND, len)
                })?;
                for (name, offset, typ) in members {
                    let (name, typ) = (c_text(file, name)?, Datatype::build(file, typ)?);
                    built.change(|id| {
                        // SAFETY: the name is a C string, and the member's type is open.
                        unsafe {
                            h5t::H5Tinsert(id, name.as_ptr(), *offset as usize, typ.handle().id)
                        }
                    })?;
                }
                Ok(built)
            }
            Hdf5Type::Array { of, dims } => {
                let of = Datatype::build(file, of)?;
                Datatype::made(file, || {
                    // SAFETY: the type is open, and `dims` has that many members.
                    unsafe {
                        h5t::H5Tarray_create2(of.handle().id, dims.len() as u32, dims.as_ptr())
                    }
                })
            }
            Hdf5Type::Opaque { len, tag } => {
                let len = *len as usize;
                // SAFETY: a class and a size.
                let built = Datatype::made(file, || unsafe {
                    h5t::H5Tcreate(H5T_class_t::H5T_OPAQUE, len)
                })?;
                let tag = c_text(file, tag)?;
                // SAFETY: the type is open, and the tag a C string.
                built.change(|id| unsafe { h5t::H5Tset_tag(id, tag.as_ptr()) })?;
                Ok(built)
            }
        }
    }

    fn made(file: &Path, call: impl FnOnce() -> i64) -> Result<Datatype> {
        let handle = Handle::new(&std::sync::Arc::from(file), "making a type", call)?;
        Ok(Datatype::new(handle))
    }

    fn change(&self, call: impl FnOnce(i64) -> i32) -> Result<()> {
        checked(&self.handle().file, "making a type", || {
            call(self.handle().id)
        })?;
        Ok(())
    }
}

fn c_text(file: &Path, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|_| FormatError::unsupported(file, format!("{text:?}"), "has a zero byte"))
}

fn number(file: &Path, dtype: &DType) -> Result<Datatype> {
    let big = dtype.order() == ByteOrder::Big;
    let size = dtype.size() as usize;
    let class = match dtype.kind() {
        DTypeKind::Int => Class::Integer { signed: true },
        DTypeKind::UInt => Class::Integer { signed: false },
        _ => Class::Float,
    };
    if (class, size) != (Class::Float, 2) {
        return Datatype::number(file, class, size, big);
    }
    // Half precision, as NumPy has it: 1 bit for the sign, 5 for the exponent, 10 for the mantissa.
    let half = Datatype::number(file, class, 4, big)?;
    half.change(|id| {
        // SAFETY: the type is open and its own.
        unsafe {
            h5t::H5Tset_fields(id, 15, 10, 5, 0, 10)
                .min(h5t::H5Tset_size(id, 2))
                .min(h5t::H5Tset_ebias(id, 15))
        }
    })?;
    Ok(half)
}

fn bitfield(file: &Path, dtype: &DType) -> Result<Datatype> {
    with_lock(|| ());
    let id = match dtype.size() {
        1 => *h5t::H5T_STD_B8LE,
        2 => *h5t::H5T_STD_B16LE,
        4 => *h5t::H5T_STD_B32LE,
        _ => *h5t::H5T_STD_B64LE,
    };
    // SAFETY: a type of the library.
    let little = Datatype::made(file, || unsafe { h5t::H5Tcopy(id) })?;
    match dtype.order() {
        ByteOrder::Big => little.with_order(true),
        ByteOrder::Little => Ok(little),
    }
}

/// The value of an integer as it is stored.
fn integer(base: &DType, bytes: &[u8; 8]) -> i128 {
    let size = base.size() as usize;
    let mut wide = [0_u8; 8];
    for at in 0..size {
        wide[at] = match base.order() {
            ByteOrder::Little => bytes[at],
            ByteOrder::Big => bytes[size - 1 - at],
        };
    }
    let bits = u64::from_le_bytes(wide);
    let unused = 64 - 8 * size;
    match base.kind() {
        DTypeKind::Int => i128::from(((bits << unused) as i64) >> unused),
        _ => i128::from(bits),
    }
}

/// An integer as it is stored.
fn stored(base: &DType, value: i128) -> [u8; 8] {
    let size = base.size() as usize;
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&value.to_le_bytes()[..size]);
    if base.order() == ByteOrder::Big {
        bytes[..size].reverse();
    }
    bytes
}
