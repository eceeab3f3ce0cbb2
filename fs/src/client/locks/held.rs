//! What is held: by file and owner, in the order of the home's numbers of changes.
//!
//! A reply may come before one whose change is older; its change then waits for its turn. So what is here is
//! what the home had at some moment, and at rest what it has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use slabfs_mdserver::api::{
    HeldLocks, LockAsk, LockFile, LockKind, LockMode, LockOutcome, LockOwner, LockSpan, LockWant,
};
use slabfs_mdserver::locks::Spans;
use smallvec::SmallVec;

/// A file, and a family of locks on it.
pub(super) type Key = (LockFile, LockKind);

/// The locks of this mount.
#[derive(Debug, Default)]
pub(super) struct Held {
    places: HashMap<Key, HashMap<LockOwner, Mine>>,
    /// Number of the last change that is in there, and changes that came before their turn.
    applied: u64,
    early: BTreeMap<u64, Option<Change>>,
}

/// What one owner holds on one file.
#[derive(Debug, Default)]
struct Mine {
    pid: u32,
    spans: Spans,
    /// Through which open files it was taken.
    opens: SmallVec<[u64; 1]>,
}

/// A change of what is held.
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

/// The mode that a request ends with when it is done.
fn mode_of(want: LockWant) -> Option<LockMode> {
    match want {
        LockWant::Try(mode) | LockWant::Wait(mode) | LockWant::Test(mode) => Some(mode),
        LockWant::Unlock => None,
    }
}

impl Held {
    /// Notes change number `number`: now, or when its turn comes.
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

    /// Notes what became of a request, of which this is the change; none: it is queued.
    ///
    /// A lock of `flock` that is refused or queued has cost the owner the old one: that is a change too.
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

    /// Who may hold something on a file, through this open file or through any. A change that waits for its
    /// turn counts: its program has been told, and may close the file before its turn comes.
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

    /// What is held, to be told.
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

    /// Notes that a change says nothing about what is held.
    pub(super) fn skip(&mut self, number: Option<u64>) {
        self.change(number, None);
    }

    /// Spans that are locked.
    pub(super) fn count(&self) -> usize {
        let all = self.places.values().flat_map(HashMap::values);
        all.map(|mine| mine.spans.len()).sum()
    }

    /// The next life's numbers begin anew.
    pub(super) fn end_life(&mut self) {
        // Those whose turn did not come were done and told; what lies between was not told to anybody.
        for change in std::mem::take(&mut self.early).into_values() {
            self.apply(change);
        }
        self.applied = 0;
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
    fn a_change_that_waits_for_its_turn_is_not_forgotten_by_a_close() {
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

    #[test]
    fn changes_count_in_the_order_of_the_home() {
        let mut held = Held::default();
        let exclusive = Some(LockMode::Exclusive);
        held.change(Some(3), change(1, exclusive, 5));
        held.change(Some(2), change(1, None, 0));
        held.change(Some(1), change(1, exclusive, 5));
        assert_eq!(owners(&held, None), [1]);
        held.change(Some(4), change(1, None, 0));
        assert!(held.is_empty());
        // A reply that comes twice.
        held.change(Some(3), change(1, exclusive, 5));
        assert!(held.is_empty());
    }
}
