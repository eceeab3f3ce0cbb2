//! Brings the index of tags up to date with the store, at start.
//!
//! The journal reports which rows changed since the index was written. Their entries are added. Their earlier entries
//! are not known any more and stay, so these inodes are *suspects* from then on, which the index itself records: its
//! entries of them are verified.

use slabfs_model::ObjectId;
use std::collections::HashSet;
use std::path::Path;

use super::entry::{entries, ino_of};
use super::index::{Index, IndexError, IndexOptions};
use super::rows::{self, tag_name};
use crate::api::{Ino, MdError};
use crate::keys;
use crate::kv::{KvError, Lsn, MetaKv, pairs};

/// Rows read from the store at a time.
const PAGE: usize = 512;
/// Entries inserted into the index at a time.
pub(super) const BATCH: usize = 16 << 10;

/// Why the index on disk could not be brought up to date.
pub(super) enum Trouble {
    Index(IndexError),
    Store(MdError),
}

impl From<IndexError> for Trouble {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

impl From<MdError> for Trouble {
    fn from(error: MdError) -> Self {
        Self::Store(error)
    }
}

impl From<KvError> for Trouble {
    fn from(error: KvError) -> Self {
        Self::Store(error.into())
    }
}

/// The index in `dir` and its suspects after it is brought up to date, or why it has to be rebuilt.
pub(super) fn existing(
    dir: &Path,
    options: IndexOptions,
    kv: &dyn MetaKv,
    (last, lossy): (Lsn, bool),
) -> Result<(Index, Result<HashSet<Ino>, &'static str>), Trouble> {
    let (index, lsn) = Index::open(dir, options)?;
    let missed = if lossy || lsn > last {
        None
    } else {
        kv.changed_since(b'x', lsn)
    };
    Ok(match missed {
        Some(missed) => {
            catch_up(&index, lsn, kv, &missed)?;
            let suspects = read_suspects(&index)?;
            (index, Ok(suspects))
        }
        None if lsn == Lsn(0) => (index, Err("there was none")),
        None => (index, Err("the journal does not reach back to its commit")),
    })
}

/// The entry that marks an inode as a suspect: the index may have obsolete entries of it. These entries are distinct
/// from those of `entry`, which begin with other letters, and disappear when the index is rebuilt.
fn suspect(ino: Ino) -> Vec<u8> {
    [&[SUSPECT][..], &ino.0.to_be_bytes()].concat()
}

const SUSPECT: u8 = b's';

fn read_suspects(index: &Index) -> Result<HashSet<Ino>, IndexError> {
    let mut suspects = HashSet::new();
    let mut iter = index.iter(&[SUSPECT], Some(&[SUSPECT + 1]))?;
    while let Some(entry) = iter.next()? {
        suspects.extend(ino_of(entry));
    }
    Ok(suspects)
}

/// Adds the entries of inodes whose rows changed. Their earlier entries stay, and verification filters them out.
fn catch_up(index: &Index, lsn: Lsn, kv: &dyn MetaKv, missed: &[Vec<u8>]) -> Result<(), MdError> {
    let mut batch = Vec::new();
    for key in missed {
        batch.extend(keys::xattr_of(key).map(|(ino, _)| suspect(ino)));
        let Some(bytes) = kv.get(key)? else {
            continue;
        };
        batch.extend(entries_of(key, &bytes)?);
        if batch.len() >= BATCH {
            index.apply::<Vec<u8>, Vec<u8>>(&batch, &[])?;
            batch.clear();
            if index.wants_persist() {
                // It has more than its commit requires, which is allowed.
                index.seal(lsn);
                // If the disk is full the rest stays in memory, and the service starts.
                if let Err(error) = index.persist() {
                    tracing::warn!(%error, "the index of tags stays in memory for now");
                }
            }
        }
    }
    index.apply::<Vec<u8>, Vec<u8>>(&batch, &[])?;
    if !missed.is_empty() {
        let rows = missed.len();
        tracing::info!("the index of tags was brought up: {rows} rows since it was written");
    }
    Ok(())
}

/// Calls `work` for each row of attributes with the entries made from it, and whether it is the inode's first.
pub(crate) fn each_row(
    kv: &dyn MetaKv,
    mut work: impl FnMut(bool, Vec<Vec<u8>>) -> Result<(), MdError>,
) -> Result<(), MdError> {
    let mut last = None;
    for pair in pairs(kv, keys::table(b'x'), PAGE) {
        let (key, bytes) = pair?;
        let ino = keys::xattr_of(&key).map(|(ino, _)| ino);
        work(ino != last, entries_of(&key, &bytes)?)?;
        last = ino;
    }
    Ok(())
}

/// The entries made from a row.
fn entries_of(key: &[u8], bytes: &[u8]) -> Result<Vec<Vec<u8>>, MdError> {
    let Some((ObjectId(ino), _)) = keys::xattr_of(key) else {
        let key = key.escape_ascii();
        return Err(MdError::Io(format!("unreadable key {key}")));
    };
    let mut tags = Vec::new();
    rows::in_row(key, bytes, |xattr| {
        if let Some(name) = tag_name(xattr.name) {
            tags.push((name.to_owned(), xattr.tag()));
        }
    })?;
    Ok(entries(ObjectId(ino), &tags))
}
