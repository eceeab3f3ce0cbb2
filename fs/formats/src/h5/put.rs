//! Writes attributes: the reverse of `attributes`.

use std::path::Path;

use slabfs_model::{ByteOrder, DTypeKind};

use super::Dialect;
use super::attributes::{usual_space, usual_text};
use super::write::is_atomic;
use crate::hdf5::{self, Attributed, Class, Datatype, put_texts_of};
use crate::tree::{Attribute, Hdf5Value, Space, Value};
use crate::types::{Hdf5Type, Pad};
use crate::{FormatError, Result};

/// The types that a file defines, with the paths of their names, in the scope of a group.
pub(super) type Named = [(Hdf5Type, Datatype)];

/// Attributes that the libraries of HDF5 and NetCDF write themselves.
const OF_LIBRARIES: [&str; 7] = [
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
];

/// What attributes are written to.
pub(super) struct Putter<'a> {
    pub(super) file: &'a Path,
    pub(super) dialect: Dialect,
    /// What cannot be written is left out.
    pub(super) lenient: bool,
    pub(super) named: &'a Named,
}

impl Putter<'_> {
    /// The type with its name in the file, if it has one.
    pub(super) fn datatype(&self, typ: &Hdf5Type) -> Result<Datatype> {
        match self.named.iter().find(|(known, _)| known == typ) {
            Some((_, named)) => named.again(),
            None => Datatype::build(self.file, typ),
        }
    }

    /// Writes the attributes of the object with the path `of`.
    pub(super) fn all(
        &self,
        to: &impl Attributed,
        of: &str,
        attributes: &[Attribute],
    ) -> Result<()> {
        attributes
            .iter()
            .filter(|one| !self.lenient || !OF_LIBRARIES.contains(&one.name.as_str()))
            .try_for_each(|one| match self.one(to, of, one) {
                Err(FormatError::Unsupported { .. }) if self.lenient => Ok(()),
                done => done,
            })
    }

    pub(super) fn one(&self, to: &impl Attributed, of: &str, attribute: &Attribute) -> Result<()> {
        let Attribute { name, value } = attribute;
        let refused = |why: &str| {
            let what = format!("attribute {of}:{name}");
            Err(FormatError::unsupported(self.file, what, why))
        };
        match value {
            Value::Numbers { dtype, bytes } => {
                let typ = Hdf5Type::of(dtype);
                let Some(typ @ Hdf5Type::Number(_)) = typ else {
                    return refused(&format!("has the type {dtype}, which no attribute has"));
                };
                let space = usual_space(bytes.len() as u64 / dtype.size(), self.dialect);
                to.put_attribute(name, &self.datatype(&typ)?, &made(&space), bytes)
            }
            Value::Chars(bytes) => {
                let (typ, space) = usual_text(bytes.len(), self.dialect);
                to.put_attribute(name, &self.datatype(&typ)?, &made(&space), bytes)
            }
            Value::Text(text) if self.dialect == Dialect::NetCdf => {
                let chars = Value::Chars(text.as_bytes().to_vec());
                let name = name.clone();
                self.one(to, of, &Attribute { name, value: chars })
            }
            Value::Text(text) => {
                self.texts(to, name, &Space::Scalar, &any_text(), &[text.as_bytes()])
            }
            Value::Strings(texts) => {
                let space = Space::Simple(vec![texts.len() as u64]);
                let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
                self.texts(to, name, &space, &any_text(), &texts)
            }
            Value::Json(json) => refused(&format!("is {json}, which HDF5 has no type for")),
            Value::Hdf5(value) => self.typed(to, of, name, value),
        }
    }

    fn texts(
        &self,
        to: &impl Attributed,
        name: &str,
        space: &Space,
        typ: &Hdf5Type,
        texts: &[&[u8]],
    ) -> Result<()> {
        put_texts_of(to, name, &self.datatype(typ)?, &made(space), texts)
    }

    /// An attribute of a type that NetCDF has not: truth values become numbers, others are refused.
    fn without_name(
        &self,
        to: &impl Attributed,
        of: &str,
        name: &str,
        value: &Hdf5Value,
    ) -> Result<()> {
        match (&value.elements, &value.typ) {
            (Value::Numbers { bytes, .. }, typ) if Some(typ) == Hdf5Type::boolean().as_ref() => {
                let byte = Datatype::number(self.file, Class::Integer { signed: false }, 1, false)?;
                to.put_attribute(name, &byte, &made(&value.space), bytes)
            }
            _ => {
                let what = format!("attribute {of}:{name}");
                let why = format!(
                    "has the type {}, which NetCDF has not; export it to .h5",
                    value.typ
                );
                Err(FormatError::unsupported(self.file, what, why))
            }
        }
    }

    /// An attribute with its own type and dataspace.
    fn typed(&self, to: &impl Attributed, of: &str, name: &str, value: &Hdf5Value) -> Result<()> {
        let refused = || {
            let what = format!("attribute {of}:{name}");
            let why = format!("has a value that is not of its type, {}", value.typ);
            FormatError::unsupported(self.file, what, why)
        };
        let text = matches!(value.typ, Hdf5Type::String { .. });
        let known =
            text || is_atomic(&value.typ) || self.named.iter().any(|(typ, _)| *typ == value.typ);
        if self.dialect == Dialect::NetCdf && !known {
            return self.without_name(to, of, name, value);
        }
        let datatype = self.datatype(&value.typ)?;
        let bytes = match (&value.elements, &value.typ) {
            (Value::Strings(texts), typ @ Hdf5Type::String { len: None, .. }) => {
                let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
                return self.texts(to, name, &value.space, typ, &texts);
            }
            // Nothing is written for it.
            (_, Hdf5Type::String { len: None, .. }) if value.space == Space::Null => {
                return self.texts(to, name, &value.space, &value.typ, &[]);
            }
            (Value::Chars(bytes), typ) if typ.size().is_some() => bytes.clone(),
            (Value::Numbers { bytes, .. }, typ) => stored(typ, bytes).ok_or_else(refused)?,
            _ => return Err(refused()),
        };
        to.put_attribute(name, &datatype, &made(&value.space), &bytes)
    }
}

/// Texts of any length as NetCDF and h5py write them.
pub(super) fn any_text() -> Hdf5Type {
    Hdf5Type::String {
        len: None,
        pad: Pad::NullTerm,
        utf8: true,
    }
}

/// Little-endian numbers in the order of the type.
fn stored(typ: &Hdf5Type, bytes: &[u8]) -> Option<Vec<u8>> {
    let (Hdf5Type::Number(dtype) | Hdf5Type::Enum { base: dtype, .. }) = typ else {
        return None;
    };
    let mut bytes = bytes.to_vec();
    if dtype.order() == ByteOrder::Big && dtype.kind() != DTypeKind::Bool {
        bytes
            .chunks_exact_mut(dtype.size() as usize)
            .for_each(<[u8]>::reverse);
    }
    Some(bytes)
}

fn made(space: &Space) -> hdf5::Space {
    match space {
        Space::Null => hdf5::Space::Null,
        Space::Scalar => hdf5::Space::Scalar,
        Space::Simple(dims) => hdf5::Space::fixed_axes(dims),
    }
}
