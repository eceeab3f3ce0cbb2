//! Tags of exact types: numbers of a width, characters, and lists of one type, as the attributes of NetCDF and HDF5 have
//! them. Their texts are those of other tags; nan is allowed, and is neither found nor compared.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::borrow::Cow;

use super::{Num, TagError, Value, num};

/// The exact type of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Exact {
    /// The type of the value, or of each member of the list.
    pub of: Elem,
    /// It is a list.
    pub list: bool,
}

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Elem {
    /// Signed, 1 byte.
    I1,
    /// Signed, 2 bytes.
    I2,
    /// Signed, 4 bytes.
    I4,
    /// Signed, 8 bytes.
    I8,
    /// Unsigned, 1 byte.
    U1,
    /// Unsigned, 2 bytes.
    U2,
    /// Unsigned, 4 bytes.
    U4,
    /// Unsigned, 8 bytes.
    U8,
    /// IEEE 754, 4 bytes.
    F4,
    /// IEEE 754, 8 bytes.
    F8,
    /// Characters of any character set.
    Char,
    /// Text of any length, in lists.
    String,
}

/// All exact types, with their names. An `i8`, an `f8` or a `string` that is no list is a tag of type int, float or text.
const NAMES: [(&str, Elem, bool); 20] = [
    ("i1", Elem::I1, false),
    ("i2", Elem::I2, false),
    ("i4", Elem::I4, false),
    ("u1", Elem::U1, false),
    ("u2", Elem::U2, false),
    ("u4", Elem::U4, false),
    ("u8", Elem::U8, false),
    ("f4", Elem::F4, false),
    ("char", Elem::Char, false),
    ("i1[]", Elem::I1, true),
    ("i2[]", Elem::I2, true),
    ("i4[]", Elem::I4, true),
    ("i8[]", Elem::I8, true),
    ("u1[]", Elem::U1, true),
    ("u2[]", Elem::U2, true),
    ("u4[]", Elem::U4, true),
    ("u8[]", Elem::U8, true),
    ("f4[]", Elem::F4, true),
    ("f8[]", Elem::F8, true),
    ("string[]", Elem::String, true),
];

impl Exact {
    /// The type with this name.
    pub(super) fn named(name: &str) -> Option<Exact> {
        let found = NAMES.iter().find(|(known, ..)| *known == name);
        found.map(|&(_, of, list)| Exact { of, list })
    }

    /// Its name; that of an impossible type is no name of a type.
    pub(super) fn name(self) -> &'static str {
        let found = NAMES
            .iter()
            .find(|(_, of, list)| (*of, *list) == (self.of, self.list));
        found.map_or("?", |(name, ..)| name)
    }

    /// The canonical bytes of the value that reads as `bytes`.
    ///
    /// # Errors
    /// They are no value of this type.
    pub(super) fn canonical(self, bytes: &[u8]) -> Result<Vec<u8>, TagError> {
        if Self::named(self.name()).is_none() {
            return Err(TagError::Kind(format!("{self:?}")));
        }
        if self.of == Elem::Char {
            return Ok(bytes.to_vec());
        }
        let text = std::str::from_utf8(bytes).map_err(|_| TagError::Text)?;
        if !self.list {
            return Ok(self.number(text)?.into_bytes());
        }
        if self.of == Elem::String {
            let members: Vec<String> = serde_json::from_str(text)
                .map_err(|error| TagError::List(format!("strings are needed, {error}")))?;
            return Ok(serde_json::Value::from(members).to_string().into_bytes());
        }
        let members = numbers(text)?.map(|member| self.number(member));
        let members: Vec<String> = members.collect::<Result<_, _>>()?;
        Ok(format!("[{}]", members.join(",")).into_bytes())
    }

    fn number(self, text: &str) -> Result<String, TagError> {
        let text = text.trim();
        let (least, most): (i128, i128) = match self.of {
            Elem::I1 => (i8::MIN.into(), i8::MAX.into()),
            Elem::I2 => (i16::MIN.into(), i16::MAX.into()),
            Elem::I4 => (i32::MIN.into(), i32::MAX.into()),
            Elem::I8 => (i64::MIN.into(), i64::MAX.into()),
            Elem::U1 => (0, u8::MAX.into()),
            Elem::U2 => (0, u16::MAX.into()),
            Elem::U4 => (0, u32::MAX.into()),
            Elem::U8 => (0, u64::MAX.into()),
            Elem::F4 | Elem::F8 | Elem::Char | Elem::String => return self.float(text),
        };
        let number = text.parse().ok().filter(|n| (least..=most).contains(n));
        let number: i128 = number.ok_or_else(|| self.refused(text))?;
        Ok(number.to_string())
    }

    fn float(self, text: &str) -> Result<String, TagError> {
        let refused = |_| self.refused(text);
        let (wide, shown) = match self.of {
            Elem::F4 => {
                let value: f32 = text.parse().map_err(refused)?;
                (f64::from(value), format!("{value:?}"))
            }
            _ => {
                let value: f64 = text.parse().map_err(refused)?;
                (value, format!("{value:?}"))
            }
        };
        // A sign of nan has no meaning; that of zero stays.
        Ok(match wide.is_nan() {
            true => "nan".to_owned(),
            false => shown,
        })
    }

    fn refused(self, text: &str) -> TagError {
        TagError::Exact {
            text: text.chars().take(80).collect(),
            name: self.name(),
        }
    }

    /// The values to compare; `None` if the bytes are not of this type.
    pub(super) fn values<'a>(self, bytes: &'a [u8]) -> Option<SmallVec<[Value<'a>; 2]>> {
        let text = std::str::from_utf8(bytes);
        match (self.of, text) {
            (Elem::Char, Ok(text)) => {
                Some([Value::Text(Cow::Borrowed(text))].into_iter().collect())
            }
            (Elem::Char, Err(_)) => {
                Some([Value::Bytes(Cow::Borrowed(bytes))].into_iter().collect())
            }
            (Elem::String, Ok(text)) => {
                let members: Vec<String> = serde_json::from_str(text).ok()?;
                let members = members
                    .into_iter()
                    .map(|text| Value::Text(Cow::Owned(text)));
                Some(members.collect())
            }
            (_, Ok(text)) => {
                let number = |text: &str| Num::read(text).or_else(|| infinite(text));
                let members = match self.list {
                    true => numbers(text).ok()?.filter_map(number).collect(),
                    false => number(text).into_iter().collect::<Vec<Num>>(),
                };
                Some(members.into_iter().map(Value::Number).collect())
            }
            (_, Err(_)) => None,
        }
    }
}

fn infinite(text: &str) -> Option<Num> {
    let value = num::parse_float(text).ok()?;
    Num::float(value).ok()
}

/// The members of a list of numbers.
fn numbers(text: &str) -> Result<impl Iterator<Item = &str>, TagError> {
    let inner = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .ok_or(TagError::OpenList)?;
    let empty = inner.trim().is_empty();
    Ok(inner.split(',').filter(move |_| !empty))
}

#[cfg(test)]
mod tests {
    use super::super::{Tag, TagKind};
    use super::*;

    fn exact(name: &str) -> TagKind {
        TagKind::Exact(Exact::named(name).expect(name))
    }

    #[test]
    fn each_type_keeps_its_values() {
        for (name, text, bytes, values) in [
            ("i1", "-128", "-128", 1),
            ("u8", "18446744073709551615", "18446744073709551615", 1),
            ("f4", "0.1", "0.1", 1),
            ("f4", "nan", "nan", 0),
            ("f4", "-0", "-0.0", 1),
            ("f4", "1e30", "1e30", 1),
            ("char", "123", "123", 1),
            ("char", "", "", 1),
            ("i2[]", "[1, 2,3]", "[1,2,3]", 3),
            ("i2[]", "[]", "[]", 0),
            ("f8[]", "[1,nan,inf]", "[1.0,nan,inf]", 2),
            ("string[]", r#"["a", "ü\n", ""]"#, r#"["a","ü\n",""]"#, 3),
        ] {
            let tag = Tag::parse(exact(name), text).expect(text);
            assert_eq!(tag.bytes, bytes.as_bytes(), "{name} {text}");
            tag.check().expect("canonical");
            assert_eq!(tag.values().len(), values, "{name} {text}");
            assert_eq!(Tag::from_json(&tag.to_typed_json()).expect("JSON"), tag);
            let (key, again) = Tag::parse_assignment(&tag.show_assignment("k")).expect("text");
            assert_eq!((&key[..], again), ("k", tag));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (name, text) in [
            ("i1", "128"),
            ("u2", "-1"),
            ("i4", "1.5"),
            ("f4", "x"),
            ("i2[]", "1,2"),
            ("i2[]", "[1,]"),
            ("i2[]", "[40000]"),
            ("string[]", "[1]"),
        ] {
            let error = Tag::parse(exact(name), text).expect_err(text).to_string();
            assert!(
                error.contains(name) || error.contains("list") || error.contains("string"),
                "{error}"
            );
        }
        let impossible = TagKind::Exact(Exact {
            of: Elem::String,
            list: false,
        });
        assert!(Tag::from_attribute(impossible, b"x").is_err());
    }

    #[test]
    fn bytes_that_are_no_text_are_characters() {
        let tag = Tag::from_attribute(exact("char"), b"\xff").expect("any bytes");
        assert_eq!(tag.values().len(), 1);
        assert_eq!(tag.show_assignment("k"), "k:bytes=ff");
    }
}
