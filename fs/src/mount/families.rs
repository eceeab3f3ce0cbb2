//! Families: the open inodes of the mount that show bytes of the same object.
//!
//! A *family* is an object with open handles: its plain inode and the selections that are open. It answers
//! three questions, fast when the answer is no:
//!
//! - Which other inodes may have pages in the kernel? Those that were read through the page cache, which
//!   with direct I/O means: mapped. Such a read has no lock owner. The mark goes when the inode's last handle is
//!   released, and of the plain inode with the last handle of the family: the kernel itself drops pages that remain of a
//!   selection when it is opened again, but not those of the plain inode.
//! - Are its pages being discarded because the session is over? Then writes of these pages by the kernel are refused.
//! - Is a selection open for writing? Then the kernel may not cache the attributes of the plain inode, since
//!   size and times change without its knowledge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use foldhash::HashMap;
use parking_lot::Mutex;
use slabfs_mdserver::api::Ino;
use slabfs_model::ShardId;

/// An object with open handles.
#[derive(Debug)]
pub(super) struct Family {
    object: Ino,
    any_mapped: AtomicBool,
    any_of_mount: Arc<AtomicBool>,
    /// How many discards of the object's pages run; dirty pages must not be written back meanwhile.
    discarding: AtomicUsize,
    members: Mutex<Vec<Member>>,
}

#[derive(Debug)]
struct Member {
    inode: u64,
    handles: usize,
    writers: usize,
    mapped: bool,
}

/// The families of a mount.
#[derive(Debug, Default)]
pub(super) struct Families {
    by_object: Mutex<HashMap<Ino, Arc<Family>>>,
    /// Selections open for writing on the mount: mostly none, and then no family is searched.
    selection_writers: AtomicUsize,
    /// The kernel has asked for a page of any object.
    any_mapped: Arc<AtomicBool>,
}

impl Families {
    /// Counts a handle of `inode`, which shows bytes of `object`.
    pub(super) fn join(&self, object: Ino, inode: u64, write: bool) -> Arc<Family> {
        let mut by_object = self.by_object.lock();
        let family = by_object.entry(object).or_insert_with(|| {
            Arc::new(Family {
                object,
                any_mapped: AtomicBool::new(false),
                any_of_mount: self.any_mapped.clone(),
                discarding: AtomicUsize::new(0),
                members: Mutex::new(Vec::new()),
            })
        });
        family.join(inode, write);
        if write && inode != object.0 {
            self.selection_writers.fetch_add(1, Ordering::AcqRel);
        }
        family.clone()
    }

    /// Removes a handle; the family goes with its last one.
    pub(super) fn leave(&self, family: &Family, inode: u64, write: bool) {
        let mut by_object = self.by_object.lock();
        if family.leave(inode, write) {
            by_object.remove(&family.object);
        }
        if write && inode != family.object.0 {
            self.selection_writers.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Whether the object is open for writing through a selection.
    pub(super) fn written_through_selection(&self, object: Ino) -> bool {
        self.selection_writers.load(Ordering::Acquire) > 0
            && self
                .find(object)
                .is_some_and(|family| family.has_selection_writer())
    }

    /// The inodes of an object that may have pages in the kernel, except `except`.
    pub(super) fn mapped(&self, object: Ino, except: Option<u64>) -> Vec<u64> {
        self.find(object)
            .map(|family| family.mapped(except))
            .unwrap_or_default()
    }

    /// Whether the kernel has ever asked for a page.
    pub(super) fn any_was_mapped(&self) -> bool {
        self.any_mapped.load(Ordering::Acquire)
    }

    /// The families of objects of a shard, or of all, with pages in the kernel, and their inodes that have them.
    pub(super) fn all_mapped(&self, shard: Option<ShardId>) -> Vec<(Arc<Family>, Vec<u64>)> {
        let all: Vec<Arc<Family>> = self.by_object.lock().values().cloned().collect();
        all.into_iter()
            .filter(|family| shard.is_none_or(|shard| family.object.shard() == shard))
            .map(|family| {
                let inodes = family.mapped(None);
                (family, inodes)
            })
            .filter(|(_, inodes)| !inodes.is_empty())
            .collect()
    }

    /// All inodes with open handles.
    pub(super) fn inodes(&self) -> Vec<u64> {
        let all: Vec<Arc<Family>> = self.by_object.lock().values().cloned().collect();
        let members = all.iter().map(|family| family.members.lock());
        members
            .flat_map(|members| members.iter().map(|one| one.inode).collect::<Vec<u64>>())
            .collect()
    }

    fn find(&self, object: Ino) -> Option<Arc<Family>> {
        self.by_object.lock().get(&object).cloned()
    }
}

impl Family {
    fn join(&self, inode: u64, write: bool) {
        let mut members = self.members.lock();
        let at = match members.iter().position(|member| member.inode == inode) {
            Some(at) => at,
            None => {
                members.push(Member {
                    inode,
                    handles: 0,
                    writers: 0,
                    mapped: false,
                });
                members.len() - 1
            }
        };
        members[at].handles += 1;
        members[at].writers += usize::from(write);
    }

    /// Returns whether no member is left.
    fn leave(&self, inode: u64, write: bool) -> bool {
        let mut members = self.members.lock();
        if let Some(at) = members.iter().position(|member| member.inode == inode) {
            members[at].handles -= 1;
            members[at].writers -= usize::from(write);
            // The kernel retains pages of the plain inode, and the next open may find them (`retained.rs`).
            let has_pages = members[at].mapped && inode == self.object.0;
            if members[at].handles == 0 && !has_pages {
                members.swap_remove(at);
            }
        }
        let mapped = members.iter().any(|member| member.mapped);
        self.any_mapped.store(mapped, Ordering::Release);
        members.iter().all(|member| member.handles == 0)
    }

    /// Begins a discard: writes of dirty pages are refused from now on.
    pub(super) fn discard(&self) {
        self.discarding.fetch_add(1, Ordering::SeqCst);
    }

    /// Ends a discard: the pages are gone.
    pub(super) fn discarded(&self) {
        self.discarding.fetch_sub(1, Ordering::SeqCst);
    }

    /// Whether writes of dirty pages are refused.
    pub(super) fn discards(&self) -> bool {
        self.discarding.load(Ordering::SeqCst) > 0
    }

    /// Notes that the kernel reads pages of `inode`.
    pub(super) fn mark_mapped(&self, inode: u64) {
        let mut members = self.members.lock();
        for member in members.iter_mut().filter(|member| member.inode == inode) {
            member.mapped = true;
        }
        self.any_mapped.store(true, Ordering::Release);
        self.any_of_mount.store(true, Ordering::Release);
    }

    /// The inodes that may have pages in the kernel, except `except`.
    pub(super) fn mapped(&self, except: Option<u64>) -> Vec<u64> {
        if !self.any_mapped.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.members
            .lock()
            .iter()
            .filter(|member| member.mapped && Some(member.inode) != except)
            .map(|member| member.inode)
            .collect()
    }

    fn has_selection_writer(&self) -> bool {
        self.members
            .lock()
            .iter()
            .any(|member| member.writers > 0 && member.inode != self.object.0)
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    const OBJECT: Ino = ObjectId(7);
    const SELECTION: u64 = 1 << 62;

    #[test]
    fn pages_are_known_while_a_handle_is_open() {
        let families = Families::default();
        let plain = families.join(OBJECT, OBJECT.0, true);
        let selection = families.join(OBJECT, SELECTION, false);
        assert!(plain.mapped(None).is_empty());
        selection.mark_mapped(SELECTION);
        assert_eq!(plain.mapped(Some(OBJECT.0)), [SELECTION]);
        assert!(plain.mapped(Some(SELECTION)).is_empty());
        assert_eq!(families.mapped(OBJECT, None), [SELECTION]);
        families.leave(&selection, SELECTION, false);
        assert!(plain.mapped(None).is_empty());
        let selection = families.join(OBJECT, SELECTION, false);
        plain.mark_mapped(OBJECT.0);
        families.leave(&plain, OBJECT.0, true);
        assert_eq!(families.mapped(OBJECT, None), [OBJECT.0], "they outlive it");
        families.leave(&selection, SELECTION, false);
        assert!(families.by_object.lock().is_empty());
    }

    #[test]
    fn writers_of_selections_are_known() {
        let families = Families::default();
        let plain = families.join(OBJECT, OBJECT.0, true);
        assert!(!families.written_through_selection(OBJECT));
        let reader = families.join(OBJECT, SELECTION, false);
        assert!(!families.written_through_selection(OBJECT));
        let writer = families.join(OBJECT, SELECTION, true);
        assert!(families.written_through_selection(OBJECT));
        assert!(!families.written_through_selection(ObjectId(8)));
        families.leave(&writer, SELECTION, true);
        assert!(!families.written_through_selection(OBJECT));
        families.leave(&reader, SELECTION, false);
        families.leave(&plain, OBJECT.0, true);
        assert_eq!(families.selection_writers.load(Ordering::Acquire), 0);
    }
}
