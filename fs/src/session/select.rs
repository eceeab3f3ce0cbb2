//! The elements of an object that a read or a write is about.

use slabfs_model::{Hyperslab, Region, Selection};

use crate::client::{FsError, Wanted};

/// Elements of an object: all of it, a text as after the `@` of a path, a box, or a strided hyperslab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Select<'a> {
    /// The entire object, at its size at the time of the call.
    All,
    /// A text, `[0:10,::2]`; open ends and omitted axes extend to the size at the time of the call.
    Text(&'a str),
    /// These elements.
    Slab(Hyperslab),
}

impl Select<'_> {
    pub(super) fn wanted(&self) -> Result<Wanted, FsError> {
        Ok(match self {
            Select::All => Wanted::Selection(Selection::all()),
            Select::Text(text) => Wanted::Selection(text.parse().map_err(
                |error: slabfs_model::SelectionError| FsError::Invalid(error.to_string()),
            )?),
            Select::Slab(slab) => Wanted::Slab(slab.clone()),
        })
    }
}

impl<'a> From<&'a str> for Select<'a> {
    fn from(text: &'a str) -> Self {
        Select::Text(text)
    }
}

impl From<Hyperslab> for Select<'_> {
    fn from(slab: Hyperslab) -> Self {
        Select::Slab(slab)
    }
}

impl From<Region> for Select<'_> {
    fn from(region: Region) -> Self {
        Select::Slab(Hyperslab::from_region(&region))
    }
}
