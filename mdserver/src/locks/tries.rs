//! Non-blocking requests for `flock` locks: refused at once, unless every conflicting lock may be ending. `ending`
//! records which locks may end.

use std::time::Instant;

use slabfs_model::SessionId;

use super::ending::Try;
use super::server::State;
use super::table::{Holder, Place, Wanted};
use crate::api::{LockKind, LockOutcome, LockReply};

impl State {
    /// Records that a descriptor of an owner's file was closed.
    pub(super) fn ends_soon(&mut self, place: Place, holder: Holder) {
        if place.kind != LockKind::File || !self.table.has(&place, holder) {
            return;
        }
        self.ending.note(place, holder, Instant::now());
    }

    /// Serves a non-blocking request; it waits only for locks that are ending.
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
        // A poll that already runs must check again at that time.
        mine.wake.notify_all();
        LockReply::Queued { change }
    }

    /// Refuses the requests of a session whose time is over.
    pub(super) fn refuse_late(&mut self, session: SessionId) {
        for (place, tried) in self.tries.take_late(session, Instant::now()) {
            self.try_last(&place, &tried);
        }
    }

    /// Decides a request that waits no longer.
    fn try_last(&mut self, place: &Place, tried: &Try) {
        let Try {
            session, wanted, ..
        } = *tried;
        if let LockReply::Decided { outcome, change } = self.lock(session, place, wanted, false) {
            self.mine(session).notify(wanted.ticket, outcome, change);
        }
    }

    /// Retries the requests for locks on a file: some locks were released, or granted. A request that conflicts with
    /// a lock that is not ending is refused.
    pub(super) fn try_again(&mut self, place: &Place) {
        for tried in self.tries.take(place) {
            let in_the_way = self.table.holders_in_the_way(place, &tried.wanted);
            let now = Instant::now();
            let waits = self.ending.all_end(place, &in_the_way, now).is_some();
            if !(waits && self.tries.add(place, tried)) {
                self.try_last(place, &tried);
            }
        }
        self.notify_decided();
    }

    pub(super) fn try_all_again(&mut self) {
        for place in self.tries.places() {
            self.try_again(&place);
        }
    }
}
