//! The record of the locks that this mount holds, by file and owner, in the order of the lock server's change
//! numbers.
//!
//! A reply may arrive before the reply of an earlier change; its change then waits for the earlier one. So the record
//! is the lock server's state at some moment, and at rest its current state.
//!
//! An epoch may end with changes that never arrived because their replies were lost. Later changes count all the
//! same, and imply the missing ones: a granted lock excludes conflicting locks of other owners, so those were
//! released. Otherwise the reclaim would name two owners of the same bytes, and the lock server would choose.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use slabfs_mdserver::api::{
    HeldLocks, Ino, LockAsk, LockFile, LockKind, LockMode, LockOutcome, LockOwner, LockSpan,
    LockWant, LostLocks,
};
use slabfs_mdserver::locks::Spans;
use smallvec::SmallVec;

/// A file, and a kind of lock on it.
pub(super) type Key = (LockFile, LockKind);

/// The locks of this mount.
#[derive(Debug, Default)]
pub(super) struct Held {
    places: HashMap<Key, HashMap<LockOwner, Mine>>,
    /// Number of the last change applied, and changes that arrived out of order.
    applied: u64,
    early: BTreeMap<u64, Option<Change>>,
}

/// The locks of one owner on one file.
#[derive(Debug, Default)]
struct Mine {
    pid: u32,
    spans: Spans,
    /// The open files through which they were taken.
    opens: SmallVec<[u64; 1]>,
}

/// A change of the locks held.
#[derive(Debug, Clone)]
struct Change {
    key: Key,
    owner: LockOwner,
    pid: u32,
    span: LockSpan,
    mode: Option<LockMode>,
    open: u64,
}

impl Change {
    fn of(ask: &LockAsk, open: u64, mode: Option<LockMode>) -> Change {
        Change {
            key: (ask.file.clone(), ask.kind),
            owner: ask.owner,
            pid: ask.pid,
            span: ask.span,
            mode,
            open,
        }
    }
}

/// The mode that a request leaves when it is done.
fn mode_of(want: LockWant) -> Option<LockMode> {
    match want {
        LockWant::Try(mode) | LockWant::Wait(mode) | LockWant::Test(mode) => Some(mode),
        LockWant::Unlock | LockWant::Ending => None,
    }
}

impl Held {
    /// Records change number `number`: now, or when all earlier ones are recorded.
    fn change(&mut self, number: Option<u64>, change: Option<Change>) {
        let Some(number) = number else { return };
        if number <= self.applied {
            return;
        }
        self.early.insert(number, change);
        while let Some(change) = self.early.remove(&(self.applied + 1)) {
            self.applied += 1;
            self.apply(change);
        }
    }

    fn apply(&mut self, change: Option<Change>) {
        let Some(change) = change else { return };
        let Change {
            key,
            owner,
            pid,
            span,
            mode,
            open,
        } = change;
        if mode.is_none() && !self.places.contains_key(&key) {
            return;
        }
        let owners = self.places.entry(key.clone()).or_default();
        let mine = owners.entry(owner).or_default();
        mine.spans.set(span, mode);
        if mode.is_some() {
            mine.pid = pid;
            if !mine.opens.contains(&open) {
                mine.opens.push(open);
            }
        }
        if mine.spans.is_empty() {
            owners.remove(&owner);
            if owners.is_empty() {
                self.places.remove(&key);
            }
        }
    }

    /// Records the outcome of a request, with its change number; no outcome: it is queued.
    ///
    /// An `flock` request that is refused or queued has released the owner's old lock: that is a change too.
    pub(super) fn note(
        &mut self,
        ask: &LockAsk,
        open: u64,
        outcome: Option<LockOutcome>,
        number: Option<u64>,
    ) {
        let mode = match outcome {
            Some(LockOutcome::Done) => mode_of(ask.want),
            _ => None,
        };
        self.change(number, Some(Change::of(ask, open, mode)));
    }

    /// Whether nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.early.is_empty()
    }

    /// The owners that may hold a lock on a file, through this open file or through any. A change that waits for an
    /// earlier one counts: its program has the reply, and may close the file before the change is applied.
    pub(super) fn owners(&self, key: &Key, open: Option<u64>) -> BTreeSet<LockOwner> {
        let held = self.places.get(key).into_iter().flatten();
        let held = held
            .filter(|(_, mine)| open.is_none_or(|open| mine.opens.contains(&open)))
            .map(|(owner, _)| *owner);
        let early = self.early.values().flatten();
        let early = early
            .filter(|change| {
                change.key == *key
                    && change.mode.is_some()
                    && open.is_none_or(|open| change.open == open)
            })
            .map(|change| change.owner);
        held.chain(early).collect()
    }

    /// The objects with locks, and the open files through which these were taken.
    pub(super) fn opens(&self) -> BTreeSet<(Ino, u64)> {
        let places = self.places.iter();
        let opens = places.flat_map(|((file, _), owners)| {
            let opens = owners.values().flat_map(|mine| mine.opens.iter());
            opens.map(|open| (file.ino, *open))
        });
        opens.collect()
    }

    /// All locks held, for the reclaim.
    pub(super) fn all(&self) -> Vec<HeldLocks> {
        let mut all = Vec::new();
        for ((file, kind), owners) in &self.places {
            for (owner, mine) in owners {
                all.push(HeldLocks {
                    file: file.clone(),
                    kind: *kind,
                    owner: *owner,
                    pid: mine.pid,
                    spans: mine.spans.iter().collect(),
                });
            }
        }
        all
    }

    /// Records a change number whose change affects no locks.
    pub(super) fn skip(&mut self, number: Option<u64>) {
        self.change(number, None);
    }

    /// The number of locked spans.
    pub(super) fn count(&self) -> usize {
        let all = self.places.values().flat_map(HashMap::values);
        all.map(|mine| mine.spans.len()).sum()
    }

    /// Ends the epoch: the change numbers of the next one start at 1.
    pub(super) fn end_epoch(&mut self) {
        // Changes in `early` were made and reported; the changes missing between them reached no caller. A lock
        // granted in `early` that conflicts with a recorded lock of another owner implies that the other was released
        // in between.
        for change in std::mem::take(&mut self.early).into_values() {
            if let Some(change) = &change {
                self.make_room(change);
            }
            self.apply(change);
        }
        self.applied = 0;
    }

    /// Removes other owners' locks that conflict with a change.
    fn make_room(&mut self, change: &Change) {
        let left = match change.mode {
            None => return,
            Some(LockMode::Exclusive) => None,
            Some(LockMode::Shared) => Some(LockMode::Shared),
        };
        let owners = self.places.get(&change.key).into_iter().flatten();
        let others: Vec<LockOwner> = owners
            .map(|(&owner, _)| owner)
            .filter(|owner| *owner != change.owner)
            .collect();
        for owner in others {
            self.cut(&change.key, owner, change.span, left);
        }
    }

    /// Reduces an owner's locks on a span to at most `left`.
    fn cut(&mut self, key: &Key, owner: LockOwner, span: LockSpan, left: Option<LockMode>) {
        let Some(owners) = self.places.get_mut(key) else {
            return;
        };
        let Some(mine) = owners.get_mut(&owner) else {
            return;
        };
        let parts: Vec<LockSpan> = mine.spans.within(span).map(|(part, _)| part).collect();
        for part in parts {
            mine.spans.set(part, left);
        }
        if mine.spans.is_empty() {
            owners.remove(&owner);
            if owners.is_empty() {
                self.places.remove(key);
            }
        }
    }

    /// Removes the locks that other mounts hold, as named by the reply to a reclaim.
    pub(super) fn lose(&mut self, lost: &[LostLocks]) {
        for one in lost {
            let key = (one.file.clone(), one.kind);
            for &(span, left) in &one.spans {
                self.cut(&key, one.owner, span, left);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        let file = LockFile {
            ino: slabfs_model::ObjectId(7),
            selection: None,
        };
        (file, LockKind::Record)
    }

    fn change(owner: u64, mode: Option<LockMode>, open: u64) -> Option<Change> {
        Some(Change {
            key: key(),
            owner: LockOwner(owner),
            pid: 1,
            span: LockSpan::ALL,
            mode,
            open,
        })
    }

    fn owners(held: &Held, open: Option<u64>) -> Vec<u64> {
        let all = held.owners(&key(), open);
        all.into_iter().map(|owner| owner.0).collect()
    }

    #[test]
    fn a_change_out_of_order_is_not_forgotten_by_a_close() {
        let mut held = Held::default();
        let exclusive = Some(LockMode::Exclusive);
        held.change(Some(2), change(1, exclusive, 5));
        assert!(!held.is_empty() && held.places.is_empty());
        assert_eq!(owners(&held, None), [1]);
        assert_eq!(owners(&held, Some(5)), [1]);
        assert_eq!(owners(&held, Some(6)), [0; 0]);
        held.change(Some(1), change(2, exclusive, 6));
        assert_eq!(owners(&held, None), [1, 2]);
    }

    fn part(owner: u64, span: (u64, u64), mode: Option<LockMode>) -> Option<Change> {
        let mut change = change(owner, mode, 5)?;
        change.span = LockSpan {
            first: span.0,
            last: span.1,
        };
        Some(change)
    }

    fn spans(held: &Held, owner: u64) -> Vec<(u64, u64, LockMode)> {
        let all = held.all();
        let of = all.iter().filter(|one| one.owner == LockOwner(owner));
        of.flat_map(|one| &one.spans)
            .map(|(span, mode)| (span.first, span.last, *mode))
            .collect()
    }

    #[test]
    fn a_granted_lock_ends_conflicting_ones_whose_unlock_reply_was_lost() {
        use LockMode::{Exclusive, Shared};
        let mut held = Held::default();
        held.change(Some(1), part(1, (0, 9), Some(Exclusive)));
        // Changes 2 and 4: owner 1 unlocked bytes 3 to 4, and downgraded 6 to 7 to shared. Their replies were lost.
        held.change(Some(3), part(2, (3, 4), Some(Exclusive)));
        held.change(Some(5), part(2, (7, 7), Some(Shared)));
        held.end_epoch();
        let ones = [
            (0, 2, Exclusive),
            (5, 6, Exclusive),
            (7, 7, Shared),
            (8, 9, Exclusive),
        ];
        assert_eq!(spans(&held, 1), ones);
        assert_eq!(spans(&held, 2), [(3, 4, Exclusive), (7, 7, Shared)]);
    }

    #[test]
    fn locks_lost_to_other_mounts_are_not_held() {
        use LockMode::{Exclusive, Shared};
        let mut held = Held::default();
        held.change(Some(1), part(1, (0, 9), Some(Exclusive)));
        held.change(Some(2), part(2, (20, 29), Some(Exclusive)));
        let lost = |owner, span: (u64, u64), left| LostLocks {
            file: key().0,
            kind: key().1,
            owner: LockOwner(owner),
            spans: vec![(
                LockSpan {
                    first: span.0,
                    last: span.1,
                },
                left,
            )],
        };
        held.lose(&[
            lost(1, (3, 4), None),
            lost(1, (6, 6), Some(Shared)),
            lost(2, (20, 29), None),
        ]);
        let ones = [
            (0, 2, Exclusive),
            (5, 5, Exclusive),
            (6, 6, Shared),
            (7, 9, Exclusive),
        ];
        assert_eq!(spans(&held, 1), ones);
        assert_eq!(owners(&held, None), [1]);
        held.lose(&[lost(1, (0, 9), None)]);
        assert!(held.is_empty());
    }

    #[test]
    fn changes_count_in_the_order_of_the_lock_server() {
        let mut held = Held::default();
        let exclusive = Some(LockMode::Exclusive);
        held.change(Some(3), change(1, exclusive, 5));
        held.change(Some(2), change(1, None, 0));
        held.change(Some(1), change(1, exclusive, 5));
        assert_eq!(owners(&held, None), [1]);
        held.change(Some(4), change(1, None, 0));
        assert!(held.is_empty());
        // A duplicate reply.
        held.change(Some(3), change(1, exclusive, 5));
        assert!(held.is_empty());
    }
}
