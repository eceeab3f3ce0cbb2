//! Who asks for a whole-file lock and does not want to wait: refused at once, but where all that is in the way may be
//! ending. What ends is in `ending`.

use std::time::Instant;

use slabfs_model::SessionId;

use super::ending::Try;
use super::server::State;
use super::table::{Holder, Place, Wanted};
use crate::api::{LockKind, LockOutcome, LockReply};

impl State {
    /// Notes that a descriptor of an owner's file was closed.
    pub(super) fn ends_soon(&mut self, place: Place, holder: Holder) {
        if place.kind != LockKind::Whole || !self.table.has(&place, holder) {
            return;
        }
        self.ending.note(place, holder, Instant::now());
    }

    /// A lock for somebody who does not want to wait; who does so only for locks that are ending.
    pub(super) fn lock_at_once(
        &mut self,
        session: SessionId,
        place: &Place,
        wanted: Wanted,
    ) -> LockReply {
        let reply = self.lock(session, place, wanted, false);
        let LockReply::Decided {
            outcome: LockOutcome::Held(_),
            change,
        } = reply
        else {
            return reply;
        };
        let in_the_way = self.table.holders_in_the_way(place, &wanted);
        let now = Instant::now();
        let Some(until) = self.ending.all_end(place, &in_the_way, now) else {
            return reply;
        };
        let ticket = wanted.ticket;
        let tried = Try {
            session,
            until,
            wanted,
        };
        if !self.tries.add(place, tried) {
            return reply;
        }
        let mine = self.mine(session);
        mine.waiting.insert(ticket);
        // Whoever polls for it already is to look when it is over.
        mine.wake.notify_all();
        LockReply::Queued { change }
    }

    /// Refuses those of a session that did not want to wait and have waited for long enough.
    pub(super) fn refuse_late(&mut self, session: SessionId) {
        for (place, tried) in self.tries.take_late(session, Instant::now()) {
            self.try_last(&place, &tried);
        }
    }

    /// Decides for somebody who waits no more.
    fn try_last(&mut self, place: &Place, tried: &Try) {
        let Try {
            session, wanted, ..
        } = *tried;
        if let LockReply::Decided { outcome, change } = self.lock(session, place, wanted, false) {
            self.mine(session).tell(wanted.ticket, outcome, change);
        }
    }

    /// Lets those who try for locks on a file try again: some were given up, or given to others. Who meets one that
    /// is not ending is refused.
    pub(super) fn try_again(&mut self, place: &Place) {
        for tried in self.tries.take(place) {
            let in_the_way = self.table.holders_in_the_way(place, &tried.wanted);
            let now = Instant::now();
            let waits = self.ending.all_end(place, &in_the_way, now).is_some();
            if !(waits && self.tries.add(place, tried)) {
                self.try_last(place, &tried);
            }
        }
        self.tell_decided();
    }

    pub(super) fn try_all_again(&mut self) {
        for place in self.tries.places() {
            self.try_again(&place);
        }
    }
}
