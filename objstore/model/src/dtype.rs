//! Element types, in NumPy's letters: `f4`, `i8`, `u1`, `c16`, `b1`, `S12`, `U3`, `V12`.
//!
//! The number is bytes (for `U`: characters of four bytes). Canonical bytes are little-endian unless the type has
//! `>`. The types only describe bytes; this crate does not compute with elements.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The largest element, in bytes.
pub(crate) const MAX_ELEMENT: u32 = 65536;

/// The kind of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DTypeKind {
    /// Signed integer, `i`.
    Int,
    /// Unsigned integer, `u`.
    UInt,
    /// IEEE 754 number, `f`.
    Float,
    /// Two IEEE 754 numbers, `c`.
    Complex,
    /// Truth value, `b`.
    Bool,
    /// Bytes of text, padded with zeros, `S`.
    Bytes,
    /// Characters of four bytes, padded with zeros, `U`.
    Unicode,
    /// Opaque bytes, `V`.
    Void,
}

/// The order of the bytes of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ByteOrder {
    /// Least significant byte first; also for types without a byte order.
    Little,
    /// Most significant byte first.
    Big,
}

/// The type of an object's elements. It is serialized as its text, so a received value is always a valid type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DType {
    kind: DTypeKind,
    order: ByteOrder,
    size: u32,
}

/// The errors of a dtype's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DTypeError {
    /// Not a type at all.
    #[error(
        "\"{text}\" is not a dtype; write a letter and the bytes of an element: i1 i2 i4 i8, u1 u2 u4 u8, f2 f4 f8, c8 c16, b1, or S, U, V with a length, e.g. f4 or V12, with > before it for big-endian"
    )]
    Unknown {
        /// The text as it was written.
        text: String,
    },
    /// Another program's name for a type.
    #[error("\"{text}\" is not a dtype here; write {instead}")]
    Named {
        /// The text as it was written.
        text: String,
        /// The same type as it is written here.
        instead: &'static str,
    },
    /// A letter with a size it does not support.
    #[error(
        "\"{text}\" is not a dtype: the number after {letter} is the bytes of an element, one of {sizes}"
    )]
    Size {
        /// The text as it was written.
        text: String,
        /// The letter.
        letter: char,
        /// The supported sizes.
        sizes: &'static str,
    },
    /// Elements of no bytes, or of more than 65536.
    #[error("\"{text}\" makes elements of {bytes} bytes; an element has 1 to {MAX_ELEMENT}")]
    Length {
        /// The text as it was written.
        text: String,
        /// The bytes it would need.
        bytes: u64,
    },
}

impl DType {
    /// The type of the elements of a byte object: `u1`.
    pub const BYTE: DType = DType {
        kind: DTypeKind::UInt,
        order: ByteOrder::Little,
        size: 1,
    };

    /// Bytes an element, 1 to 65536.
    pub fn size(&self) -> u64 {
        u64::from(self.size)
    }

    /// The kind of an element.
    pub fn kind(&self) -> DTypeKind {
        self.kind
    }

    /// The order of the bytes of its numbers.
    pub fn order(&self) -> ByteOrder {
        self.order
    }

    /// The name with an explicit order, like NumPy's `dtype.str`: `<f4`, `|u1`.
    pub fn numpy_name(&self) -> String {
        let order = match (self.has_order(), self.order) {
            (false, _) => '|',
            (true, ByteOrder::Little) => '<',
            (true, ByteOrder::Big) => '>',
        };
        format!("{order}{}{}", self.letter(), self.number())
    }

    fn letter(&self) -> char {
        match self.kind {
            DTypeKind::Int => 'i',
            DTypeKind::UInt => 'u',
            DTypeKind::Float => 'f',
            DTypeKind::Complex => 'c',
            DTypeKind::Bool => 'b',
            DTypeKind::Bytes => 'S',
            DTypeKind::Unicode => 'U',
            DTypeKind::Void => 'V',
        }
    }

    fn number(&self) -> u32 {
        if self.kind == DTypeKind::Unicode {
            self.size / 4
        } else {
            self.size
        }
    }

    fn has_order(&self) -> bool {
        match self.kind {
            DTypeKind::Int | DTypeKind::UInt | DTypeKind::Float => self.size > 1,
            DTypeKind::Complex | DTypeKind::Unicode => true,
            DTypeKind::Bool | DTypeKind::Bytes | DTypeKind::Void => false,
        }
    }
}

impl FromStr for DType {
    type Err = DTypeError;

    fn from_str(text: &str) -> Result<DType, DTypeError> {
        let text = text.trim();
        if let Some(name) = long_name(text) {
            return name.parse();
        }
        if let Some(instead) = by_bits(text) {
            return Err(DTypeError::Named {
                text: text.to_owned(),
                instead,
            });
        }
        let unknown = || DTypeError::Unknown {
            text: text.to_owned(),
        };
        let (order, plain) = match text.strip_prefix('>') {
            Some(plain) => (ByteOrder::Big, plain),
            None => (
                ByteOrder::Little,
                text.strip_prefix(['<', '|', '=']).unwrap_or(text),
            ),
        };
        let letter = plain.chars().next().ok_or_else(unknown)?;
        let digits = &plain[letter.len_utf8()..];
        let (kind, sizes): (_, &[u64]) = match letter {
            'i' => (DTypeKind::Int, &[1, 2, 4, 8]),
            'u' => (DTypeKind::UInt, &[1, 2, 4, 8]),
            'f' => (DTypeKind::Float, &[2, 4, 8]),
            'c' => (DTypeKind::Complex, &[8, 16]),
            'b' => (DTypeKind::Bool, &[1]),
            'S' => (DTypeKind::Bytes, &[]),
            'U' => (DTypeKind::Unicode, &[]),
            'V' => (DTypeKind::Void, &[]),
            _ => return Err(unknown()),
        };
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(unknown());
        }
        // Digits that do not fit a u64 are a length that is too large.
        let number: u64 = digits.parse().unwrap_or(u64::MAX);
        let size = if sizes.is_empty() {
            let unit = if kind == DTypeKind::Unicode { 4 } else { 1 };
            number.saturating_mul(unit)
        } else if sizes.contains(&number) {
            number
        } else {
            let sizes = match letter {
                'f' => "2, 4, 8",
                'c' => "8, 16",
                'b' => "1",
                _ => "1, 2, 4, 8",
            };
            return Err(DTypeError::Size {
                text: text.to_owned(),
                letter,
                sizes,
            });
        };
        let length = || DTypeError::Length {
            text: text.to_owned(),
            bytes: size,
        };
        let size = u32::try_from(size).map_err(|_| length())?;
        if size == 0 || size > MAX_ELEMENT {
            return Err(length());
        }
        let dtype = DType { kind, order, size };
        // One value for each type: the order is stored only where it matters.
        Ok(if dtype.has_order() {
            dtype
        } else {
            DType {
                order: ByteOrder::Little,
                ..dtype
            }
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let order = if self.order == ByteOrder::Big {
            ">"
        } else {
            ""
        };
        write!(f, "{order}{}{}", self.letter(), self.number())
    }
}

impl TryFrom<String> for DType {
    type Error = DTypeError;

    fn try_from(text: String) -> Result<DType, DTypeError> {
        text.parse()
    }
}

impl From<DType> for String {
    fn from(value: DType) -> String {
        value.to_string()
    }
}

/// The letter and size for one of NumPy's names of types.
fn long_name(text: &str) -> Option<&'static str> {
    Some(match text {
        "int8" | "byte" => "i1",
        "int16" | "short" => "i2",
        "int32" => "i4",
        "int64" | "int" | "long" => "i8",
        "uint8" | "ubyte" => "u1",
        "uint16" | "ushort" => "u2",
        "uint32" => "u4",
        "uint64" | "uint" | "ulong" => "u8",
        "float16" | "half" => "f2",
        "float32" | "single" => "f4",
        "float64" | "float" | "double" => "f8",
        "complex64" => "c8",
        "complex128" | "complex" => "c16",
        "bool" => "b1",
        _ => return None,
    })
}

/// The type for a name by bits, which NumPy reads as bytes or not at all.
fn by_bits(text: &str) -> Option<&'static str> {
    Some(match text {
        "i16" => "i2",
        "i32" => "i4",
        "i64" => "i8",
        "u16" => "u2",
        "u32" => "u4",
        "u64" => "u8",
        "f16" => "f2 for 16 bits; the long double of NumPy does not exist here",
        "f32" => "f4",
        "f64" => "f8",
        "char" => "i1 or S1",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_and_written() {
        for (text, shown, size) in [
            ("f4", "f4", 4),
            ("<f4", "f4", 4),
            (">f4", ">f4", 4),
            ("=i8", "i8", 8),
            ("|u1", "u1", 1),
            (">i1", "i1", 1),
            ("c16", "c16", 16),
            (">c8", ">c8", 8),
            ("b1", "b1", 1),
            ("S12", "S12", 12),
            (">S12", "S12", 12),
            ("U3", "U3", 12),
            (">U3", ">U3", 12),
            ("V65536", "V65536", 65536),
        ] {
            let dtype: DType = text.parse().unwrap();
            assert_eq!((dtype.to_string().as_str(), dtype.size()), (shown, size));
            assert_eq!(shown.parse::<DType>().unwrap(), dtype);
            assert_eq!(dtype.numpy_name().parse::<DType>().unwrap(), dtype);
        }
        assert_eq!("u1".parse(), Ok(DType::BYTE));
        assert_eq!("f8".parse::<DType>().unwrap().numpy_name(), "<f8");
    }

    #[test]
    fn types_travel_as_text() {
        let bytes = postcard::to_stdvec(&DType::BYTE).unwrap();
        assert_eq!(bytes, postcard::to_stdvec("u1").unwrap());
        assert_eq!(postcard::from_bytes::<DType>(&bytes).unwrap(), DType::BYTE);
        let wrong = postcard::to_stdvec("u3").unwrap();
        assert!(postcard::from_bytes::<DType>(&wrong).is_err());
    }

    #[test]
    fn errors_say_what_to_write() {
        for text in ["", "x4", "f", "f-4", "4f", "f4,f4", "<>f4", "é4", "f4 f4"] {
            let error = text.parse::<DType>().unwrap_err().to_string();
            assert!(error.contains("e.g. f4"), "{error}");
        }
        for (name, shown) in [
            ("float32", "f4"),
            ("double", "f8"),
            ("int", "i8"),
            ("bool", "b1"),
        ] {
            assert_eq!(name.parse::<DType>().unwrap().to_string(), shown);
        }
        assert!(
            "i32"
                .parse::<DType>()
                .unwrap_err()
                .to_string()
                .ends_with("write i4")
        );
        assert!(
            "f3".parse::<DType>()
                .unwrap_err()
                .to_string()
                .contains("2, 4, 8")
        );
        for text in ["V0", "S65537", "U16385", "V99999999999999999999999"] {
            assert!(
                matches!(text.parse::<DType>(), Err(DTypeError::Length { .. })),
                "{text}"
            );
        }
    }
}
