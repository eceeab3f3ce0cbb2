//! The fill value: what elements that were never written read as.
//!
//! It is stored as the bytes of one element, or as no bytes if they are all zero: zero is the same for every type,
//! and by far the most common.

mod number;

use crate::{ByteOrder, DType, DTypeKind};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use thiserror::Error;

/// The bytes of one element; empty for zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Fill(SmallVec<[u8; 16]>);

/// The errors of a fill value's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FillError {
    /// Not a value of the type.
    #[error(
        "\"{text}\" is not a fill value of dtype {dtype}; write {expected}, or all bytes of the element in hex, e.g. 0x{example}"
    )]
    NotAValue {
        /// The text as it was written.
        text: String,
        /// The type of the elements.
        dtype: DType,
        /// What values of the type look like.
        expected: &'static str,
        /// One element of zeros in hex.
        example: String,
    },
    /// A number that the type cannot hold.
    #[error("fill value {text} does not fit dtype {dtype}; use a wider dtype or a value that fits")]
    OutOfRange {
        /// The text as it was written.
        text: String,
        /// The type of the elements.
        dtype: DType,
    },
    /// Text that is longer than the element.
    #[error("fill value \"{text}\" needs {needs} bytes and an element of dtype {dtype} has {}", dtype.size())]
    TooLong {
        /// The text as it was written.
        text: String,
        /// The type of the elements.
        dtype: DType,
        /// The bytes it needs.
        needs: usize,
    },
    /// Hex of another length than the element.
    #[error(
        "\"{text}\" has {digits} hex digits; write all bytes of an element of dtype {dtype} as they lie in the file, that is {} digits",
        2 * dtype.size()
    )]
    HexLength {
        /// The text as it was written.
        text: String,
        /// The type of the elements.
        dtype: DType,
        /// The digits after `0x`.
        digits: usize,
    },
}

impl Fill {
    /// Zero, of any type.
    pub fn zero() -> Fill {
        Fill::default()
    }

    /// From the bytes of one element.
    pub fn from_bytes(bytes: &[u8]) -> Fill {
        if bytes.iter().all(|&b| b == 0) {
            Fill::zero()
        } else {
            Fill(SmallVec::from_slice(bytes))
        }
    }

    /// Whether all its bytes are zero, so that holes can be sparse.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|&b| b == 0)
    }

    /// The bytes of one element; none for zero.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it can fill elements of `elem` bytes; zero fills all.
    pub fn fits(&self, elem: u64) -> bool {
        self.0.is_empty() || self.0.len() as u64 == elem
    }

    /// The repeated byte, if all bytes of the value are equal.
    pub fn uniform_byte(&self) -> Option<u8> {
        let first = self.0.first().copied().unwrap_or(0);
        self.0.iter().all(|&b| b == first).then_some(first)
    }

    /// The bytes of `elem` consecutive cells, the first of which is byte `cell` of its axis.
    pub fn cell_pattern(&self, elem: u64, cell: u64) -> SmallVec<[u8; 16]> {
        let mut pattern = SmallVec::from_elem(0, elem as usize);
        self.paint(&mut pattern, cell);
        pattern
    }

    /// Fills consecutive cells of the last axis, the first of which is byte `cell` of that axis: an element begins
    /// where the cell is a multiple of its size.
    pub fn paint(&self, out: &mut [u8], cell: u64) {
        if let Some(byte) = self.uniform_byte() {
            out.fill(byte);
            return;
        }
        let size = self.0.len();
        let phase = (cell % size as u64) as usize;
        let mut painted = out.len().min(size);
        for (at, byte) in out[..painted].iter_mut().enumerate() {
            *byte = self.0[(phase + at) % size];
        }
        // The painted part consists of complete periods: copying it to its end doubles it.
        while painted < out.len() {
            let more = painted.min(out.len() - painted);
            out.copy_within(..more, painted);
            painted += more;
        }
    }

    /// Parses a value of this type: `0`, `1.5`, `-3`, `nan`, `1+2j`, `true`, text for `S` and `U`, or `0x` and the
    /// bytes of an element as stored in the file. `0` and the empty text are zero in any type.
    pub fn parse(text: &str, dtype: &DType) -> Result<Fill, FillError> {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed == "0" {
            return Ok(Fill::zero());
        }
        if let Some(digits) = trimmed
            .strip_prefix("0x")
            .or_else(|| trimmed.strip_prefix("0X"))
        {
            return parse_hex(trimmed, digits, dtype);
        }
        let bytes = match dtype.kind() {
            DTypeKind::Bytes => text_bytes(text, text.as_bytes().to_vec(), dtype)?,
            DTypeKind::Unicode => text_bytes(text, unicode_bytes(text, dtype.order()), dtype)?,
            DTypeKind::Void => {
                return Err(not_a_value(trimmed, dtype, "0"));
            }
            _ => number::parse(trimmed, dtype)?,
        };
        Ok(Fill::from_bytes(&bytes))
    }

    /// Formats the value so that [`Fill::parse`] reads it.
    pub fn show(&self, dtype: &DType) -> String {
        if self.is_zero() || !self.fits(dtype.size()) {
            // A fill of another size is refused by `fits`; it is shown as its bytes.
            return if self.is_zero() {
                "0".to_owned()
            } else {
                self.hex()
            };
        }
        let shown = match dtype.kind() {
            DTypeKind::Bytes => std::str::from_utf8(trim_zeros(&self.0, 1))
                .ok()
                .map(str::to_owned),
            DTypeKind::Unicode => unicode_text(&self.0, dtype.order()),
            DTypeKind::Void => None,
            _ => number::show(&self.0, dtype),
        };
        // A value that would not be parsed back as the same value is shown in hex.
        shown
            .filter(|text| !text.contains(char::is_control))
            .filter(|text| Fill::parse(text, dtype).as_ref() == Ok(self))
            .unwrap_or_else(|| self.hex())
    }

    fn hex(&self) -> String {
        use std::fmt::Write;
        let mut text = String::from("0x");
        for byte in &self.0 {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

fn not_a_value(text: &str, dtype: &DType, expected: &'static str) -> FillError {
    let example = "00".repeat(dtype.size().min(16) as usize);
    FillError::NotAValue {
        text: text.to_owned(),
        dtype: *dtype,
        expected,
        example,
    }
}

fn parse_hex(text: &str, digits: &str, dtype: &DType) -> Result<Fill, FillError> {
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(not_a_value(text, dtype, "a value of the type"));
    }
    if digits.len() as u64 != 2 * dtype.size() {
        let (text, digits) = (text.to_owned(), digits.len());
        return Err(FillError::HexLength {
            text,
            dtype: *dtype,
            digits,
        });
    }
    let nibble = |digit: u8| (digit as char).to_digit(16).unwrap_or(0) as u8;
    let pairs = digits.as_bytes().chunks_exact(2);
    let bytes: Vec<u8> = pairs
        .map(|pair| nibble(pair[0]) << 4 | nibble(pair[1]))
        .collect();
    Ok(Fill::from_bytes(&bytes))
}

fn text_bytes(text: &str, mut bytes: Vec<u8>, dtype: &DType) -> Result<Vec<u8>, FillError> {
    let size = dtype.size() as usize;
    if bytes.len() > size {
        let (text, needs) = (text.to_owned(), bytes.len());
        return Err(FillError::TooLong {
            text,
            dtype: *dtype,
            needs,
        });
    }
    bytes.resize(size, 0);
    Ok(bytes)
}

fn unicode_bytes(text: &str, order: ByteOrder) -> Vec<u8> {
    text.chars()
        .flat_map(|c| match order {
            ByteOrder::Little => u32::from(c).to_le_bytes(),
            ByteOrder::Big => u32::from(c).to_be_bytes(),
        })
        .collect()
}

fn unicode_text(bytes: &[u8], order: ByteOrder) -> Option<String> {
    trim_zeros(bytes, 4)
        .chunks_exact(4)
        .map(|c| {
            let bytes = [c[0], c[1], c[2], c[3]];
            char::from_u32(match order {
                ByteOrder::Little => u32::from_le_bytes(bytes),
                ByteOrder::Big => u32::from_be_bytes(bytes),
            })
        })
        .collect()
}

/// Removes trailing zeros, in complete units.
fn trim_zeros(bytes: &[u8], unit: usize) -> &[u8] {
    let used = bytes.len() - bytes.iter().rev().take_while(|&&b| b == 0).count();
    &bytes[..used.next_multiple_of(unit)]
}

#[cfg(test)]
mod tests;
