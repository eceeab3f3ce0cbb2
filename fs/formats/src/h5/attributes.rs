//! Reads attributes into values of the model.
//!
//! A value is plain where a writer of the same dialect makes the same attribute from it: numbers of one axis (in HDF5
//! without conventions one number is a scalar), characters, and lists of UTF-8 texts. All others keep type and dataspace.

use std::path::Path;

use slabfs_model::{ByteOrder, DType, DTypeKind};

use super::scan::refused;
use super::{CLASS, COORDINATES, DIM_ID, Dialect, NAME, NO_VARIABLE, PROPERTIES, STRICT};
use crate::hdf5::{self, Attributed, DIMENSION_LIST, REFERENCE_LIST};
use crate::tree::{Attribute, Hdf5Value, Space, Value};
use crate::types::{Hdf5Type, Pad};
use crate::{FormatError, Result};

/// The attributes of an object of the file, without those that are conventions. `what` is its path, `scale` says that it
/// is a dimension scale.
pub(super) fn read(
    file: &Path,
    object: &impl Attributed,
    what: &str,
    scale: Option<&str>,
    dialect: Dialect,
) -> Result<Vec<Attribute>> {
    let mut attributes = Vec::new();
    for name in object.attribute_names()? {
        let convention = match name.as_str() {
            DIMENSION_LIST | REFERENCE_LIST | DIM_ID | COORDINATES => dialect == Dialect::NetCdf,
            PROPERTIES | STRICT => what.is_empty(),
            CLASS => scale.is_some(),
            _ => false,
        };
        if convention {
            continue;
        }
        let Some(attribute) = object.attribute(&name)? else {
            continue;
        };
        let value = value(file, &attribute, what, dialect)?;
        // The usual name of a scale is made again.
        if let (NAME, Some(scale)) = (name.as_str(), scale)
            && characters(&value).is_some_and(|text| {
                text == scale.as_bytes() || text.starts_with(NO_VARIABLE.as_bytes())
            })
        {
            continue;
        }
        attributes.push(Attribute { name, value });
    }
    Ok(attributes)
}

/// The characters of a value without the zeros at their end.
fn characters(value: &Value) -> Option<&[u8]> {
    let bytes = match value {
        Value::Chars(bytes) => bytes,
        Value::Hdf5(value) => match &value.elements {
            Value::Chars(bytes) => bytes,
            _ => return None,
        },
        _ => return None,
    };
    let end = bytes.iter().rposition(|&byte| byte != 0);
    Some(&bytes[..end.map_or(0, |end| end + 1)])
}

fn value(file: &Path, attribute: &hdf5::Attribute, of: &str, dialect: Dialect) -> Result<Value> {
    let what = format!("attribute {of}:{}", attribute.name());
    let datatype = attribute.datatype()?;
    let Some(typ) = datatype.describe()? else {
        return Err(FormatError::unsupported(file, what, refused(&datatype)?));
    };
    let space = match attribute.space()? {
        hdf5::Space::Null => Space::Null,
        hdf5::Space::Scalar => Space::Scalar,
        hdf5::Space::Simple { dims, .. } => Space::Simple(dims),
    };
    let elements = match (&typ, &space) {
        (_, Space::Null) => Value::Chars(Vec::new()),
        (Hdf5Type::String { len: None, .. }, _) => {
            let texts = attribute.read_texts()?.into_iter();
            let texts = texts.map(|text| String::from_utf8(text.unwrap_or_default()));
            let texts = texts.collect::<std::result::Result<Vec<String>, _>>();
            Value::Strings(
                texts.map_err(|_| FormatError::unsupported(file, &what, "is not UTF-8"))?,
            )
        }
        (Hdf5Type::Number(dtype) | Hdf5Type::Enum { base: dtype, .. }, _) => {
            numbers(dtype, attribute.read()?)
        }
        _ => Value::Chars(attribute.read()?),
    };
    Ok(match plain(&typ, &space, &elements, dialect) {
        Some(value) => value,
        None => Value::Hdf5(Box::new(Hdf5Value {
            typ,
            space,
            elements,
        })),
    })
}

/// Numbers in little-endian order; bytes if a tag would change them.
fn numbers(dtype: &DType, mut bytes: Vec<u8>) -> Value {
    let size = dtype.size() as usize;
    let exact = bytes.clone();
    if dtype.order() == ByteOrder::Big {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    let odd = |one: &[u8]| match (size, one) {
        // Other bits of NaN than the usual ones.
        (4, &[a, b, c, d]) => {
            let bits = u32::from_le_bytes([a, b, c, d]);
            f32::from_bits(bits).is_nan() && bits != f32::NAN.to_bits()
        }
        (8, &[a, b, c, d, e, f, g, h]) => {
            let bits = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
            f64::from_bits(bits).is_nan() && bits != f64::NAN.to_bits()
        }
        _ => true,
    };
    if dtype.kind() == DTypeKind::Float && bytes.chunks_exact(size).any(odd) {
        return Value::Chars(exact);
    }
    match little(dtype) {
        Some(dtype) => Value::Numbers { dtype, bytes },
        None => Value::Chars(exact),
    }
}

/// The same type in little-endian order.
pub(super) fn little(dtype: &DType) -> Option<DType> {
    dtype.to_string().trim_start_matches('>').parse().ok()
}

/// The value without type and dataspace, if a writer makes these from it.
fn plain(typ: &Hdf5Type, space: &Space, elements: &Value, dialect: Dialect) -> Option<Value> {
    let right = match (typ, space, elements) {
        (Hdf5Type::Number(_), space, Value::Numbers { dtype, bytes }) => {
            usual_space(bytes.len() as u64 / dtype.size(), dialect) == *space
        }
        (
            Hdf5Type::String {
                len: None,
                utf8,
                pad: Pad::NullTerm,
            },
            space,
            Value::Strings(texts),
        ) => {
            if dialect == Dialect::Plain && *utf8 && *space == Space::Scalar {
                return texts.first().cloned().map(Value::Text);
            }
            *utf8 && *space == Space::Simple(vec![texts.len() as u64])
        }
        (typ, space, Value::Chars(bytes)) => {
            (typ, space)
                == (
                    &usual_text(bytes.len(), dialect).0,
                    &usual_text(bytes.len(), dialect).1,
                )
        }
        _ => false,
    };
    right.then(|| elements.clone())
}

/// The dataspace of so many numbers.
pub(super) fn usual_space(count: u64, dialect: Dialect) -> Space {
    match (dialect, count) {
        (Dialect::Plain, 1) => Space::Scalar,
        _ => Space::Simple(vec![count]),
    }
}

/// The type and dataspace of so many characters.
pub(super) fn usual_text(len: usize, dialect: Dialect) -> (Hdf5Type, Space) {
    let typ = Hdf5Type::String {
        len: u32::try_from(len.max(1)).ok(),
        pad: match dialect {
            Dialect::NetCdf => Pad::NullTerm,
            Dialect::Plain => Pad::NullPad,
        },
        utf8: false,
    };
    let space = if len == 0 { Space::Null } else { Space::Scalar };
    (typ, space)
}
