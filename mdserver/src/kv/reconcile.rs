//! Makes the index agree with checkpoint and journal, entry by entry.
//!
//! The truth (the checkpoint overlaid with the journal's changes) and the index are merged in the order of keys. An
//! entry of the index that differs although it should be right is corrected at once. Changes of the journal that are
//! not in the index yet go into the memtable, and from there into the index later. So the state of sled at the start
//! does not matter: behind, ahead, with keys missing, or empty.
//!
//! The store serves requests from checkpoint and journal meanwhile. The index's values are taken instead ("salvage")
//! only if commits are lost, the loss was accepted, and the index records that it had applied the lost commits.

use super::checkpoint::Broken;
use super::direct::Direct;
use super::entries::{Entries, Entry};
use super::housekeeping::PART;
use super::index::{Fault, Index};
use super::memtable::{Memtable, bytes_of};
use super::replay::Change;
use super::{KvError, Lsn};
use std::cmp::Ordering;

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
type Wanted = (Vec<u8>, Change);

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
    let unreadable = |broken: Broken| unreadable(truth.checkpoint_lsn(), &broken);
    let mut wanted = truth.merged(b"", None).map_err(unreadable)?;
    let mut entries: Entries = index.all()?;
    let (mut want, mut have) = (wanted.next().map_err(unreadable)?, entries.next()?);
    for step in 0u64.. {
        if step % STEPS == 0 && around.stopping() {
            return Err(Failure::Truth(KvError::Closed));
        }
        let order = match (&want, &have) {
            (None, None) => break,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((want, _)), Some((key, _))) => want[..].cmp(key),
        };
        let (left, right) = match order {
            Ordering::Less => (want.take(), None),
            Ordering::Greater => (None, have.take()),
            Ordering::Equal => (want.take(), have.take()),
        };
        if order.is_le() {
            want = wanted.next().map_err(unreadable)?;
        }
        if order.is_ge() {
            have = entries.next()?;
        }
        if let Some((key, _)) = &right {
            index.note(key);
        }
        let skipped = left
            .as_ref()
            .is_some_and(|(key, _)| entries.is_skipped(key));
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
        let (key, (lsn, value)) = match (want, &have) {
            (Some(want), _) => want,
            (None, Some((key, _))) => (key.to_vec(), (Lsn(0), None)),
            (None, None) => return Ok(()),
        };
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
