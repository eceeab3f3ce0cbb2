//! The text of an object's layout: `aligned`, `canonical`, `grid:8,8`.
//!
//! The layouts themselves are in [`crate::layout`].

use crate::{Coords, DimsError, format_dims, parse_dims};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// How an object is cut into chunks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Layout {
    /// A chunk for each region that was written, with its shape.
    Aligned,
    /// One chunk in canonical order.
    Canonical,
    /// Chunks of one fixed shape, in elements.
    Grid(Coords),
}

/// What is wrong with a text of a layout.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Not a layout.
    #[error(
        "\"{text}\" is not a layout; write aligned, canonical or grid:N,N with the shape of a chunk, e.g. grid:8,8"
    )]
    Unknown {
        /// The text as it was written.
        text: String,
    },
    /// The text after `grid:` is not a shape.
    #[error("the chunk shape of layout grid: {0}")]
    Shape(#[from] DimsError),
    /// A chunk without elements.
    #[error("the chunk shape of layout \"{text}\" has a zero: each axis needs at least 1 element")]
    Empty {
        /// The text as it was written.
        text: String,
    },
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Layout, LayoutError> {
        match text.trim() {
            "aligned" => Ok(Layout::Aligned),
            "canonical" => Ok(Layout::Canonical),
            other => {
                let unknown = || LayoutError::Unknown {
                    text: other.to_owned(),
                };
                let shape = other.strip_prefix("grid:").ok_or_else(unknown)?;
                if shape.trim().is_empty() {
                    return Err(unknown());
                }
                let shape = parse_dims(shape)?;
                if shape.contains(&0) {
                    return Err(LayoutError::Empty {
                        text: other.to_owned(),
                    });
                }
                Ok(Layout::Grid(shape))
            }
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Aligned => f.write_str("aligned"),
            Layout::Canonical => f.write_str("canonical"),
            Layout::Grid(shape) => write!(f, "grid:{}", format_dims(shape)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_read_and_written() {
        for text in ["aligned", "canonical", "grid:8,8", "grid:1", "grid:scalar"] {
            assert_eq!(text.parse::<Layout>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for text in ["", "Grid", "grid", "grid:", "grid8,8", "row"] {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains("grid:8,8"), "{error}");
        }
        assert!(matches!(
            "grid:8,x".parse::<Layout>(),
            Err(LayoutError::Shape(_))
        ));
        assert!(matches!(
            "grid:8,0".parse::<Layout>(),
            Err(LayoutError::Empty { .. })
        ));
    }
}
