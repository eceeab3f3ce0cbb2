//! Pages that the kernel may have of files that are not open.
//!
//! The kernel keeps the pages of a file after its last `close`, and uses them again if the reply to the next `open` allows
//! it (`FOPEN_KEEP_CACHE`). Meanwhile the mount has no right on the object, so others may change it. Therefore this table has
//! an entry for each inode whose object was closed while pages of it may have been in the kernel, with the object's change
//! number of that moment. The next open of the inode compares:
//!
//! - The object has that change number, and a right for it that is held again: the pages are current.
//! - Otherwise they are dropped before the `open` is answered.
//!
//! Invariant: where there is no entry, and the object is not open, the kernel has no page of the inode. So an entry is
//! removed only when its pages are dropped, or count as handed out again; not with the `FORGET` of an inode, which may
//! arrive after pages of a new inode with the same number. The oldest entries are removed, with their pages, when there are
//! more than [`MOST`].

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;
use slabfs_mdserver::api::Ino;
use slabfs_model::ShardId;

use super::inval::Forget;
use super::open_file::Open;
use super::shared::Shared;

/// Most entries; more are there while the pages of the oldest ones are being dropped.
const MOST: usize = 65_536;

/// An entry: which one it is of all that were ever made, and the change number of the pages' bytes, unless they are known
/// to be old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) change: Option<u64>,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Retained(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<Ino, Entry>,
    /// In order of their numbers, with entries that are gone or were replaced in between.
    order: VecDeque<(Ino, u64)>,
    next: u64,
}

impl Retained {
    /// Adds an entry for an object that is being closed. Returns one whose pages have to be dropped, if there are too many.
    pub(super) fn add(&self, ino: Ino, change: Option<u64>) -> Option<(Ino, Entry)> {
        let mut table = self.0.lock();
        let number = table.next;
        table.next += 1;
        table.entries.insert(ino, Entry { number, change });
        table.order.push_back((ino, number));
        let Table { entries, order, .. } = &mut *table;
        let is_there = |entries: &HashMap<Ino, Entry>, &(ino, number): &(Ino, u64)| {
            entries
                .get(&ino)
                .is_some_and(|entry| entry.number == number)
        };
        if order.len() > 2 * MOST {
            order.retain(|one| is_there(entries, one));
        }
        if entries.len() <= MOST {
            return None;
        }
        while let Some(one) = order.pop_front() {
            if is_there(entries, &one) {
                // It stays until its pages are dropped.
                let entry = entries.get_mut(&one.0)?;
                entry.change = None;
                return Some((one.0, *entry));
            }
        }
        None
    }

    /// The entry of an object.
    pub(super) fn get(&self, ino: Ino) -> Option<Entry> {
        self.0.lock().entries.get(&ino).copied()
    }

    /// Removes an entry, whose pages are dropped or count as handed out again; not one that has replaced it.
    pub(super) fn remove(&self, ino: Ino, entry: Entry) {
        let mut table = self.0.lock();
        if table
            .entries
            .get(&ino)
            .is_some_and(|there| there.number == entry.number)
        {
            table.entries.remove(&ino);
        }
    }

    /// None of the pages of now is current any more: the session with a shard is over (`None`: with all).
    pub(super) fn outdate(&self, shard: Option<ShardId>) {
        let mut table = self.0.lock();
        for (ino, entry) in &mut table.entries {
            if shard.is_none_or(|shard| ino.shard() == shard) {
                entry.change = None;
            }
        }
    }
}

impl Shared {
    /// Makes certain that the kernel has no old page of the inode of `open`, and then runs `then`, here or on another
    /// thread. Called before the reply to the open, whatever it is opened for: an old page must be neither
    /// read nor mapped.
    pub(super) fn settle_retained(
        self: &Arc<Self>,
        open: &Arc<Open>,
        then: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let Open::File(file) = &**open else {
            return then(self);
        };
        let ino = file.object;
        let plain = file.inode == ino.0;
        let Some(entry) = self.retained.get(ino).filter(|_| plain) else {
            return then(self);
        };
        let Some(change) = entry.change.filter(|_| !file.write) else {
            return self.drop_retained(ino, entry, then);
        };
        // A recall of the right, as soon as there is one, finds the inode by this.
        file.note_mapped();
        match file.handle().try_trust_pages(change) {
            Some(true) => {
                self.retained.remove(ino, entry);
                then(self);
            }
            Some(false) => self.drop_retained(ino, entry, then),
            None => {
                let (shared, open) = (self.clone(), open.clone());
                self.waits.submit(Box::new(move || {
                    let trusted = match &*open {
                        Open::File(file) => file.handle().trust_pages(change),
                        _ => Ok(false),
                    };
                    match trusted {
                        Ok(true) => {
                            shared.retained.remove(ino, entry);
                            then(&shared);
                        }
                        Ok(false) => shared.drop_retained(ino, entry, then),
                        Err(error) => {
                            tracing::debug!(%ino, %error, "retained pages are dropped");
                            shared.drop_retained(ino, entry, then);
                        }
                    }
                }));
            }
        }
    }

    /// Drops the pages of an entry, removes it, and runs `then`.
    pub(super) fn drop_retained(
        self: &Arc<Self>,
        ino: Ino,
        entry: Entry,
        then: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) {
        let shared = self.clone();
        let dropped = move || {
            shared.retained.remove(ino, entry);
            then(&shared);
        };
        self.inval
            .forget(vec![ino.0], Forget::Pages, Some(Box::new(dropped)));
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    #[test]
    fn an_entry_that_was_replaced_is_not_removed() {
        let retained = Retained::default();
        let ino = ObjectId(7);
        assert_eq!(retained.add(ino, Some(3)), None);
        let first = retained.get(ino).expect("an entry");
        assert_eq!(retained.add(ino, Some(4)), None);
        retained.remove(ino, first);
        let second = retained.get(ino).expect("an entry");
        assert_eq!(second.change, Some(4));
        retained.outdate(None);
        assert_eq!(retained.get(ino).expect("an entry").change, None);
        retained.remove(ino, second);
        assert_eq!(retained.get(ino), None);
    }

    #[test]
    fn the_oldest_entries_make_room() {
        let retained = Retained::default();
        for object in 0..MOST as u64 {
            assert_eq!(retained.add(ObjectId(object), Some(object)), None);
        }
        let (oldest, entry) = retained.add(ObjectId(1 << 40), Some(1)).expect("too many");
        assert_eq!((oldest, entry.change), (ObjectId(0), None));
        assert_eq!(retained.get(oldest), Some(entry));
        retained.remove(oldest, entry);
        assert_eq!(retained.get(oldest), None);
        // One that was replaced counts once.
        assert_eq!(retained.add(ObjectId(1), Some(9)), None);
        let (oldest, _) = retained.add(ObjectId(1 << 41), Some(9)).expect("too many");
        assert_eq!(oldest, ObjectId(2), "the other one is newer now");
    }
}
