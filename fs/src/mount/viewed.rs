//! The view of an open file: the bytes that a batch selects, packed, in place of the object's.
//!
//! A program sets it by `ioctl` (`ops/ioctl.rs`), in parts. It belongs to the open file, so that duplicates of the
//! descriptor share it and other opens of the file know nothing of it. Files are open with `FOPEN_DIRECT_IO`: every
//! read and write of the program comes here, with the packed offset the program means. What the kernel reads and
//! writes of pages is the object's: a mapping has no view.
//!
//! A request that has begun goes on with the view it found.
//!
//! Views are memory that programs ask for, so all of a mount have a bound together ([`Room`]): a node is about 270
//! bytes, looked through.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use fuser::Errno;
use parking_lot::{Mutex, RwLock};
use slabfs_model::batch::Plan;

use crate::mount::errno::{Outcome, refused};
use crate::view::pattern::{Gathering, Part, Pattern, PatternError, Unit};

/// Nodes that all views of a mount may have together.
const ROOM: usize = 1 << 20;

/// How many nodes the views of a mount have.
#[derive(Debug, Default)]
pub(super) struct Room(Arc<AtomicUsize>);

/// Nodes that are counted until this is dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>, usize);

impl Room {
    /// Counts so many nodes more; nothing where there is no room for them.
    fn count(&self, nodes: usize) -> Option<Counted> {
        let more = |used: usize| used.checked_add(nodes).filter(|&all| all <= ROOM);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()
            .map(|_| Counted(self.0.clone(), nodes))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::AcqRel);
    }
}

/// A view, looked through.
#[derive(Debug)]
pub(super) struct Viewed {
    pattern: Pattern,
    plan: Plan,
    _counted: Option<Counted>,
}

/// The place of a view in an open file; most files never have one, and then it is a pointer.
#[derive(Debug, Default)]
pub(super) struct Views(OnceLock<Box<Set>>);

#[derive(Debug, Default)]
struct Set {
    current: RwLock<Option<Arc<Viewed>>>,
    gathering: Mutex<Begun>,
}

/// A view of which not all parts have come.
#[derive(Debug, Default)]
struct Begun {
    parts: Gathering,
    counted: Option<Counted>,
}

impl Viewed {
    /// Looks a pattern through; `elem` is the size of an element in bytes.
    fn new(pattern: Pattern, elem: u64, counted: Option<Counted>) -> Result<Viewed, PatternError> {
        let unit = match pattern.unit {
            Unit::Bytes => 1,
            Unit::Elements => elem.max(1),
        };
        let plan = Plan::packed(&pattern.batches()?, unit)?;
        Ok(Viewed {
            pattern,
            plan,
            _counted: counted,
        })
    }

    /// Its batch; the buffer of it is the packed bytes.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The packed bytes `offset..offset + len`, as far as there are any.
    pub(super) fn range(&self, offset: u64, len: u64) -> Range<u64> {
        let end = self.plan.bytes();
        offset.min(end)..offset.saturating_add(len).min(end)
    }

    /// The part of its pattern that begins at a node, as a program gets it.
    pub(super) fn part(&self, first: u32) -> Vec<u8> {
        self.pattern.part(first, self.plan.bytes())
    }
}

impl Views {
    /// The view, if there is one.
    pub(super) fn get(&self) -> Option<Arc<Viewed>> {
        self.0.get()?.current.read().clone()
    }

    /// Takes a part of a view in, and sets the view if that was the last part.
    pub(super) fn take(&self, part: Part, elem: u64, room: &Room) -> Outcome<()> {
        // Held until the view is set: of two that are sent at the same time one is set as a whole.
        let set = self.0.get_or_init(Box::default);
        let mut begun = set.gathering.lock();
        if part.first == 0 {
            *begun = Begun::default();
            begun.counted = room.count(part.total as usize);
            if begun.counted.is_none() {
                return refused(Errno::ENOMEM, "too many views on this mount");
            }
        }
        match begun.parts.take(part) {
            Ok(None) => Ok(()),
            Ok(Some(pattern)) => {
                let viewed = Viewed::new(pattern, elem, begun.counted.take())?;
                *set.current.write() = Some(Arc::new(viewed));
                Ok(())
            }
            Err(error) => {
                *begun = Begun::default();
                Err(error.into())
            }
        }
    }

    /// Takes the view off.
    pub(super) fn clear(&self) {
        let Some(set) = self.0.get() else { return };
        let mut begun = set.gathering.lock();
        *begun = Begun::default();
        *set.current.write() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back() {
        let room = Room::default();
        let most = room.count(ROOM).expect("all of it");
        assert!(room.count(1).is_none());
        drop(most);
        let one = room.count(1);
        assert!(one.is_some() && room.count(ROOM).is_none());
        assert!(room.count(usize::MAX).is_none());
    }
}
