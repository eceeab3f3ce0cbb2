//! Tracks chunks that are removed while a sync runs.
//!
//! A sync takes a list of names and works through it. Meanwhile chunks on the list may be removed, and new ones created
//! with the same names. Results for the old file must not be applied to the new one: neither that it is on disk, nor
//! that its name belongs on the roll. So each sync [watches](Removals::watch) removals, and each removal is
//! [noted](Removals::note) before it happens.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

use crate::name::ChunkName;

/// Removals seen by running syncs.
#[derive(Debug, Default)]
pub(super) struct Removals {
    watches: Mutex<Watches>,
}

#[derive(Debug, Default)]
struct Watches {
    next: u64,
    /// Names removed since each watch began, by watch number.
    seen: HashMap<u64, HashSet<ChunkName>>,
}

/// One sync's view of the removals since it began.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    removals: &'a Removals,
    number: u64,
}

impl Removals {
    /// Begins a watch.
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

    /// Notes that a chunk is about to be removed.
    pub(super) fn note(&self, name: &ChunkName) {
        for seen in self.watches.lock().seen.values_mut() {
            seen.insert(name.clone());
        }
    }
}

impl Watch<'_> {
    /// Whether a chunk of that name was removed since the watch began.
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
