//! Errors of the data model.

use slabfs_model::{DTypeError, FillError, TagError};
use thiserror::Error;

/// Why something is not what the other side can have, or is damaged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// What is wrong, and what to do.
    #[error("{0}")]
    Invalid(String),
    /// A tag is not possible.
    #[error(transparent)]
    Tag(#[from] TagError),
    /// A dtype is not possible.
    #[error(transparent)]
    DType(#[from] DTypeError),
    /// A fill value is not possible.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// A value of a tag is not JSON, or not the JSON that it should be.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A number of a tag is not an integer.
    #[error(transparent)]
    Integer(#[from] std::num::ParseIntError),
    /// A number of a tag is not a number.
    #[error(transparent)]
    Float(#[from] std::num::ParseFloatError),
    /// An error of a part.
    #[error("{what}: {error}")]
    In {
        /// The part.
        what: String,
        /// Its error.
        error: Box<ModelError>,
    },
}

/// The result of an operation of the data model.
pub type Result<T> = std::result::Result<T, ModelError>;

/// An error with this text.
pub(crate) fn invalid(text: impl Into<String>) -> ModelError {
    ModelError::Invalid(text.into())
}

/// Errors that say of what they are.
pub(crate) trait In<T> {
    /// The error as one of `what`.
    fn within(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<ModelError>> In<T> for std::result::Result<T, E> {
    fn within(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| ModelError::In {
            what: what(),
            error: Box::new(error.into()),
        })
    }
}

impl<T> In<T> for Option<T> {
    fn within(self, what: impl FnOnce() -> String) -> Result<T> {
        self.ok_or_else(|| invalid(what()))
    }
}
