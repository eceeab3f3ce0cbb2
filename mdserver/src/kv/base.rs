//! The base below the tables: checkpoint and journal until the index is known to agree with them, then the index.

use super::direct::{self, Direct};
use super::entries::{Entries, Entry};
use super::index::{Fault, Index};

/// Answers lookups of keys that are in no table.
#[derive(Debug)]
pub(super) enum Base {
    /// Checkpoint and journal: authoritative, and slower.
    Direct(Direct),
    /// The index, after every entry was compared with them.
    Index(Index),
    /// Neither can be read.
    Nothing(Fault),
}

impl Base {
    /// True if the filter shows that `key` is absent: not worth caching.
    pub(super) fn surely_lacks(&self, key: &[u8]) -> bool {
        match self {
            Self::Index(index) => index.surely_lacks(key),
            Self::Direct(_) | Self::Nothing(_) => false,
        }
    }

    /// Returns the value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Direct(direct) => direct.get(key),
            Self::Index(index) => index.get(key),
            Self::Nothing(fault) => Err(fault.clone()),
        }
    }

    /// Iterates over the entries with `from <= key < to`, ascending; `from < to`.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> Result<Rows<'_>, Fault> {
        match self {
            Self::Direct(direct) => direct.range(from, to).map(Rows::Direct),
            Self::Index(index) => index
                .range(from, Some(to))
                .map(|rows| Rows::Index(Box::new(rows))),
            Self::Nothing(fault) => Err(fault.clone()),
        }
    }

    /// Returns the index, if it is open and compared.
    pub(super) fn index(&self) -> Result<&Index, Fault> {
        match self {
            Self::Direct(_) => Err(Fault("the index is not open yet".to_owned())),
            Self::Index(index) => Ok(index),
            Self::Nothing(fault) => Err(fault.clone()),
        }
    }
}

/// Entries in ascending order.
pub(super) enum Rows<'a> {
    /// From checkpoint and journal.
    Direct(direct::Rows<'a>),
    /// From the index.
    Index(Box<Entries>),
}

impl Rows<'_> {
    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        match self {
            Self::Direct(rows) => rows.next(),
            Self::Index(entries) => entries.next(),
        }
    }
}
