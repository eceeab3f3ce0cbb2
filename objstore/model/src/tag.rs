//! Tags: typed keys and values that users attach to an object or a container, and can search for.
//!
//! A [`Tag`] is a kind and the bytes that the extended attribute `user.KEY` reads as: the digits of an integer, the
//! JSON of a list. Every kind but [`TagKind::Auto`] has one canonical text for each value, so equal values have equal
//! bytes. `Auto` is what has another text: the unchanged bytes, which are text if they are UTF-8, and are also found
//! as a number if they read as one.
//!
//! The tag's [`Value`]s are compared and indexed: [`Tag::values`]. The text of the command line (`k=v`, `k:float=1`)
//! is in `assignment`, lists and JSON in `json`, types of NetCDF and HDF5 in `exact`, the order of numbers in `num`. Storage of tags is elsewhere
//! (`slabfs-mdserver`).

mod assignment;
mod exact;
mod json;
mod num;
#[cfg(test)]
mod tests;

pub use assignment::{bare_key, check_tag_key};
pub use exact::{Elem, Exact};
pub use num::Num;

use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The most bytes of a tag's value.
///
/// An attribute of more than 65536 bytes cannot be read or set by `getxattr` and `setxattr`.
pub const MAX_TAG_VALUE: usize = 1 << 18;
/// The most bytes of a tag's key: the limit of an attribute's name, without `user.`.
pub const MAX_TAG_KEY: usize = 250;
/// The most members of a list.
pub const MAX_TAG_LIST: usize = 1024;

/// The type of a tag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TagKind {
    /// No type given: text if it is UTF-8, and also a number if it reads as one.
    Auto,
    /// An integer of 64 bits.
    Int,
    /// A floating-point number of 64 bits, not NaN.
    Float,
    /// Text, also if it reads as a number.
    Text,
    /// Bytes, also if they read as text.
    Bytes,
    /// A list of numbers, texts and bytes.
    List,
    /// A number of a width, characters, or a list of one type.
    Exact(Exact),
}

/// A typed value of a tag.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tag {
    /// The type.
    pub kind: TagKind,
    /// The bytes of the attribute; canonical unless the kind is [`TagKind::Auto`].
    pub bytes: Vec<u8>,
}

/// A value for comparison; each member of a list is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Value<'a> {
    /// A number.
    Number(Num),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
}

/// The errors of tags.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TagError {
    /// No `=`.
    #[error("\"{0}\" is not a tag; write key=value, e.g. step=3 or step:float=3")]
    NoValue(String),
    /// Not a key.
    #[error("\"{key}\" cannot be the key of a tag: {why}")]
    Key {
        /// The key as it was written.
        key: String,
        /// What is wrong with it, and the remedy.
        why: &'static str,
    },
    /// Not a kind.
    #[error(
        "\"{0}\" is not a type of tag; write auto, int, float, text, bytes or list, or an exact type: i1 to u8, f4, char, and with [] a list of one type, as f8[]"
    )]
    Kind(String),
    /// Not an integer.
    #[error(
        "\"{0}\" is not an integer from -9223372036854775808 to 9223372036854775807; write one, or use float or text"
    )]
    Int(String),
    /// Not of an exact type.
    #[error("\"{text}\" is not of the type {name}, or out of its range")]
    Exact {
        /// The text as it was written.
        text: String,
        /// The type.
        name: &'static str,
    },
    /// Not a number.
    #[error("\"{0}\" is not a number; write e.g. 2.5, -1e30 or inf, or use text")]
    Float(String),
    /// Not a number that can be ordered.
    #[error("a tag cannot be nan, which is neither less nor greater than anything; use text")]
    NotANumber,
    /// Not text.
    #[error("this value is not UTF-8 text; use bytes, and write them in hexadecimal")]
    Text,
    /// Not bytes.
    #[error("\"{0}\" is not bytes; write two hexadecimal digits for each, e.g. 00ff7a")]
    Bytes(String),
    /// Not a list.
    #[error(
        "this is not a list of a tag: {0}; write numbers and quoted texts, e.g. [1, 2.5, \"a\"], and bytes as {{\"bytes\": \"00ff\"}}"
    )]
    List(String),
    /// A list without its end.
    #[error(
        "a list begins with [ and ends with ], as [1, 2.5, \"a\"]; write key:text=[… for a text that begins so"
    )]
    OpenList,
    /// JSON that is not a tag.
    #[error(
        "{0}; a tag is a number, a text in quotes, a list of these, or bytes as {{\"bytes\": \"00ff\"}}"
    )]
    Json(&'static str),
    /// Larger than a limit.
    #[error("{what} has at most {limit}, this has {found}")]
    TooLarge {
        /// What is limited.
        what: &'static str,
        /// The limit, with its unit.
        limit: &'static str,
        /// What it has.
        found: usize,
    },
}

impl TagKind {
    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            TagKind::Auto => "auto",
            TagKind::Int => "int",
            TagKind::Float => "float",
            TagKind::Text => "text",
            TagKind::Bytes => "bytes",
            TagKind::List => "list",
            TagKind::Exact(exact) => exact.name(),
        }
    }
}

impl fmt::Display for TagKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TagKind {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        use TagKind::{Auto, Bytes, Float, Int, List, Text};
        if text == "string" {
            return Ok(Text);
        }
        [Auto, Int, Float, Text, Bytes, List]
            .into_iter()
            .find(|kind| kind.name() == text)
            .or_else(|| Exact::named(text).map(TagKind::Exact))
            .ok_or_else(|| TagError::Kind(text.to_owned()))
    }
}

impl Tag {
    /// The tag of an attribute set to `bytes`: of the type that [`Tag::infer`] gives, if it reads as the same bytes.
    pub fn inferred(bytes: Vec<u8>) -> Self {
        let text = std::str::from_utf8(&bytes).ok();
        let tag = text.and_then(|text| Self::infer(text).ok());
        tag.filter(|tag| tag.bytes == bytes)
            .unwrap_or_else(|| Self::auto(bytes))
    }

    /// A value without a type: [`TagKind::Auto`].
    pub fn auto(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let kind = TagKind::Auto;
        Self { kind, bytes }
    }

    /// An integer.
    pub fn int(value: i64) -> Self {
        let bytes = value.to_string().into_bytes();
        let kind = TagKind::Int;
        Self { kind, bytes }
    }

    /// A floating-point number.
    ///
    /// # Errors
    /// NaN.
    pub fn float(value: f64) -> Result<Self, TagError> {
        Num::float(value)?;
        let bytes = num::show_float(value).into_bytes();
        let kind = TagKind::Float;
        Ok(Self { kind, bytes })
    }

    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        let bytes = text.into().into_bytes();
        let kind = TagKind::Text;
        Self { kind, bytes }
    }

    /// Bytes.
    pub fn bytes(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes = bytes.into();
        let kind = TagKind::Bytes;
        Self { kind, bytes }
    }

    /// The value of this kind that a user writes as `text`: digits, text, hexadecimal digits, JSON.
    ///
    /// # Errors
    /// The text is not one of this kind, or too long.
    pub fn parse(kind: TagKind, text: &str) -> Result<Self, TagError> {
        let tag = match kind {
            TagKind::Auto => Self::auto(text),
            TagKind::Text => Self::text(text),
            TagKind::Bytes => Self::bytes(bytes_of_hex(text)?),
            TagKind::Int | TagKind::Float | TagKind::List | TagKind::Exact(_) => {
                check_size(text.len())?;
                Self::from_attribute(kind, text.as_bytes())?
            }
        };
        check_size(tag.bytes.len())?;
        Ok(tag)
    }

    /// The value of this kind whose attribute reads as `bytes`, in its canonical form.
    ///
    /// # Errors
    /// The bytes are not those of this kind, or too many.
    pub fn from_attribute(kind: TagKind, bytes: &[u8]) -> Result<Self, TagError> {
        check_size(bytes.len())?;
        let text = || std::str::from_utf8(bytes).map_err(|_| TagError::Text);
        let tag = match kind {
            TagKind::Auto | TagKind::Bytes => Self {
                kind,
                bytes: bytes.to_vec(),
            },
            TagKind::Text => Self::text(text()?),
            TagKind::Int => Self::int(num::parse_int(text()?)?),
            TagKind::Float => Self::float(num::parse_float(text()?)?)?,
            TagKind::List => json::parse_list(text()?)?,
            TagKind::Exact(exact) => Self {
                kind,
                bytes: exact.canonical(bytes)?,
            },
        };
        check_size(tag.bytes.len())?;
        Ok(tag)
    }

    /// Checks a tag from outside: the limits, and that the bytes are canonical for the kind.
    ///
    /// # Errors
    /// If one is violated.
    pub fn check(&self) -> Result<(), TagError> {
        let canonical = Self::from_attribute(self.kind, &self.bytes)?;
        if canonical.bytes == self.bytes {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&self.bytes).into_owned();
        Err(match self.kind {
            TagKind::Int => TagError::Int(shown),
            TagKind::Float => TagError::Float(shown),
            TagKind::Exact(exact) => TagError::Exact {
                text: shown,
                name: exact.name(),
            },
            _ => TagError::List("it is not in its canonical form".to_owned()),
        })
    }

    /// The values to compare and to index: one, or two for an `Auto` that also reads as a number, or the members of a
    /// list. Bytes that do not match the kind count as `Auto`.
    pub fn values(&self) -> SmallVec<[Value<'_>; 2]> {
        let text = std::str::from_utf8(&self.bytes).ok();
        let typed = match (self.kind, text) {
            (TagKind::Bytes, _) => Some(smallvec![Value::Bytes(Cow::Borrowed(&self.bytes[..]))]),
            (TagKind::Text, Some(text)) => Some(smallvec![Value::Text(Cow::Borrowed(text))]),
            (TagKind::Int, Some(text)) => {
                (num::parse_int(text).ok()).map(|value| smallvec![Value::Number(Num::int(value))])
            }
            (TagKind::Float, Some(text)) => (num::parse_float(text).ok())
                .and_then(|value| Num::float(value).ok())
                .map(|value| smallvec![Value::Number(value)]),
            (TagKind::List, Some(text)) => json::members(text).ok(),
            (TagKind::Exact(exact), _) => exact.values(&self.bytes),
            _ => None,
        };
        typed.unwrap_or_else(|| match text {
            Some(text) => {
                let number = Num::read(text).map(Value::Number);
                let text = Value::Text(Cow::Borrowed(text));
                number.into_iter().chain([text]).collect()
            }
            None => smallvec![Value::Bytes(Cow::Borrowed(&self.bytes[..]))],
        })
    }
}

fn check_size(found: usize) -> Result<(), TagError> {
    if found <= MAX_TAG_VALUE {
        return Ok(());
    }
    Err(TagError::TooLarge {
        what: "the value of a tag",
        limit: "262144 bytes",
        found,
    })
}

/// Bytes as two hexadecimal digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such a text; `None` if it is another text.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

fn bytes_of_hex(text: &str) -> Result<Vec<u8>, TagError> {
    unhex(text).ok_or_else(|| TagError::Bytes(text.chars().take(80).collect()))
}
