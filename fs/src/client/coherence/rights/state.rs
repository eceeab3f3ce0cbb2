//! A mount's rights state of one object: the rights held, the asks sent, the recalls to handle, and the grants
//! received. Pure: the threads that wait and send are in `ask`, `recall` and `reset`.
//!
//! Invariant: this mount may believe to have less than the lock server believes, never more (the parent module
//! describes how the two stay in agreement).

use std::collections::VecDeque;
use std::sync::Arc;

use slabfs_mdserver::api::{
    Entry, Ino, RightArea, RightAsk, RightGive, RightGrant, RightHeld, RightMode, RightRecall,
    RightSerial, RightTicket, RightsEpoch,
};

use super::held::{By, Closing, Held, Want};
use slabfs_model::{BoxSet, Span};

/// Most areas of one object that are retained in the next epoch.
const MOST_HELD: usize = 4;

/// See the module documentation.
#[derive(Debug, Default, Clone)]
pub(super) struct State {
    pub(super) held: Held,
    /// The object is open here.
    pub(super) open: bool,
    pub(super) asks: Vec<Asked>,
    /// Recalls to be handled, in order.
    pub(super) recalls: VecDeque<RightRecall>,
    /// A thread releases rights, or drops pages.
    pub(super) working: bool,
    /// And it began to do so in a session that is lost: the kernel may wait in that drop for pages that it has
    /// requested, and these requests wait for a right of the current session.
    pub(super) stale_work: bool,
    /// Drops of pages that run in the kernel.
    pub(super) drops: usize,
    /// The object was closed while some of them ran: what the kernel reads for its next opening must not be requested
    /// before they have ended.
    pub(super) left_drops: bool,
    /// The last grant received at the time of the last release: a grant up to it that arrives later may have been
    /// released by it.
    pub(super) last_release: RightSerial,
    /// The form that came with the last grant, until it is adopted.
    pub(super) form: Option<Arc<Entry>>,
    /// The lock server reports that the object does not exist.
    pub(super) refused: bool,
}

/// A pending ask.
#[derive(Debug, Clone, Hash)]
pub(super) struct Asked {
    pub(super) ticket: RightTicket,
    pub(super) mode: RightMode,
    pub(super) area: BoxSet,
    /// No reply has arrived yet; after the reply it is queued.
    pub(super) in_flight: bool,
}

impl State {
    pub(super) fn is_idle(&self) -> bool {
        !self.working && self.recalls.is_empty()
    }

    /// The kernel begins to drop pages.
    pub(super) fn drop_begins(&mut self, span: Span) {
        self.drops += 1;
        self.held.drop_begins(span);
    }

    /// It has dropped them.
    pub(super) fn drop_ended(&mut self, span: Span) {
        self.drops -= 1;
        self.left_drops &= self.drops > 0;
        self.held.drop_ended(span);
    }

    /// The current work is done; no thread releases rights now.
    pub(super) fn work_ends(&mut self) {
        self.working = false;
        self.stale_work = false;
    }

    /// Whether a page request of the kernel cannot be granted before the end of a drop that waits for that very page.
    /// The kernel has to repeat the request.
    pub(super) fn is_stuck(&self, want: &Want) -> bool {
        self.stale_work && !self.recalls.is_empty() && want.by == By::PageOut
    }

    /// Whether an ask has to be sent for `want`. None is sent while rights are released, except that leftover work of
    /// a lost session releases nothing.
    pub(super) fn needs_ask(&self, want: &Want) -> bool {
        let idle = self.is_idle() || self.stale_work && self.recalls.is_empty();
        if !idle || self.held.is_closing() || self.held.holds(want) {
            return false;
        }
        let mode = self.held.mode_of(want);
        !self
            .asks
            .iter()
            .any(|ask| ask.mode >= mode && ask.area.covers(&want.area))
    }

    /// Records and returns an ask for `want`.
    pub(super) fn ask(&mut self, ino: Ino, want: &Want, ticket: RightTicket) -> RightAsk {
        let ask = RightAsk {
            ino,
            mode: self.held.mode_of(want),
            area: RightArea::of(&want.area).pop().unwrap_or(RightArea::All),
            ticket,
        };
        self.asks.push(Asked {
            ticket,
            mode: ask.mode,
            area: want.area.clone(),
            in_flight: true,
        });
        ask
    }

    /// The reply to an ask says that it is queued. Its grant may have arrived earlier.
    pub(super) fn queued(&mut self, ticket: RightTicket) {
        if let Some(ask) = self.asks.iter_mut().find(|ask| ask.ticket == ticket) {
            ask.in_flight = false;
        }
    }

    /// An ask is decided, or never will be; returns whether it was pending.
    pub(super) fn decided(&mut self, ticket: RightTicket) -> bool {
        let asks = self.asks.len();
        self.asks.retain(|ask| ask.ticket != ticket);
        self.asks.len() < asks
    }

    /// Whether a recall has to wait: a pending ask may be granted by now, and the operations that wait for it begin
    /// first.
    pub(super) fn is_asking(&self) -> bool {
        self.asks.iter().any(|ask| ask.in_flight)
    }

    /// Removes and returns the asks that are queued at the lock server and that no operation waits for.
    pub(super) fn take_idle_asks(&mut self) -> Vec<RightTicket> {
        let needed = |ask: &Asked| {
            ask.in_flight
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

    /// Records a grant, if its epoch is not over (`heard`); operations that waited for it begin. A grant is ignored
    /// if its ask is not recorded, or if it is unknown how much of it is left; waiting operations ask again.
    pub(super) fn granted(&mut self, heard: bool, grant: RightGrant) {
        let known = self.asks.iter().any(|ask| ask.ticket == grant.ticket);
        if !(heard && known) {
            return;
        }
        self.decided(grant.ticket);
        if grant.serial <= self.last_release {
            return;
        }
        let overlay = |form: &Arc<Entry>| grant.entry.attr.change >= form.attr.change;
        if self.form.as_ref().is_none_or(overlay) {
            self.form = Some(Arc::new(grant.entry));
        }
        self.held.grant(grant.mode, &BoxSet::from(&grant.area));
    }

    /// Removes the closing area and more, except for `held`. `heard`: the last grant received for any object. If
    /// nothing is left, the release names everything: the lock server may believe that there is more (for an object
    /// that was closed a moment ago, for example), and would recall it box by box.
    pub(super) fn take_out(
        &mut self,
        closing: &Closing,
        held: &BoxSet,
        heard: RightSerial,
    ) -> BoxSet {
        self.last_release = heard;
        let given = self.held.take_out(closing, Some(held));
        match self.held.has_any(closing.keep) {
            true => given,
            false => BoxSet::All,
        }
    }

    /// Ends an epoch: no operation begins, and its asks and recalls are void. `alone`: in that epoch everything was
    /// held.
    pub(super) fn end_epoch(&mut self, alone: bool) {
        // The reply to an ask in flight arrives in an epoch that is over.
        self.recalls.clear();
        self.asks.clear();
        if alone {
            self.held.own_all();
        }
        if !self.working {
            self.held.close(everything());
        }
    }

    /// The rights that an object with running operations retains in the next epoch: all that are held. `None` where
    /// that is too many: then the operations are waited for.
    pub(super) fn held(&self, ino: Ino) -> Option<Vec<RightHeld>> {
        let held = |(mode, area)| RightHeld { ino, mode, area };
        let held: Vec<RightHeld> = self.held.to_wire().into_iter().map(held).collect();
        (self.open && held.len() <= MOST_HELD).then_some(held)
    }

    /// Begins an epoch in which nothing is held; the lock server knows that.
    pub(super) fn begin_epoch(&mut self) {
        self.held.lose();
        self.begin_with_held();
    }

    /// Begins an epoch with the rights held in the one before; the lock server knows them. They are less than was
    /// reported if the object was closed meanwhile. Recalls of the epoch before are void.
    pub(super) fn begin_with_held(&mut self) {
        self.recalls.clear();
        self.held.reopen();
        self.last_release = RightSerial::default();
    }

    /// Begins another session: work under way in the name of the old one does not count.
    pub(super) fn begin_session(&mut self) {
        self.begin_epoch();
        self.stale_work = self.working;
        self.asks.clear();
        self.form = None;
        self.refused = false;
    }

    /// The object is closed: its rights are dropped.
    pub(super) fn disown(&mut self) {
        self.open = false;
        self.left_drops |= self.drops > 0;
        self.held.lose();
        self.asks.clear();
        self.form = None;
    }
}

/// All of an object, with nothing retained.
pub(super) fn everything() -> Closing {
    Closing {
        keep: None,
        area: BoxSet::All,
    }
}

/// The releases that name `given`.
pub(super) fn releases(
    ino: Ino,
    closing: &Closing,
    given: &BoxSet,
    serial: RightSerial,
) -> Vec<RightGive> {
    let give = |area: RightArea| RightGive {
        ino,
        serial,
        keep: closing.keep,
        area,
    };
    RightArea::of(given).into_iter().map(give).collect()
}

/// The latest grant received in an epoch, for any object.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct LastGrant {
    epoch: RightsEpoch,
    heard: RightSerial,
}

impl LastGrant {
    /// The epoch.
    pub(super) fn epoch(&self) -> RightsEpoch {
        self.epoch
    }

    /// At the beginning of an epoch.
    pub(super) fn of(epoch: RightsEpoch) -> LastGrant {
        LastGrant {
            epoch,
            heard: RightSerial::default(),
        }
    }

    /// Records that a grant was received; false if its epoch is over.
    pub(super) fn hear(&mut self, epoch: RightsEpoch, serial: RightSerial) -> bool {
        let counts = self.epoch == epoch;
        if counts {
            self.heard = self.heard.max(serial);
        }
        counts
    }

    /// The latest grant received in an epoch, if that is not over.
    pub(super) fn heard(&self, epoch: RightsEpoch) -> Option<RightSerial> {
        (self.epoch == epoch).then_some(self.heard)
    }
}
