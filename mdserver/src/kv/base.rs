//! What lies under the tables: the truth itself until the index is known to agree with it, then the
//! index.

use super::direct::{self, Direct};
use super::entries::{Entries, Entry};
use super::index::{Fault, Index};

/// What is asked for keys that are in no table.
#[derive(Debug)]
pub(super) enum Base {
    /// Checkpoint and journal: right, and slower.
    Direct(Direct),
    /// The index, every entry of which was compared with them.
    Index(Index),
    /// Neither can be read.
    Nothing(Fault),
}

impl Base {
    /// True when it is known without a look that there is no `key`: not worth remembering.
    pub(super) fn surely_lacks(&self, key: &[u8]) -> bool {
        match self {
            Self::Index(index) => index.surely_lacks(key),
            Self::Direct(_) | Self::Nothing(_) => false,
        }
    }

    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        match self {
            Self::Direct(direct) => direct.get(key),
            Self::Index(index) => index.get(key),
            Self::Nothing(fault) => Err(fault.clone()),
        }
    }

    /// The entries with `from <= key < to`, ascending; `from < to`.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> Result<Rows<'_>, Fault> {
        match self {
            Self::Direct(direct) => direct.range(from, to).map(Rows::Direct),
            Self::Index(index) => index
                .range(from, Some(to))
                .map(|rows| Rows::Index(Box::new(rows))),
            Self::Nothing(fault) => Err(fault.clone()),
        }
    }

    /// The index, when it is open and right.
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
