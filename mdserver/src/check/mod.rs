//! A check of the whole store: does what `docs/formats/metadata.md` says hold between its records, and
//! do the data servers have what it names?
//!
//! [`metadata`] reads every table once, in the order of keys, and tells a [`Finding`] for everything
//! that is wrong; it changes nothing. What it learns ([`Facts`]) is then held against the chunks of
//! each data server ([`Facts::chunks`]).
//!
//! One file a family: `inodes`, `names`, `attributes`, `tilings`, `sessions`, `servers`, `counters`
//! for the records, `index` for the index of tags, `chunks` for the data. In memory are one row an inode (96 bytes) and one a chunk
//! (40 bytes), everything else is read in pages.
//!
//! Deliberately elsewhere: journal, checkpoints and index, which [`crate::kv`] checks whenever it is
//! opened; and repairs, but for the list of garbage that may go.

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
use crate::kv::{KvError, KvOptions, LocalKv, MetaKv, Recovery};
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
    /// The store of the metadata failed.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// The store has another format: nothing in it would be understood.
    #[error("{0}")]
    Format(String),
    /// A store of chunks failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// How much there is.
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
    /// Whether an object, or something that waits to be deleted, names it.
    pub named: bool,
}

/// What the metadata says, as far as it matters for chunks.
#[derive(Debug, Default)]
pub struct Facts {
    /// How much there is.
    pub census: Census,
    /// Its data servers.
    pub servers: BTreeMap<ServerId, KnownServer>,
    inodes: Vec<Row>,
    limits: counters::Limits,
    sessions: BTreeSet<u64>,
    purges: BTreeMap<u64, u32>,
    claims: Vec<Claim>,
    leased: Vec<LeasedPart>,
    /// Chunk ids that an incarnation which is over may have given, and nothing names: from, and below.
    later_chunks: Vec<(u64, u64)>,
    /// Grid chunks ordered away: those of generations below.
    grids: BTreeMap<(ServerId, u64), u64>,
}

/// The reading of a store, and where findings go.
struct Walk<'a> {
    kv: &'a dyn MetaKv,
    tell: &'a mut dyn FnMut(Finding),
}

impl Walk<'_> {
    fn tell(&mut self, class: Class, subject: impl ToString, detail: impl ToString) {
        (self.tell)(Finding {
            class,
            subject: subject.to_string(),
            detail: detail.to_string(),
        });
    }

    /// Calls `work` for each pair of a range.
    fn each(
        &mut self,
        (mut from, to): (Vec<u8>, Vec<u8>),
        page: usize,
        mut work: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), CheckError>,
    ) -> Result<(), CheckError> {
        loop {
            let pairs = self.kv.scan(&from, &to, page)?;
            for (key, value) in &pairs {
                work(self, key, value)?;
            }
            match pairs.last() {
                Some((key, _)) if pairs.len() == page => from = keys::after(key),
                _ => return Ok(()),
            }
        }
    }

    /// The numbers of a key; a finding when it has another length.
    fn numbers<const N: usize>(&mut self, key: &[u8], widths: [usize; N]) -> Option<[u64; N]> {
        let numbers = keys::numbers(key, widths);
        if numbers.is_none() {
            self.tell(
                Class::Unreadable,
                keys::describe(key),
                "the key has a wrong length",
            );
        }
        numbers
    }

    /// The record of a value; a finding when it cannot be read.
    fn record<T: DeserializeOwned>(&mut self, key: &[u8], value: &[u8]) -> Option<T> {
        match decode(key, value) {
            Ok(record) => Some(record),
            Err(error) => {
                self.tell(Class::Unreadable, keys::describe(key), error);
                None
            }
        }
    }

    /// An inode; nothing where there is none, or none that can be read (which `inodes` tells).
    fn inode(&self, ino: Ino) -> Result<Option<Inode>, CheckError> {
        let key = keys::inode(ino);
        let value = self.kv.get(&key)?;
        Ok(value.and_then(|value| decode(&key, &value).ok()))
    }
}

/// All keys of a table.
fn table(letter: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![letter], vec![letter + 1])
}

/// Opens the store in a directory as a start of the service does, for [`metadata`].
///
/// # Errors
/// As [`LocalKv::open`]; [`KvError::Damaged`] says what is gone.
pub fn open(dir: &Path) -> Result<(LocalKv, Recovery), KvError> {
    let (kv, recovery) = LocalKv::open(dir, KvOptions::default())?;
    if recovery.unsynced.is_some() {
        // The next start finds the store closed in order: it must not let sessions carry on that know
        // what the power loss took.
        crate::sessions::mark_all_ended(&kv)
            .map_err(|error| KvError::Invalid(error.to_string()))?;
        kv.sync()?;
    }
    Ok((kv, recovery))
}

/// Checks everything in the metadata store.
///
/// # Errors
/// When the store cannot be read; what is wrong *in* it goes to `tell`.
pub fn metadata(kv: &dyn MetaKv, tell: &mut dyn FnMut(Finding)) -> Result<Facts, CheckError> {
    crate::service::known_format(kv).map_err(|error| CheckError::Format(error.to_string()))?;
    let mut walk = Walk { kv, tell };
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
