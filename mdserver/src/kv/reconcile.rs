//! Makes the index agree with the truth, entry by entry.
//!
//! The truth (checkpoint, and the journal's changes over it) and the index are read side by side in
//! the order of keys. An entry of the index that differs although it should be right is set right
//! at once; changes of the journal that are not in the index yet go into the memtable, from where
//! they come into the index later. So it does not matter in which state sled came back: behind,
//! ahead, silently short of keys, or empty.
//!
//! The store serves meanwhile, from the truth itself. Only when commits are lost, the loss was accepted, and the index says it had applied the lost
//! commits, are its values taken instead ("salvage").

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

/// What the comparison asks of the store around it.
pub(super) trait Surroundings {
    /// True when the store is being closed.
    fn stopping(&self) -> bool;
    /// Sees to it that sled may write one more group.
    fn make_room(&self, index: &Index) -> Result<(), KvError>;
}

/// What the comparison led to.
#[derive(Debug, Default)]
pub(super) struct Reconciled {
    /// Changes that are not in the index.
    pub(super) memtable: Memtable,
    /// Entries that were wrong and are right now.
    pub(super) repaired: u64,
    /// Entries that were taken from the index.
    pub(super) salvaged: u64,
}

/// Why the comparison could not be finished.
#[derive(Debug)]
pub(super) enum Failure {
    /// The index is of no use.
    Index(Fault),
    /// The truth cannot be read, although it could a moment ago.
    Truth(KvError),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Index(fault)
    }
}

/// What the truth says of a key: the commit (0: the checkpoint) and the value.
struct Wanted {
    key: Vec<u8>,
    lsn: Lsn,
    value: Option<Vec<u8>>,
}

/// So many keys are compared between two looks whether the store is being closed.
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
        let passed = left
            .as_ref()
            .is_some_and(|want| entries.has_passed(&want.key));
        repair.compare(left, right, passed)?;
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
    /// The index had not come as far as the checkpoint, so it may differ and be sound.
    behind: bool,
    salvage: Option<Lsn>,
    group: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    group_bytes: usize,
    done: Reconciled,
}

impl Repair<'_> {
    /// Judges one key: what the truth says, and what the index has, or where its page cannot be read (`passed`).
    fn compare(
        &mut self,
        want: Option<Wanted>,
        have: Option<Entry>,
        passed: bool,
    ) -> Result<(), Failure> {
        let key = match (&want, &have) {
            (Some(want), _) => want.key.clone(),
            (None, Some((key, _))) => key.to_vec(),
            (None, None) => return Ok(()),
        };
        let lsn = want.as_ref().map_or(Lsn(0), |want| want.lsn);
        let value = want.and_then(|want| want.value);
        let readable = !passed && have.as_ref().is_none_or(|(_, value)| value.is_some());
        let stored = have.and_then(|(_, value)| value);
        if readable && value.as_deref() == stored.as_deref() {
            return Ok(());
        }
        if readable && self.salvage.is_some_and(|salvage| lsn <= salvage) {
            self.done.salvaged += 1;
        } else if lsn > self.applied {
            if !readable {
                // The page is made anew whatever comes into it later.
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

fn rotten(lsn: Lsn, broken: &Broken) -> Failure {
    let Broken { offset, detail } = broken;
    let detail =
        format!("checkpoint {lsn} at byte {offset}: {detail}, although it was whole a moment ago");
    Failure::Truth(KvError::Invalid(detail))
}

/// The truth in the order of keys.
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
            checkpoint: reader.transpose().map_err(|broken| rotten(lsn, &broken))?,
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
        self.next = reader.next().map_err(|broken| rotten(lsn, &broken))?;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Wanted>, Failure> {
        let order = match (&self.next, self.overlay.peek()) {
            (None, None) => return Ok(None),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((key, _)), Some((newer, _))) => key.cmp(newer),
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
