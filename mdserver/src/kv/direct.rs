//! Reads the authoritative state directly: the checkpoint overlaid with the journal's changes.
//!
//! The store answers from here after a start, and after a failure of the index, until every entry of the index was
//! compared. Before that no reader sees the contents of sled's files.

use super::blocks::{self, Blocks};
use super::checkpoint::Broken;
use super::disk::checkpoint_name;
use super::entries::Entry;
use super::index::Fault;
use super::replay::{Change, Changes};
use super::{Lsn, Pair};
use std::cmp::Ordering;
use std::collections::btree_map;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

/// The authoritative state as of one commit.
#[derive(Debug, Clone)]
pub(super) struct Direct {
    /// The checkpoint; `None` in a new store.
    pub(super) checkpoint: Option<Arc<Blocks>>,
    /// The journal's changes after it.
    pub(super) changes: Changes,
    /// The last commit.
    pub(super) last: Lsn,
    /// After an accepted loss of commits: the index's value of a key takes precedence if the key's last known change is
    /// not after this commit.
    pub(super) salvage: Option<Lsn>,
    /// No store existed before.
    pub(super) new: bool,
}

impl Direct {
    /// The last commit in the checkpoint.
    pub(super) fn checkpoint_lsn(&self) -> Lsn {
        self.checkpoint
            .as_ref()
            .map_or(Lsn(0), |blocks| blocks.lsn())
    }

    fn fault(&self, broken: &Broken) -> Fault {
        let name = checkpoint_name(self.checkpoint_lsn().0);
        Fault(format!(
            "{name} at byte {}: {}",
            broken.offset, broken.detail
        ))
    }

    /// Returns the value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        if let Some((_, value)) = self.changes.overlay.get(key) {
            return Ok(value.clone());
        }
        let Some(blocks) = &self.checkpoint else {
            return Ok(None);
        };
        blocks.get(key).map_err(|broken| self.fault(&broken))
    }

    /// Iterates over the entries with `from <= key < to`, ascending; `from < to`.
    pub(super) fn range(&self, from: &[u8], to: &[u8]) -> Result<Rows<'_>, Fault> {
        let merged = self.merged(from, Some(to));
        Ok(Rows {
            direct: self,
            merged: merged.map_err(|broken| self.fault(&broken))?,
        })
    }

    /// Iterates over all keys with `from <= key`, and `key < to` if there is a `to`, ascending; `from < to`.
    pub(super) fn merged(&self, from: &[u8], to: Option<&[u8]>) -> Result<Merged<'_>, Broken> {
        let end = to.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (Bound::Included(from), end);
        let stored = self.checkpoint.as_ref().map(|blocks| blocks.from(from));
        let mut merged = Merged {
            to: to.map(<[u8]>::to_vec),
            changed: self.changes.overlay.range::<[u8], _>(range).peekable(),
            stored: stored.transpose()?,
            head: None,
        };
        merged.read()?;
        Ok(merged)
    }
}

/// The keys of checkpoint and journal in ascending order, each with the commit that changed it last (0: the checkpoint)
/// and its value.
#[derive(Debug)]
pub(super) struct Merged<'a> {
    to: Option<Vec<u8>>,
    changed: Peekable<btree_map::Range<'a, Vec<u8>, Change>>,
    stored: Option<blocks::Rows<'a>>,
    /// The next entry of the checkpoint.
    head: Option<Pair>,
}

impl Merged<'_> {
    fn read(&mut self) -> Result<(), Broken> {
        let Some(stored) = &mut self.stored else {
            return Ok(());
        };
        let to = self.to.as_ref();
        let next = stored.next()?;
        self.head = next.filter(|(key, _)| to.is_none_or(|to| key < to));
        if self.head.is_none() {
            self.stored = None;
        }
        Ok(())
    }

    /// The next key.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, Change)>, Broken> {
        let order = match (&self.head, self.changed.peek()) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((key, _)), Some((overlay_key, _))) => key.cmp(overlay_key),
        };
        let old = self.head.take_if(|_| order.is_le());
        if order.is_le() {
            self.read()?;
        }
        if order.is_lt() {
            return Ok(old.map(|(key, value)| (key, (Lsn(0), Some(value)))));
        }
        let changed = self.changed.next();
        Ok(changed.map(|(key, change)| (key.clone(), change.clone())))
    }
}

/// Entries in ascending order.
#[derive(Debug)]
pub(super) struct Rows<'a> {
    direct: &'a Direct,
    merged: Merged<'a>,
}

impl Rows<'_> {
    /// The next entry.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            let next = self.merged.next();
            match next.map_err(|broken| self.direct.fault(&broken))? {
                None => return Ok(None),
                Some((key, (_, Some(value)))) => return Ok(Some((key.into(), Some(value.into())))),
                Some((_, (_, None))) => {}
            }
        }
    }
}
