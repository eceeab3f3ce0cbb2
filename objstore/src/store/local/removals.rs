//! Chunks that are removed while syncs go on.
//!
//! A sync takes a list of names and works through it. Meanwhile chunks of it may be removed, and others
//! made of the same names. Then there is nothing to sync any more, and what the sync found out of the old
//! file must not be said of the name: not that it is on disk, nor that it belongs on the roll. So each sync
//! [watches](Removals::watch), and whoever removes a chunk [notes](Removals::note) it before he does.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::name::ChunkName;

/// What was removed, as far as a sync wants to know.
#[derive(Debug, Default)]
pub(super) struct Removals {
    watches: Mutex<Watches>,
}

#[derive(Debug, Default)]
struct Watches {
    next: u64,
    /// Removed since a watch began, by its number.
    seen: HashMap<u64, HashSet<ChunkName>>,
}

/// One sync's look at the removals since it began.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    removals: &'a Removals,
    number: u64,
}

impl Removals {
    /// Begins to watch.
    pub(super) fn watch(&self) -> Watch<'_> {
        let mut watches = self.watches.lock();
        let number = watches.next;
        watches.next += 1;
        watches.seen.insert(number, HashSet::new());
        Watch {
            removals: self,
            number,
        }
    }

    /// A chunk is about to be removed.
    pub(super) fn note(&self, name: &ChunkName) {
        for seen in self.watches.lock().seen.values_mut() {
            seen.insert(name.clone());
        }
    }
}

impl Watch<'_> {
    /// Whether a chunk of that name was removed since.
    pub(super) fn saw(&self, name: &ChunkName) -> bool {
        let watches = self.removals.watches.lock();
        watches
            .seen
            .get(&self.number)
            .is_some_and(|seen| seen.contains(name))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.removals.watches.lock().seen.remove(&self.number);
    }
}
