//! Types of HDF5 in words: what a dtype does not say about elements, as JSON for tags.
//!
//! | JSON | type |
//! |---|---|
//! | `"u2"`, `">f8"`, `"f2"` | integers and IEEE 754 numbers, as dtypes |
//! | `{"string": 11, "pad": "nullpad", "set": "ascii"}` | text of 11 bytes; `"variable"` for any length |
//! | `{"enum": "u2", "members": {"Clear": 0}}` | names for numbers |
//! | `{"compound": 12, "members": [["a", 0, "i4"]]}` | records of 12 bytes: names, positions and types |
//! | `{"array": "f4", "dims": [2, 3]}` | arrays as elements |
//! | `{"opaque": 12, "tag": "jpeg"}`, `{"bitfield": "u2"}` | bytes and bits |
//!
//! A type that this cannot describe exactly is refused by the reader.

use std::fmt;

use serde_json::{Map, Value as Json, json};
use slabfs_model::{ByteOrder, DType, DTypeKind};

/// Types nested deeper than this are refused.
const MAX_DEPTH: usize = 16;
/// Types with more members than this are refused.
const MOST_MEMBERS: usize = 1 << 16;

/// A type of HDF5.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hdf5Type {
    /// An integer of 1, 2, 4 or 8 bytes or a number of 2, 4 or 8.
    Number(DType),
    /// Text.
    String {
        /// Its bytes, `None` for any number.
        len: Option<u32>,
        /// How it is padded.
        pad: Pad,
        /// It is UTF-8, not ASCII.
        utf8: bool,
    },
    /// Names for integers.
    Enum {
        /// The integers.
        base: DType,
        /// Names and values.
        members: Vec<(String, i128)>,
    },
    /// Records.
    Compound {
        /// The bytes of a record.
        len: u32,
        /// Names, positions and types.
        members: Vec<(String, u32, Hdf5Type)>,
    },
    /// Arrays.
    Array {
        /// The type of their elements.
        of: Box<Hdf5Type>,
        /// Their shape.
        dims: Vec<u64>,
    },
    /// Bytes.
    Opaque {
        /// How many.
        len: u32,
        /// What they are.
        tag: String,
    },
    /// Bits, as an unsigned integer.
    Bitfield(DType),
}

/// How a text of a fixed length is padded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pad {
    /// A zero ends it.
    NullTerm,
    /// Zeros follow it.
    NullPad,
    /// Spaces follow it.
    SpacePad,
}

impl Pad {
    fn name(self) -> &'static str {
        match self {
            Pad::NullTerm => "nullterm",
            Pad::NullPad => "nullpad",
            Pad::SpacePad => "spacepad",
        }
    }

    fn named(name: &str) -> Option<Pad> {
        [Pad::NullTerm, Pad::NullPad, Pad::SpacePad]
            .into_iter()
            .find(|pad| pad.name() == name)
    }
}

impl fmt::Display for Hdf5Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hdf5Type::Number(dtype) => write!(f, "{dtype}"),
            Hdf5Type::String { len: None, .. } => f.write_str("string"),
            Hdf5Type::String { len: Some(len), .. } => write!(f, "string of {len} bytes"),
            Hdf5Type::Enum { base, .. } => write!(f, "enumeration of {base}"),
            Hdf5Type::Compound { members, .. } => {
                f.write_str("compound {")?;
                for (at, (name, _, typ)) in members.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{name}: {typ}")?;
                }
                f.write_str("}")
            }
            Hdf5Type::Array { of, dims } => write!(f, "array {dims:?} of {of}"),
            Hdf5Type::Opaque { len, .. } => write!(f, "opaque of {len} bytes"),
            Hdf5Type::Bitfield(dtype) => write!(f, "bitfield of {} bytes", dtype.size()),
        }
    }
}

impl Hdf5Type {
    /// The complex numbers of h5py: records of a real and an imaginary part, of 4 or 8 bytes each.
    pub fn complex(dtype: &DType) -> Option<Hdf5Type> {
        let half = (dtype.size() / 2) as u32;
        let order = match dtype.order() {
            ByteOrder::Little => "",
            ByteOrder::Big => ">",
        };
        let part = format!("{order}f{half}").parse().ok()?;
        let member = |name: &str, at: u32| (name.to_owned(), at * half, Hdf5Type::Number(part));
        Some(Hdf5Type::Compound {
            len: 2 * half,
            members: vec![member("r", 0), member("i", 1)],
        })
    }

    /// The truth values of h5py.
    pub fn boolean() -> Option<Hdf5Type> {
        Some(Hdf5Type::Enum {
            base: "i1".parse().ok()?,
            members: vec![("FALSE".to_owned(), 0), ("TRUE".to_owned(), 1)],
        })
    }

    /// The bytes of an element; `None` for texts of any length.
    pub fn size(&self) -> Option<u64> {
        Some(match self {
            Hdf5Type::Number(dtype) | Hdf5Type::Bitfield(dtype) => dtype.size(),
            Hdf5Type::Enum { base, .. } => base.size(),
            Hdf5Type::String { len, .. } => u64::from((*len)?),
            Hdf5Type::Compound { len, .. } | Hdf5Type::Opaque { len, .. } => u64::from(*len),
            Hdf5Type::Array { of, dims } => dims
                .iter()
                .fold(of.size()?, |size, &len| size.saturating_mul(len)),
        })
    }

    /// The dtype of elements of this type; `None` if there is none of this size. Numbers, truth values and complex numbers
    /// need nothing else; the others do.
    pub fn dtype(&self) -> Option<DType> {
        for text in ["b1", "c8", "c16", ">c8", ">c16"] {
            let dtype: DType = text.parse().ok()?;
            let same = match dtype.kind() {
                DTypeKind::Bool => Hdf5Type::boolean(),
                _ => Hdf5Type::complex(&dtype),
            };
            if same.as_ref() == Some(self) {
                return Some(dtype);
            }
        }
        match self {
            Hdf5Type::Number(dtype) | Hdf5Type::Bitfield(dtype) => Some(*dtype),
            Hdf5Type::Enum { base, .. } => Some(*base),
            Hdf5Type::String { len, .. } => format!("S{}", (*len)?).parse().ok(),
            _ => format!("V{}", self.size()?).parse().ok(),
        }
    }

    /// The type of elements of a dtype; `None` if HDF5 has none.
    pub fn of(dtype: &DType) -> Option<Hdf5Type> {
        let len = u32::try_from(dtype.size()).ok()?;
        Some(match dtype.kind() {
            DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float => Hdf5Type::Number(*dtype),
            DTypeKind::Complex => Hdf5Type::complex(dtype)?,
            DTypeKind::Bool => Hdf5Type::boolean()?,
            DTypeKind::Bytes => Hdf5Type::String {
                len: Some(len),
                // One byte is a character of NetCDF.
                pad: if len == 1 {
                    Pad::NullTerm
                } else {
                    Pad::NullPad
                },
                utf8: false,
            },
            DTypeKind::Void => Hdf5Type::Opaque {
                len,
                tag: String::new(),
            },
            DTypeKind::Unicode => return None,
        })
    }

    /// The type as JSON.
    pub fn to_json(&self) -> Json {
        match self {
            Hdf5Type::Number(dtype) => json!(dtype.to_string()),
            Hdf5Type::String { len, pad, utf8 } => {
                let len = len.map_or(json!("variable"), |len| json!(len));
                let set = if *utf8 { "utf-8" } else { "ascii" };
                json!({ "string": len, "pad": pad.name(), "set": set })
            }
            Hdf5Type::Enum { base, members } => {
                // A list: objects of JSON have no order.
                let members = members
                    .iter()
                    .map(|(name, value)| json!([name, value.to_string()]));
                json!({ "enum": base.to_string(), "members": members.collect::<Vec<Json>>() })
            }
            Hdf5Type::Compound { len, members } => {
                let members = members
                    .iter()
                    .map(|(name, at, typ)| json!([name, at, typ.to_json()]));
                json!({ "compound": len, "members": members.collect::<Vec<Json>>() })
            }
            Hdf5Type::Array { of, dims } => json!({ "array": of.to_json(), "dims": dims }),
            Hdf5Type::Opaque { len, tag } => json!({ "opaque": len, "tag": tag }),
            Hdf5Type::Bitfield(dtype) => json!({ "bitfield": dtype.to_string() }),
        }
    }

    /// The type that JSON describes, if it is one. The JSON may be anybody's: everything is checked.
    pub fn from_json(json: &Json) -> Option<Hdf5Type> {
        from_json(json, 0)
    }
}

fn from_json(json: &Json, depth: usize) -> Option<Hdf5Type> {
    if depth > MAX_DEPTH {
        return None;
    }
    let Json::Object(object) = json else {
        return Some(Hdf5Type::Number(number(json)?));
    };
    if let Some(len) = object.get("string") {
        let len = match len {
            Json::String(any) if any == "variable" => None,
            len => Some(length(len)?),
        };
        return Some(Hdf5Type::String {
            len,
            pad: Pad::named(object.get("pad")?.as_str()?)?,
            utf8: object.get("set")?.as_str()? == "utf-8",
        });
    }
    if let Some(base) = object.get("enum") {
        return enumeration(number(base)?, object);
    }
    if let Some(len) = object.get("compound") {
        return compound(length(len)?, object, depth);
    }
    if let Some(of) = object.get("array") {
        let dims = object.get("dims")?.as_array()?.iter();
        let dims: Vec<u64> = dims.map(Json::as_u64).collect::<Option<_>>()?;
        let typ = Hdf5Type::Array {
            of: Box::new(from_json(of, depth + 1)?),
            dims,
        };
        let right = matches!(&typ, Hdf5Type::Array { dims, .. } if (1..=32).contains(&dims.len()) && !dims.contains(&0));
        return (right && typ.size()? <= u64::from(u32::MAX)).then_some(typ);
    }
    if let Some(len) = object.get("opaque") {
        return Some(Hdf5Type::Opaque {
            len: length(len)?,
            tag: object.get("tag")?.as_str()?.to_owned(),
        });
    }
    let bits = number(object.get("bitfield")?)?;
    (bits.kind() == DTypeKind::UInt).then_some(Hdf5Type::Bitfield(bits))
}

/// Integers and floating-point numbers.
fn number(json: &Json) -> Option<DType> {
    let dtype: DType = json.as_str()?.parse().ok()?;
    let numbers = [DTypeKind::Int, DTypeKind::UInt, DTypeKind::Float];
    numbers.contains(&dtype.kind()).then_some(dtype)
}

fn length(json: &Json) -> Option<u32> {
    let len = u32::try_from(json.as_u64()?).ok()?;
    (1..1 << 30).contains(&len).then_some(len)
}

fn members(object: &Map<String, Json>) -> Option<&[Json]> {
    let members = object.get("members")?.as_array()?;
    (members.len() <= MOST_MEMBERS).then_some(members)
}

fn enumeration(base: DType, object: &Map<String, Json>) -> Option<Hdf5Type> {
    let bits = 8 * base.size() as u32;
    let (least, most) = match base.kind() {
        DTypeKind::Int => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        DTypeKind::UInt => (0, (1_i128 << bits) - 1),
        _ => return None,
    };
    let members = members(object)?.iter().map(|member| {
        let [name, value] = member.as_array()?.as_slice() else {
            return None;
        };
        let value: i128 = value.as_str()?.parse().ok()?;
        let fits = (least..=most).contains(&value);
        fits.then_some((name.as_str()?.to_owned(), value))
    });
    Some(Hdf5Type::Enum {
        base,
        members: members.collect::<Option<_>>()?,
    })
}

fn compound(len: u32, object: &Map<String, Json>, depth: usize) -> Option<Hdf5Type> {
    let members = members(object)?.iter().map(|member| {
        let [name, at, typ] = member.as_array()?.as_slice() else {
            return None;
        };
        let (at, typ) = (
            u32::try_from(at.as_u64()?).ok()?,
            from_json(typ, depth + 1)?,
        );
        let fits = u64::from(at) + typ.size()? <= u64::from(len);
        fits.then_some((name.as_str()?.to_owned(), at, typ))
    });
    Some(Hdf5Type::Compound {
        len,
        members: members.collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_back_from_json() {
        for (text, dtype) in [
            (r#"">f8""#, ">f8"),
            (r#"{"string":11,"pad":"nullpad","set":"utf-8"}"#, "S11"),
            (
                r#"{"enum":"u2","members":[["Clear","0"],["Ünknown","65535"]]}"#,
                "u2",
            ),
            (
                r#"{"compound":12,"members":[["a",0,"i4"],["b",4,{"array":"f4","dims":[2]}]]}"#,
                "V12",
            ),
            (r#"{"opaque":3,"tag":"jpeg"}"#, "V3"),
            (r#"{"bitfield":">u2"}"#, ">u2"),
        ] {
            let json = serde_json::from_str(text).expect(text);
            let typ = Hdf5Type::from_json(&json).expect(text);
            assert_eq!(typ.to_json(), json);
            assert_eq!(
                typ.dtype().map(|dtype| dtype.to_string()).as_deref(),
                Some(dtype)
            );
        }
        for text in ["b1", "c8", ">c16", "S1", "S9", "V4", "f2", ">u8"] {
            let dtype = text.parse().expect("a dtype");
            assert_eq!(
                Hdf5Type::of(&dtype).and_then(|typ| typ.dtype()),
                Some(dtype)
            );
        }
    }

    #[test]
    fn what_others_made_up_is_refused() {
        for text in [
            r#""S4""#,
            r#"{"enum":"u1","members":[["a","256"]]}"#,
            r#"{"enum":"f4","members":[]}"#,
            r#"{"compound":4,"members":[["a",1,"i4"]]}"#,
            r#"{"array":"f8","dims":[4294967295,4294967295]}"#,
            r#"{"array":"f8","dims":[0]}"#,
            r#"{"string":0,"pad":"nullpad","set":"ascii"}"#,
            r#"{"opaque":3}"#,
            "null",
            "[]",
        ] {
            let json = serde_json::from_str(text).expect(text);
            assert_eq!(Hdf5Type::from_json(&json), None, "{text}");
        }
        let mut deep = json!("i4");
        for _ in 0..100 {
            deep = json!({ "array": deep, "dims": [1] });
        }
        assert_eq!(Hdf5Type::from_json(&deep), None);
    }
}
