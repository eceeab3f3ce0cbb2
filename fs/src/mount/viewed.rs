//! The view of an open file: reads and writes go to the bytes that a batch selects, packed, instead of the object's.
//!
//! A program sets it by `ioctl` (`ops/ioctl.rs`), in parts. It belongs to the open file, so duplicates of the
//! descriptor share it and other opens of the file are not affected. Files are open with `FOPEN_DIRECT_IO`, so every
//! read and write of the program arrives here with the packed offset that the program means. Pages that the kernel
//! reads and writes are the object's: a mapping has no view.
//!
//! A request that has begun continues with the view that it found.
//!
//! Views are memory that programs allocate, so all views of a mount are limited together, and those of one user to a
//! part of that ([`Room`]): a parsed node is about 270 bytes. Nodes count when they arrive, not when they are
//! announced.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use fuser::Errno;
use parking_lot::{Mutex, RwLock};
use slabfs_model::batch::Plan;

use crate::mount::errno::{Outcome, refused};
use crate::view::pattern::{Gathering, Part, Pattern, PatternError, Unit};

/// Nodes that all views of a mount may have together.
const ROOM: usize = 1 << 20;
/// Nodes that all views of one user other than root may have: no user takes all the room.
const SHARE: usize = ROOM / 4;

/// Bytes of memory that count as one node.
const NODE: usize = 270;

/// The number of nodes of a mount's views. Parts of encoded chunks (`chunks_file.rs`) count as so many nodes.
#[derive(Debug, Default)]
pub(super) struct Room(Arc<Mutex<Used>>);

#[derive(Debug, Default)]
struct Used {
    all: usize,
    /// The nodes of each user that has any.
    by_user: HashMap<u32, usize>,
}

/// Counted nodes; dropping this releases them.
#[derive(Debug)]
pub(super) struct Counted {
    used: Arc<Mutex<Used>>,
    user: u32,
    nodes: usize,
}

impl Room {
    /// Begins the count of a new view of a user, with no nodes.
    pub(super) fn begin(&self, user: u32) -> Counted {
        Counted {
            used: self.0.clone(),
            user,
            nodes: 0,
        }
    }
}

impl Counted {
    /// Counts memory instead of what was counted before, if there is room for it.
    pub(super) fn set_memory(&mut self, bytes: usize) -> Outcome<()> {
        let nodes = bytes.div_ceil(NODE);
        match nodes.checked_sub(self.nodes) {
            Some(more) => self.add(more),
            None => {
                self.remove(self.nodes - nodes);
                Ok(())
            }
        }
    }

    /// Counts `nodes` more, if there is room for them.
    fn add(&mut self, nodes: usize) -> Outcome<()> {
        let mut used = self.used.lock();
        let all = used.all.saturating_add(nodes);
        let own = used.by_user.get(&self.user).copied().unwrap_or(0);
        let own = own.saturating_add(nodes);
        if all > ROOM {
            return refused(
                Errno::ENOMEM,
                "too many views, or parts of encoded chunks, on this mount",
            );
        }
        if own > SHARE && self.user != 0 {
            return refused(
                Errno::ENOMEM,
                "too many views, or parts of encoded chunks, of this user on this mount",
            );
        }
        if nodes > 0 {
            used.all = all;
            used.by_user.insert(self.user, own);
            self.nodes += nodes;
        }
        Ok(())
    }
}

impl Counted {
    fn remove(&mut self, nodes: usize) {
        self.nodes -= nodes;
        let mut used = self.used.lock();
        used.all -= nodes;
        if let Some(own) = used.by_user.get_mut(&self.user) {
            *own -= nodes;
            if *own == 0 {
                used.by_user.remove(&self.user);
            }
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.remove(self.nodes);
    }
}

/// A view, validated and planned.
#[derive(Debug)]
pub(super) struct Viewed {
    pattern: Pattern,
    plan: Plan,
    _counted: Option<Counted>,
}

/// The view of an open file. Most files never have one; then this is a null pointer.
#[derive(Debug, Default)]
pub(super) struct Views(OnceLock<Box<Set>>);

#[derive(Debug, Default)]
struct Set {
    current: RwLock<Option<Arc<Viewed>>>,
    gathering: Mutex<Begun>,
}

/// A view of which some parts are missing.
#[derive(Debug, Default)]
struct Begun {
    parts: Gathering,
    counted: Option<Counted>,
}

impl Viewed {
    /// Validates a pattern and plans it; `elem` is the size of an element in bytes.
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

    /// The plan of its batch, whose buffer is the packed bytes.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The packed bytes `offset..offset + len`, clipped to the size of the view.
    pub(super) fn range(&self, offset: u64, len: u64) -> Range<u64> {
        let end = self.plan.bytes();
        offset.min(end)..offset.saturating_add(len).min(end)
    }

    /// The part of its pattern that begins at node `first`, in the format of the `ioctl`.
    pub(super) fn part(&self, first: u32) -> Vec<u8> {
        self.pattern.part(first, self.plan.bytes())
    }
}

impl Views {
    /// The view, if there is one.
    pub(super) fn get(&self) -> Option<Arc<Viewed>> {
        self.0.get()?.current.read().clone()
    }

    /// Accepts a part of a view that a user sends, and sets the view if that was the last part.
    pub(super) fn take(&self, part: Part, elem: u64, room: &Room, user: u32) -> Outcome<()> {
        // Held until the view is set: of two that are sent concurrently, one is set completely.
        let set = self.0.get_or_init(Box::default);
        let mut begun = set.gathering.lock();
        if part.first == 0 {
            *begun = Begun::default();
        }
        let counted = begun.counted.get_or_insert_with(|| room.begin(user));
        if let Err(full) = counted.add(part.nodes.len()) {
            *begun = Begun::default();
            return Err(full);
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

    /// Removes the view.
    pub(super) fn clear(&self) {
        let Some(set) = self.0.get() else { return };
        let mut begun = set.gathering.lock();
        *begun = Begun::default();
        *set.current.write() = None;
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::batch::Place;

    use super::*;
    use crate::view::pattern::{Node, What};

    /// A part with `count` nodes of the `total` that it announces.
    fn part(total: u32, count: usize) -> Part {
        let node = Node {
            file: Place::at(0),
            count: 1,
            what: What::Data(1),
        };
        Part {
            unit: Unit::Bytes,
            total,
            first: 0,
            nodes: vec![node; count],
        }
    }

    #[test]
    fn room_is_given_back() {
        let room = Room::default();
        let mut most = room.begin(0);
        most.add(ROOM).expect("all of it");
        assert!(room.begin(0).add(1).is_err());
        assert!(room.begin(7).add(1).is_err());
        drop(most);
        let mut one = room.begin(0);
        one.add(1).expect("room");
        assert!(room.begin(0).add(ROOM).is_err());
        assert!(room.begin(0).add(usize::MAX).is_err());
        drop(one);
        let used = room.0.lock();
        assert_eq!((used.all, used.by_user.len()), (0, 0));
    }

    /// A user has a quota, which other users cannot take.
    #[test]
    fn a_user_has_a_quota() {
        let room = Room::default();
        let mut one = room.begin(1);
        one.add(SHARE).expect("a share");
        assert!(one.add(1).is_err());
        assert!(room.begin(1).add(1).is_err());
        room.begin(2).add(SHARE).expect("a share");
        room.begin(0).add(ROOM - SHARE).expect("root has all");
        drop(one);
        room.begin(1).add(SHARE).expect("given back");
    }

    /// Announced nodes take no room until they arrive.
    #[test]
    fn missing_parts_take_no_room() {
        let room = Room::default();
        let begun: Vec<Views> = (0..100)
            .map(|_| {
                let views = Views::default();
                views.take(part(1 << 16, 0), 1, &room, 1).expect("room");
                views
            })
            .collect();
        let views = Views::default();
        views.take(part(3, 3), 1, &room, 1).expect("room");
        assert_eq!(room.0.lock().all, 3);
        // A part out of order discards the view that was begun.
        let mut late = part(5, 2);
        views.take(part(5, 2), 1, &room, 1).expect("room");
        late.first = 3;
        assert!(views.take(late, 1, &room, 1).is_err());
        assert_eq!(room.0.lock().all, 3, "the view that is set");
        views.clear();
        drop(begun);
        assert_eq!(room.0.lock().all, 0);
    }
}
