//! What one session holds of one object, what was recalled of it, and what a return removes.

use std::collections::VecDeque;

use crate::api::{RightMode, RightSerial};
use slabfs_model::{BoxSet, Unfit};

/// Number of grants of an object that are remembered: more than a session ever receives while a return is on its way.
const REMEMBERED: usize = 64;

/// What a session holds of an object.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Held {
    /// Cells that it may read; a superset of `write`.
    pub(super) read: BoxSet,
    /// Cells that it may write.
    pub(super) write: BoxSet,
    /// Recalled cells of `read`, and cells of `write` that are recalled down to reading.
    pub(super) recalled: BoxSet,
    pub(super) recalled_write: BoxSet,
    /// Serial of its last grant.
    pub(super) serial: RightSerial,
    /// Its last grants: a return may have been sent before they arrived.
    grants: VecDeque<(RightSerial, RightMode, BoxSet)>,
    /// All of it was recalled because it has too many boxes.
    pub(super) shrinks: bool,
    /// What it holds is no longer known.
    pub(super) lost: bool,
}

impl Held {
    /// The cells that conflict with another session's right of `mode`.
    pub(super) fn against(&self, mode: RightMode) -> &BoxSet {
        match mode {
            RightMode::Read => &self.write,
            RightMode::Write => &self.read,
        }
    }

    /// The conflicting cells that are not recalled yet; marks them as recalled.
    pub(super) fn recall(&mut self, mode: RightMode, area: &BoxSet) -> BoxSet {
        let mut fresh = self.against(mode).within(area);
        // Recalling a cell twice does no harm.
        let _ = fresh.try_subtract(&self.recalled);
        let noted = match mode {
            RightMode::Write => &mut self.recalled,
            RightMode::Read => {
                let _ = fresh.try_subtract(&self.recalled_write);
                &mut self.recalled_write
            }
        };
        // Parts of one holding, so of one rank.
        let _ = noted.try_add(&fresh);
        fresh
    }

    /// Removes rights, except those granted after `serial`: the sender did not know of these.
    pub(super) fn give(&mut self, serial: RightSerial, keep: Option<RightMode>, area: &BoxSet) {
        if keep == Some(RightMode::Write) {
            return;
        }
        if self.take(serial, keep, area).is_err() {
            self.lose_track();
        }
    }

    fn take(
        &mut self,
        serial: RightSerial,
        keep: Option<RightMode>,
        area: &BoxSet,
    ) -> Result<(), Unfit> {
        let (mut read, mut write) = (area.clone(), area.clone());
        for (_, mode, later) in self.grants.iter().filter(|(of, ..)| *of > serial) {
            read.try_subtract(later)?;
            if *mode == RightMode::Write {
                write.try_subtract(later)?;
            }
        }
        self.write.try_subtract(&write)?;
        self.recalled_write.try_subtract(area)?;
        if keep.is_none() {
            self.read.try_subtract(&read)?;
            self.recalled.try_subtract(area)?;
            self.shrinks &= *area != BoxSet::All;
        }
        Ok(())
    }

    /// Adds a right.
    pub(super) fn add(&mut self, serial: RightSerial, mode: RightMode, area: &BoxSet) {
        self.serial = serial;
        self.grants.push_back((serial, mode, area.clone()));
        if self.grants.len() > REMEMBERED {
            self.grants.pop_front();
        }
        let of_write = match mode {
            RightMode::Write => self.write.try_add(area),
            RightMode::Read => Ok(()),
        };
        if self.read.try_add(area).and(of_write).is_err() {
            self.lose_track();
        }
    }

    /// Treats the session as holding everything, until it resets its rights.
    pub(super) fn lose_track(&mut self) {
        self.lost = true;
        self.read = BoxSet::All;
        self.write = BoxSet::All;
        // The session is notified of the end of its epoch instead.
        self.recalled = BoxSet::All;
        self.recalled_write = BoxSet::All;
    }

    /// The number of boxes.
    pub(super) fn len(&self) -> usize {
        self.read.len().max(self.write.len())
    }
}
