//! What a mount knows of its rights on one object: what it holds, what it has asked for, what it is to give, and
//! how far it has heard of grants. Pure: the threads that wait and send are in `ask`, `recall` and `reset`.
//!
//! What holds: this mount may believe to have less than the lock server believes, never more (the module above tells
//! how the two are kept together).

use std::collections::VecDeque;
use std::sync::Arc;

use slabfs_mdserver::api::{
    Entry, Ino, RightArea, RightAsk, RightGive, RightGrant, RightHeld, RightMode, RightRecall,
    RightSerial, RightTicket, RightsEpoch,
};

use super::cells::Cells;
use super::held::{By, Closing, Held, Want};

/// Most areas of one object that are taken along into the next epoch.
const MOST_KEPT: usize = 4;

/// See the module's head.
#[derive(Debug, Default, Clone)]
pub(super) struct State {
    pub(super) held: Held,
    /// The object is open here.
    pub(super) open: bool,
    pub(super) asks: Vec<Asked>,
    /// To be taken back, in order.
    pub(super) recalls: VecDeque<RightRecall>,
    /// Somebody takes back, or drops pages.
    pub(super) working: bool,
    /// And has begun so in a session that is lost: the kernel may wait there for pages that it has asked for, and
    /// these wait for a right of the session that goes on.
    pub(super) old_work: bool,
    /// The last grant that counted when something was given: an earlier one that comes after that may have been
    /// given by it.
    pub(super) gave: RightSerial,
    /// The form that came with the last grant, until it is taken over.
    pub(super) form: Option<Arc<Entry>>,
    /// The object is gone, as the lock server says.
    pub(super) refused: bool,
}

/// An ask that is not decided.
#[derive(Debug, Clone, Hash)]
pub(super) struct Asked {
    pub(super) ticket: RightTicket,
    pub(super) mode: RightMode,
    pub(super) area: Cells,
    /// It has not been answered; if it has, it is queued.
    pub(super) in_air: bool,
}

impl State {
    pub(super) fn is_idle(&self) -> bool {
        !self.working && self.recalls.is_empty()
    }

    /// What was done is done; nobody takes back any more.
    pub(super) fn work_ends(&mut self) {
        self.working = false;
        self.old_work = false;
    }

    /// Whether a page that the kernel has asked for cannot be had before a drop has ended that waits for just
    /// that. It has to ask anew.
    pub(super) fn is_stuck(&self, want: &Want) -> bool {
        self.old_work && !self.recalls.is_empty() && want.by == By::PageOut
    }

    /// Whether somebody has to ask for what `want` wants. Nothing is asked while something is taken back, but
    /// what is left of a lost session takes nothing back.
    pub(super) fn is_to_be_asked(&self, want: &Want) -> bool {
        let idle = self.is_idle() || self.old_work && self.recalls.is_empty();
        if !idle || self.held.is_closing() || self.held.holds(want) {
            return false;
        }
        let mode = self.held.mode_of(want);
        !self
            .asks
            .iter()
            .any(|ask| ask.mode >= mode && ask.area.covers(&want.area))
    }

    /// Asks for what `want` wants.
    pub(super) fn ask(&mut self, ino: Ino, want: &Want, ticket: RightTicket) -> RightAsk {
        let ask = RightAsk {
            ino,
            mode: self.held.mode_of(want),
            area: want.area.to_wire().pop().unwrap_or(RightArea::All),
            ticket,
        };
        self.asks.push(Asked {
            ticket,
            mode: ask.mode,
            area: want.area.clone(),
            in_air: true,
        });
        ask
    }

    /// An ask was answered: it waits. Its grant may have been faster.
    pub(super) fn queued(&mut self, ticket: RightTicket) {
        if let Some(ask) = self.asks.iter_mut().find(|ask| ask.ticket == ticket) {
            ask.in_air = false;
        }
    }

    /// An ask is decided, or will not be; says whether it was not before.
    pub(super) fn decided(&mut self, ticket: RightTicket) -> bool {
        let asks = self.asks.len();
        self.asks.retain(|ask| ask.ticket != ticket);
        self.asks.len() < asks
    }

    /// Whether a recall has to wait: what was asked may be granted by now, and those that wait for it begin
    /// first.
    pub(super) fn is_asking(&self) -> bool {
        self.asks.iter().any(|ask| ask.in_air)
    }

    /// Asks that are queued at the lock server and that nobody waits for any more; they are taken out.
    pub(super) fn take_idle_asks(&mut self) -> Vec<RightTicket> {
        let needed = |ask: &Asked| {
            ask.in_air
                || self
                    .held
                    .waiting()
                    .any(|want| ask.mode >= self.held.mode_of(want) && ask.area.covers(&want.area))
        };
        let idle: Vec<RightTicket> = self
            .asks
            .iter()
            .filter(|ask| !needed(ask))
            .map(|ask| ask.ticket)
            .collect();
        self.asks.retain(|ask| !idle.contains(&ask.ticket));
        idle
    }

    /// Takes in a grant, if its epoch is not over (`heard`); those that waited for it begin. One that nobody
    /// remembers counts for nothing, and so does one of which it is not known what is left: who waits for it
    /// asks again.
    pub(super) fn granted(&mut self, heard: bool, grant: RightGrant) {
        let known = self.asks.iter().any(|ask| ask.ticket == grant.ticket);
        if !(heard && known) {
            return;
        }
        self.decided(grant.ticket);
        if grant.serial <= self.gave {
            return;
        }
        let overlay = |form: &Arc<Entry>| grant.entry.attr.change >= form.attr.change;
        if self.form.as_ref().is_none_or(overlay) {
            self.form = Some(Arc::new(grant.entry));
        }
        self.held.grant(grant.mode, &Cells::from(&grant.area));
    }

    /// Takes out what is closing and more, but nothing of `held`. `heard`: the last grant of any object. Where
    /// nothing is left all is said to be given: the lock server may believe that there is more (of an object that was
    /// closed a moment ago, say), and would recall it box by box.
    pub(super) fn take_out(
        &mut self,
        closing: &Closing,
        held: &Cells,
        heard: RightSerial,
    ) -> Cells {
        self.gave = heard;
        let given = self.held.take_out(closing, Some(held));
        match self.held.has_any(closing.keep) {
            true => given,
            false => Cells::All,
        }
    }

    /// An epoch is over; nothing begins, and of what was asked and recalled in it nothing is left to do. `alone`:
    /// in that epoch everything was held.
    pub(super) fn end_epoch(&mut self, alone: bool) {
        // An ask that is on its way is answered in an epoch that is over.
        self.recalls.clear();
        self.asks.clear();
        if alone {
            self.held.own_all();
        }
        if !self.working {
            self.held.close(everything());
        }
    }

    /// What of the object goes into the next epoch, where something runs that nobody waits for: all that is held.
    /// Nothing where that does not fit: it is waited for then.
    pub(super) fn held(&self, ino: Ino) -> Option<Vec<RightHeld>> {
        let held = |(mode, area)| RightHeld { ino, mode, area };
        let held: Vec<RightHeld> = self.held.to_wire().into_iter().map(held).collect();
        (self.open && held.len() <= MOST_KEPT).then_some(held)
    }

    /// Nothing is held, and the lock server has heard so.
    pub(super) fn begin_epoch(&mut self) {
        self.held.lose();
        self.begin_with_held();
    }

    /// What is held by now was held in the epoch before, and the lock server has heard so. It is less than was said where
    /// the object was closed meanwhile, and nothing of what was recalled in the epoch before is left to do.
    pub(super) fn begin_with_held(&mut self) {
        self.recalls.clear();
        self.held.reopen();
        self.gave = RightSerial::default();
    }

    /// The session is another one: what was under way in the name of the old one does not count.
    pub(super) fn begin_session(&mut self) {
        self.begin_epoch();
        self.old_work = self.working;
        self.asks.clear();
        self.form = None;
        self.refused = false;
    }

    /// The object is closed: nothing is held of it any more.
    pub(super) fn disown(&mut self) {
        self.open = false;
        self.held.lose();
        self.asks.clear();
        self.form = None;
    }
}

/// All of an object, of which nothing may stay.
pub(super) fn everything() -> Closing {
    Closing {
        keep: None,
        area: Cells::All,
    }
}

/// What is said of `given`, in as many givings as it takes.
pub(super) fn givings(
    ino: Ino,
    closing: &Closing,
    given: &Cells,
    serial: RightSerial,
) -> Vec<RightGive> {
    let give = |area: RightArea| RightGive {
        ino,
        serial,
        keep: closing.keep,
        area,
    };
    given.to_wire().into_iter().map(give).collect()
}

/// The latest grant of any object that was heard in an epoch.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Line {
    epoch: u64,
    heard: RightSerial,
}

impl Line {
    /// At the beginning of an epoch.
    pub(super) fn of(epoch: RightsEpoch) -> Line {
        Line {
            epoch: epoch.0,
            heard: RightSerial::default(),
        }
    }

    /// A grant has been heard; false if its epoch is over.
    pub(super) fn hear(&mut self, epoch: RightsEpoch, serial: RightSerial) -> bool {
        let counts = self.epoch == epoch.0;
        if counts {
            self.heard = self.heard.max(serial);
        }
        counts
    }

    /// The latest grant that was heard in an epoch, if that is not over.
    pub(super) fn heard(&self, epoch: RightsEpoch) -> Option<RightSerial> {
        (self.epoch == epoch.0).then_some(self.heard)
    }
}
