//! A consistency check of the entire store: the invariants of `docs/formats/metadata.md` between the records, and the
//! chunks on the data servers.
//!
//! [`metadata`] reads every table once, in the order of keys, and reports a [`Finding`] for every error; it changes
//! nothing. The collected [`Facts`] are then compared with the chunks of each data server ([`Facts::chunks`]).
//!
//! There is one file per family: `inodes`, `names`, `attributes`, `tilings`, `sessions`, `servers`, `counters` for the
//! records, `index` for the index of tags, `chunks` for the data. Memory holds one row per inode (96 bytes) and one per
//! chunk (40 bytes); everything else is read in pages.
//!
//! Deliberately elsewhere: journal, checkpoints and index, which [`crate::kv`] checks whenever it opens the store; and
//! repairs, except for the list of garbage that may be deleted.

mod attributes;
mod chunks;
mod counters;
mod finding;
mod index;
mod inodes;
mod names;
mod servers;
mod sessions;
#[cfg(test)]
mod tests;
mod tilings;

pub use chunks::{Depth, Looked};
pub use finding::{Class, Finding};
pub use index::index;

use serde::Serialize;
use serde::de::DeserializeOwned;
use slabfs_model::ServerId;
use slabfs_objstore::StoreError;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::api::Ino;
use crate::keys;
use crate::kv::{KvError, KvOptions, LocalKv, MetaKv, Recovery, pairs};
use crate::records::{Inode, decode};
use chunks::{Claim, LeasedPart};
use inodes::Row;

/// Pairs read at a time where values are small.
const PAGE: usize = 4096;
/// Pairs read at a time where values may be large.
const SMALL_PAGE: usize = 128;

/// Why a check could not be finished.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The metadata store failed.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The store has another format, which this program cannot read.
    #[error("{0}")]
    Format(String),
    /// A chunk store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The number of records by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Census {
    /// Inodes.
    pub inodes: u64,
    /// Names in directories.
    pub names: u64,
    /// Extended attributes.
    pub attributes: u64,
    /// Records of tilings.
    pub tiles: u64,
    /// Sessions.
    pub sessions: u64,
    /// Data servers.
    pub servers: u64,
}

/// A data server as the metadata knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownServer {
    /// The identity in its directory.
    pub uuid: [u8; 16],
    /// Whether an object or a pending deletion refers to it.
    pub named: bool,
}

/// The contents of the metadata, as far as chunks depend on them.
#[derive(Debug, Default)]
pub struct Facts {
    /// The number of records.
    pub census: Census,
    /// Its data servers.
    pub servers: BTreeMap<ServerId, KnownServer>,
    inodes: Vec<Row>,
    limits: counters::Limits,
    sessions: BTreeSet<u64>,
    purges: BTreeMap<u64, u32>,
    claims: Vec<Claim>,
    leased: Vec<LeasedPart>,
    /// Chunk ids that an ended incarnation may have allocated and no record refers to: ranges, the end exclusive.
    later_chunks: Vec<(u64, u64)>,
    /// Grid chunks that are ordered to be deleted: those of generations below the value.
    grids: BTreeMap<(ServerId, u64), u64>,
}

/// The store being read, and the receiver of findings.
struct Walk<'a> {
    kv: &'a dyn MetaKv,
    report: &'a mut dyn FnMut(Finding),
}

impl Walk<'_> {
    fn report(&mut self, class: Class, subject: impl ToString, detail: impl ToString) {
        (self.report)(Finding {
            class,
            subject: subject.to_string(),
            detail: detail.to_string(),
        });
    }

    /// Reports what is wrong with a row.
    fn report_key(&mut self, class: Class, key: &[u8], detail: impl ToString) {
        self.report(class, keys::describe(key), detail);
    }

    /// Calls `work` for each pair of a key range.
    fn each(
        &mut self,
        range: (Vec<u8>, Vec<u8>),
        page: usize,
        mut work: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> {
        for pair in pairs(self.kv, range, page) {
            let (key, value) = pair?;
            work(self, &key, &value)?;
        }
        Ok(())
    }

    /// Returns the numbers of a key; reports a finding if the key has another length.
    fn numbers<const N: usize>(&mut self, key: &[u8], widths: [usize; N]) -> Option<[u64; N]> {
        let numbers = keys::numbers(key, widths);
        if numbers.is_none() {
            self.report_key(Class::Unreadable, key, "the key has a wrong length");
        }
        numbers
    }

    /// Decodes the record of a value; reports a finding if it cannot be read.
    fn record<T: DeserializeOwned>(&mut self, key: &[u8], value: &[u8]) -> Option<T> {
        match decode(key, value) {
            Ok(record) => Some(record),
            Err(error) => {
                self.report_key(Class::Unreadable, key, error);
                None
            }
        }
    }

    /// Returns an inode; `None` if it does not exist or cannot be read (which `inodes` reports).
    fn inode(&self, ino: Ino) -> Result<Option<Inode>, CheckError> {
        let key = keys::inode(ino);
        let value = self.kv.get(&key)?;
        Ok(value.and_then(|value| decode(&key, &value).ok()))
    }
}

/// Opens the store in a directory as the service does at its start, for [`metadata`].
///
/// # Errors
/// As [`LocalKv::open`]; [`KvError::Damaged`] lists the losses.
pub fn open(dir: &Path) -> Result<(LocalKv, Recovery), KvError> {
    let (kv, recovery) = LocalKv::open(dir, KvOptions::default())?;
    if recovery.unsynced.is_some() {
        // The next start finds the store cleanly closed: it must not let sessions continue that saw commits which the
        // power loss destroyed.
        crate::sessions::mark_all_ended(&kv)
            .map_err(|error| KvError::Invalid(error.to_string()))?;
        kv.sync()?;
    }
    Ok((kv, recovery))
}

/// Checks everything in the metadata store.
///
/// # Errors
/// If the store cannot be read. Errors *in* the store go to `report`.
pub fn metadata(kv: &dyn MetaKv, report: &mut dyn FnMut(Finding)) -> Result<Facts, CheckError> {
    crate::service::known_format(kv).map_err(|error| CheckError::Format(error.to_string()))?;
    let mut walk = Walk { kv, report };
    let mut facts = Facts::default();
    counters::read(&mut walk, &mut facts)?;
    servers::read(&mut walk, &mut facts)?;
    inodes::read(&mut walk, &mut facts)?;
    counters::count(&mut walk, &facts);
    sessions::read(&mut walk, &mut facts)?;
    names::check(&mut walk, &mut facts)?;
    attributes::check(&mut walk, &mut facts)?;
    tilings::check(&mut walk, &mut facts)?;
    servers::check_orders(&mut walk, &mut facts)?;
    inodes::sum_up(&mut walk, &facts);
    chunks::check_ids(&mut walk, &mut facts);
    Ok(facts)
}
