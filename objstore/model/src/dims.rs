//! The text form of dims and max dims: `16,16`, `unlimited,16`, `scalar`.

use crate::{Coords, MAX_RANK};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The errors of a text of dims.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DimsError {
    /// An item that is not a number.
    #[error(
        "\"{item}\" is not the length of an axis; write integers with commas between, e.g. 16,16 (or \"scalar\")"
    )]
    NotANumber {
        /// The item as it was written.
        item: String,
    },
    /// `unlimited`, which is no length.
    #[error(
        "an axis has a length; write 0 for one that begins empty, and \"unlimited\" in max dims (--max-dims), which say how far it may grow"
    )]
    Unlimited,
    /// An integer of more than 64 bits.
    #[error("{item} is too long: an array has less than 2^63 bytes")]
    TooLong {
        /// The item as it was written.
        item: String,
    },
    /// An item that is neither a number nor `unlimited`.
    #[error(
        "\"{item}\" is not a largest length of an axis; write an integer or \"unlimited\" an axis, e.g. unlimited,16"
    )]
    NotALimit {
        /// The item as it was written.
        item: String,
    },
    /// More than [`MAX_RANK`] items.
    #[error("{rank} axes are too many: an object has at most {MAX_RANK}")]
    TooMany {
        /// The number of items given.
        rank: usize,
    },
}

/// The limit to which an axis may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum MaxDim {
    /// At most this many elements.
    Fixed(u64),
    /// Unlimited.
    Unlimited,
}

impl MaxDim {
    /// Whether an axis with this limit may have `dim` elements.
    pub fn allows(self, dim: u64) -> bool {
        match self {
            MaxDim::Fixed(limit) => dim <= limit,
            MaxDim::Unlimited => true,
        }
    }
}

impl fmt::Display for MaxDim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxDim::Fixed(limit) => limit.fmt(f),
            MaxDim::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl FromStr for MaxDim {
    type Err = DimsError;

    fn from_str(text: &str) -> Result<MaxDim, DimsError> {
        let item = text.trim();
        if item == "unlimited" {
            return Ok(MaxDim::Unlimited);
        }
        number(item)
            .map(MaxDim::Fixed)
            .ok_or_else(|| DimsError::NotALimit {
                item: item.to_owned(),
            })
    }
}

/// Parses dims such as `16,16`; the empty text and `scalar` have no axes.
pub fn parse_dims(text: &str) -> Result<Coords, DimsError> {
    items(text)?
        .into_iter()
        .map(|item| {
            let digits = !item.is_empty() && item.bytes().all(|byte| byte.is_ascii_digit());
            number(item).ok_or_else(|| match item {
                "unlimited" => DimsError::Unlimited,
                _ if digits => DimsError::TooLong {
                    item: item.to_owned(),
                },
                _ => DimsError::NotANumber {
                    item: item.to_owned(),
                },
            })
        })
        .collect()
}

/// Parses max dims such as `unlimited,16`; the empty text and `scalar` have no axes.
pub fn parse_max_dims(text: &str) -> Result<Vec<MaxDim>, DimsError> {
    items(text)?.into_iter().map(str::parse).collect()
}

/// Formats dims so that [`parse_dims`] reads them; no axes are `scalar`.
pub fn format_dims(dims: &[u64]) -> String {
    joined(dims)
}

/// Formats max dims so that [`parse_max_dims`] reads them; no axes are `scalar`.
pub fn format_max_dims(max_dims: &[MaxDim]) -> String {
    joined(max_dims)
}

fn joined<T: fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "scalar".to_owned();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
}

fn items(text: &str) -> Result<Vec<&str>, DimsError> {
    let text = text.trim();
    if text.is_empty() || text == "scalar" {
        return Ok(Vec::new());
    }
    let rank = text.split(',').count();
    if rank > MAX_RANK {
        return Err(DimsError::TooMany { rank });
    }
    Ok(text.split(',').map(str::trim).collect())
}

/// Digits only: `u64::from_str` would accept `+5`.
pub(crate) fn number(item: &str) -> Option<u64> {
    if item.bytes().all(|b| b.is_ascii_digit()) {
        item.parse().ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dims_are_read_and_written() {
        assert_eq!(parse_dims("16,16").unwrap().as_slice(), &[16, 16]);
        assert_eq!(parse_dims(" 1 , 0 ").unwrap().as_slice(), &[1, 0]);
        assert!(parse_dims("").unwrap().is_empty());
        assert!(parse_dims("scalar").unwrap().is_empty());
        assert_eq!(format_dims(&[3, 4]), "3,4");
        assert_eq!(format_dims(&[]), "scalar");
        let max = parse_max_dims("unlimited,16").unwrap();
        assert_eq!(max, vec![MaxDim::Unlimited, MaxDim::Fixed(16)]);
        assert_eq!(format_max_dims(&max), "unlimited,16");
        assert!(max[0].allows(u64::MAX) && max[1].allows(16) && !max[1].allows(17));
    }

    #[test]
    fn errors_name_the_item() {
        for text in ["16,", ",", "a", "1.5", "-1", "+1", "1;2", "16x16"] {
            let error = parse_dims(text).unwrap_err();
            assert!(error.to_string().contains("16,16"), "{error}");
        }
        for (text, words) in [
            ("18446744073709551616", "is too long"),
            ("unlimited,16", "--max-dims"),
        ] {
            let error = parse_dims(text).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(
            parse_max_dims("inf")
                .unwrap_err()
                .to_string()
                .contains("\"inf\"")
        );
        let many = vec!["1"; 33].join(",");
        assert_eq!(parse_dims(&many), Err(DimsError::TooMany { rank: 33 }));
        assert_eq!(parse_dims(&vec!["1"; 32].join(",")).unwrap().len(), 32);
    }
}
