//! Makes the index agree with checkpoint and journal, entry by entry.
//!
//! The truth (the checkpoint overlaid with the journal's changes) and the index are merged in the order of keys. An
//! entry of the index that differs although it should be right is corrected at once. Changes of the journal that are
//! not in the index yet go into the memtable, and from there into the index later. So the state of sled at the start
//! does not matter: behind, ahead, with keys missing, or empty.
//!
//! The store serves requests from checkpoint and journal meanwhile. The index's values are taken instead ("salvage")
//! only if commits are lost, the loss was accepted, and the index records that it had applied the lost commits.

use super::checkpoint::{Broken, Reader};
use super::direct::Direct;
use super::entries::{Entries, Entry};
use super::housekeeping::PART;
use super::index::{Fault, Index};
use super::memtable::{Memtable, bytes_of};
use super::replay::Change;
use super::{KvError, Lsn, Pair};
use std::cmp::Ordering;
use std::collections::btree_map;
use std::iter::Peekable;

/// The operations of the store that the comparison needs.
pub(super) trait Surroundings {
    /// True if the store is being closed.
    fn stopping(&self) -> bool;
    /// Preallocates the space that sled needs to write one more group.
    fn make_room(&self, index: &Index) -> Result<(), KvError>;
}

/// The result of the comparison.
#[derive(Debug, Default)]
pub(super) struct Reconciled {
    /// Changes that are not in the index.
    pub(super) memtable: Memtable,
    /// Entries that were wrong and are corrected.
    pub(super) repaired: u64,
    /// Entries that were taken from the index.
    pub(super) salvaged: u64,
}

/// Why the comparison could not be finished.
#[derive(Debug)]
pub(super) enum Failure {
    /// The index cannot be used.
    Index(Fault),
    /// Checkpoint or journal cannot be read, although they could be read before; or the store is being closed.
    Truth(KvError),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Index(fault)
    }
}

/// The authoritative state of a key: the commit (0: the checkpoint) and the value.
struct Wanted {
    key: Vec<u8>,
    lsn: Lsn,
    value: Option<Vec<u8>>,
}

/// The number of keys compared between two checks whether the store is being closed.
const STEPS: u64 = 4096;

/// Compares and repairs.
pub(super) fn reconcile(
    truth: &Direct,
    index: &Index,
    around: &dyn Surroundings,
) -> Result<Reconciled, Failure> {
    let applied = index.applied()?;
    let salvage = truth.salvage.filter(|&lsn| lsn <= applied);
    let mut repair = Repair {
        index,
        around,
        applied,
        behind: truth.checkpoint_lsn() > applied,
        salvage,
        group: Vec::new(),
        group_bytes: 0,
        done: Reconciled::default(),
    };
    let mut wanted = Merge::new(truth)?;
    let mut entries: Entries = index.all()?;
    let (mut want, mut have) = (wanted.next()?, entries.next()?);
    for step in 0u64.. {
        if step % STEPS == 0 && around.stopping() {
            return Err(Failure::Truth(KvError::Closed));
        }
        let order = match (&want, &have) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(want), Some((key, _))) => want.key[..].cmp(key),
        };
        let (left, right) = match order {
            Ordering::Less => (want.take(), None),
            Ordering::Greater => (None, have.take()),
            Ordering::Equal => (want.take(), have.take()),
        };
        if order.is_le() {
            want = wanted.next()?;
        }
        if order.is_ge() {
            have = entries.next()?;
        }
        if let Some((key, _)) = &right {
            index.note(key);
        }
        let skipped = left
            .as_ref()
            .is_some_and(|want| entries.is_skipped(&want.key));
        repair.compare(left, right, skipped)?;
    }
    repair.flush()?;
    if !entries.leftovers().is_empty() {
        around.make_room(index).map_err(Failure::Truth)?;
        index.trim(entries.leftovers())?;
    }
    Ok(repair.done)
}

struct Repair<'a> {
    index: &'a Index,
    around: &'a dyn Surroundings,
    applied: Lsn,
    /// The index had not reached the checkpoint, so it may differ without being damaged.
    behind: bool,
    salvage: Option<Lsn>,
    group: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    group_bytes: usize,
    done: Reconciled,
}

impl Repair<'_> {
    /// Compares one key: the authoritative state with the index's entry; `skipped` if its page is unreadable.
    fn compare(
        &mut self,
        want: Option<Wanted>,
        have: Option<Entry>,
        skipped: bool,
    ) -> Result<(), Failure> {
        let key = match (&want, &have) {
            (Some(want), _) => want.key.clone(),
            (None, Some((key, _))) => key.to_vec(),
            (None, None) => return Ok(()),
        };
        let lsn = want.as_ref().map_or(Lsn(0), |want| want.lsn);
        let value = want.and_then(|want| want.value);
        let readable = !skipped && have.as_ref().is_none_or(|(_, value)| value.is_some());
        let stored = have.and_then(|(_, value)| value);
        if readable && value.as_deref() == stored.as_deref() {
            return Ok(());
        }
        if readable && self.salvage.is_some_and(|salvage| lsn <= salvage) {
            self.done.salvaged += 1;
        } else if lsn > self.applied {
            if !readable {
                // This change makes the page readable again, before any row goes into it later.
                self.group_bytes += bytes_of((&key, None));
                self.group.push((key.clone(), None));
            }
            self.done.memtable.insert(&key[..], value);
        } else {
            self.done.repaired += u64::from(!self.behind || !readable);
            self.group_bytes += bytes_of((&key, value.as_deref()));
            self.group.push((key, value));
            if self.group_bytes > PART {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.group.is_empty() {
            return Ok(());
        }
        self.around.make_room(self.index).map_err(Failure::Truth)?;
        let changes = self.group.iter();
        let changes: Vec<_> = changes
            .map(|(key, value)| (&key[..], value.as_deref()))
            .collect();
        self.index.repair(&changes)?;
        self.group.clear();
        self.group_bytes = 0;
        Ok(())
    }
}

fn unreadable(lsn: Lsn, broken: &Broken) -> Failure {
    let Broken { offset, detail } = broken;
    let detail =
        format!("checkpoint {lsn} at byte {offset}: {detail}, although it was intact when opened");
    Failure::Truth(KvError::Invalid(detail))
}

/// Merges checkpoint and journal in the order of keys.
struct Merge<'a> {
    checkpoint: Option<Reader>,
    next: Option<Pair>,
    overlay: Peekable<btree_map::Iter<'a, Vec<u8>, Change>>,
}

impl<'a> Merge<'a> {
    fn new(truth: &'a Direct) -> Result<Self, Failure> {
        let lsn = truth.checkpoint_lsn();
        let reader = truth.checkpoint.as_ref().map(|blocks| blocks.reader());
        let mut merge = Self {
            checkpoint: reader
                .transpose()
                .map_err(|broken| unreadable(lsn, &broken))?,
            next: None,
            overlay: truth.changes.overlay.iter().peekable(),
        };
        merge.read()?;
        Ok(merge)
    }

    fn read(&mut self) -> Result<(), Failure> {
        let Some(reader) = &mut self.checkpoint else {
            return Ok(());
        };
        let lsn = reader.head().lsn;
        self.next = reader.next().map_err(|broken| unreadable(lsn, &broken))?;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Wanted>, Failure> {
        let order = match (&self.next, self.overlay.peek()) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((key, _)), Some((overlay_key, _))) => key.cmp(overlay_key),
        };
        let old = if order.is_le() {
            self.next.take()
        } else {
            None
        };
        if order.is_le() {
            self.read()?;
        }
        Ok(match order {
            Ordering::Less => old.map(|(key, value)| Wanted {
                key,
                lsn: Lsn(0),
                value: Some(value),
            }),
            Ordering::Equal | Ordering::Greater => {
                self.overlay.next().map(|(key, (lsn, value))| Wanted {
                    key: key.clone(),
                    lsn: *lsn,
                    value: value.clone(),
                })
            }
        })
    }
}
