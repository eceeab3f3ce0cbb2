//! The view of an open file: the bytes that a batch selects, packed, in place of the object's.
//!
//! A program sets it by `ioctl` (`ops/ioctl.rs`), in parts. It belongs to the open file, so that duplicates of the
//! descriptor share it and other opens of the file know nothing of it. Files are open with `FOPEN_DIRECT_IO`: every
//! read and write of the program comes here, with the packed offset the program means. What the kernel reads and
//! writes of pages is the object's: a mapping has no view.
//!
//! A request that has begun goes on with the view it found.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use slabfs_model::batch::Plan;

use crate::view::pattern::{Gathering, Part, Pattern, PatternError, Unit};

/// A view, looked through.
#[derive(Debug)]
pub(super) struct Viewed {
    pattern: Pattern,
    plan: Plan,
}

/// The place of a view in an open file; most files never have one, and then it is a pointer.
#[derive(Debug, Default)]
pub(super) struct Views(OnceLock<Box<Set>>);

#[derive(Debug, Default)]
struct Set {
    current: RwLock<Option<Arc<Viewed>>>,
    gathering: Mutex<Gathering>,
}

impl Viewed {
    /// Looks a pattern through; `elem` is the size of an element in bytes.
    fn new(pattern: Pattern, elem: u64) -> Result<Viewed, PatternError> {
        let unit = match pattern.unit {
            Unit::Bytes => 1,
            Unit::Elements => elem.max(1),
        };
        let plan = Plan::packed(&pattern.batches()?, unit)?;
        Ok(Viewed { pattern, plan })
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
    pub(super) fn take(&self, part: Part, elem: u64) -> Result<(), PatternError> {
        // Held until the view is set: of two that are sent at the same time one is set as a whole.
        let set = self.0.get_or_init(Box::default);
        let mut gathering = set.gathering.lock();
        if let Some(pattern) = gathering.take(part)? {
            let viewed = Viewed::new(pattern, elem)?;
            *set.current.write() = Some(Arc::new(viewed));
        }
        Ok(())
    }

    /// Takes the view off.
    pub(super) fn clear(&self) {
        let Some(set) = self.0.get() else { return };
        let mut gathering = set.gathering.lock();
        *gathering = Gathering::default();
        *set.current.write() = None;
    }
}
