//! What one session has of one object, what was recalled of that, and what a giving takes.

use std::collections::VecDeque;

use super::area::{Area, Unfit};
use crate::api::{RightMode, RightSerial};

/// Grants of an object that are remembered: more than there are ever made to a session while it gives something.
const REMEMBERED: usize = 64;

/// What a session has of an object.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Held {
    /// Cells that it may read, at least.
    pub(super) read: Area,
    /// Those of them that it may write.
    pub(super) write: Area,
    /// Cells of `read` that were recalled, and those of `write` of which only reading may stay.
    pub(super) recalled: Area,
    pub(super) recalled_write: Area,
    /// Of its last grant.
    pub(super) serial: RightSerial,
    /// Its last grants: a giving may have been sent before they were heard of.
    grants: VecDeque<(RightSerial, RightMode, Area)>,
    /// All of it was recalled for its many boxes.
    pub(super) shrinks: bool,
    /// It is not known any more.
    pub(super) lost: bool,
}

impl Held {
    /// What goes against somebody else's right.
    pub(super) fn against(&self, mode: RightMode) -> &Area {
        match mode {
            RightMode::Read => &self.write,
            RightMode::Write => &self.read,
        }
    }

    /// The part of what goes against an ask that was not recalled yet; notes it as recalled.
    pub(super) fn recall(&mut self, mode: RightMode, area: &Area) -> Area {
        let mut fresh = self.against(mode).within(area);
        // Recalling something twice would harm nobody.
        let _ = fresh.subtract(&self.recalled);
        let noted = match mode {
            RightMode::Write => &mut self.recalled,
            RightMode::Read => {
                let _ = fresh.subtract(&self.recalled_write);
                &mut self.recalled_write
            }
        };
        // Parts of one holding, so of one rank.
        let _ = noted.add(&fresh);
        fresh
    }

    /// Takes rights away, but none that came with a grant after `serial`: those were not known to be had.
    pub(super) fn give(&mut self, serial: RightSerial, keep: Option<RightMode>, area: &Area) {
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
        area: &Area,
    ) -> Result<(), Unfit> {
        let (mut read, mut write) = (area.clone(), area.clone());
        for (_, mode, later) in self.grants.iter().filter(|(of, ..)| *of > serial) {
            read.subtract(later)?;
            if *mode == RightMode::Write {
                write.subtract(later)?;
            }
        }
        self.write.subtract(&write)?;
        self.recalled_write.subtract(area)?;
        if keep.is_none() {
            self.read.subtract(&read)?;
            self.recalled.subtract(area)?;
            self.shrinks &= *area != Area::All;
        }
        Ok(())
    }

    /// Adds a right.
    pub(super) fn add(&mut self, serial: RightSerial, mode: RightMode, area: &Area) {
        self.serial = serial;
        self.grants.push_back((serial, mode, area.clone()));
        if self.grants.len() > REMEMBERED {
            self.grants.pop_front();
        }
        let of_write = match mode {
            RightMode::Write => self.write.add(area),
            RightMode::Read => Ok(()),
        };
        if self.read.add(area).and(of_write).is_err() {
            self.lose_track();
        }
    }

    /// From here on it may have anything, until it begins anew.
    pub(super) fn lose_track(&mut self) {
        self.lost = true;
        self.read = Area::All;
        self.write = Area::All;
        // It will hear of the end of its epoch instead.
        self.recalled = Area::All;
        self.recalled_write = Area::All;
    }

    /// How many boxes it takes.
    pub(super) fn len(&self) -> usize {
        self.read.len().max(self.write.len())
    }
}
