//! Non-blocking requests for `flock` locks: refused at once, unless every conflicting lock may end in a moment, since a
//! descriptor of its file was closed.
//!
//! Those that wait for that are in no queue: no other request waits for them. They are bounded: a close is remembered for
//! [`ENDING`], and only with a lock that is held; beyond [`MOST_A_FILE`] and [`MOST`], requests are refused at once.

use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::server::State;
use super::table::{Holder, Place, Wanted};
use crate::api::{LockKind, LockOutcome, LockReply, LockTicket};

/// How long a non-blocking request waits for a lock whose file was closed.
const ENDING: Duration = Duration::from_secs(1);
/// Most such requests per file, and in total.
const MOST_A_FILE: usize = 64;
const MOST: usize = 4096;

/// A non-blocking request that waits for locks that are ending.
#[derive(Debug)]
struct Try {
    place: Place,
    /// It is decided at this time in any case.
    until: Instant,
    wanted: Wanted,
}

impl Try {
    fn is_of(&self, session: SessionId) -> bool {
        self.wanted.holder.session == session
    }
}

/// All waiting non-blocking requests, in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Tries(Vec<Try>);

impl Tries {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are not too many for another one.
    fn has_room(&self, place: &Place) -> bool {
        let here = self.0.iter().filter(|tried| tried.place == *place);
        self.0.len() < MOST && here.count() < MOST_A_FILE
    }

    fn take(&mut self, which: impl Fn(&Try) -> bool) -> Vec<Try> {
        self.0.extract_if(.., |tried| which(tried)).collect()
    }

    /// Cancels a request; returns whether it was there.
    pub(super) fn cancel(&mut self, session: SessionId, ticket: LockTicket) -> bool {
        let is_it = |tried: &Try| tried.is_of(session) && tried.wanted.ticket == ticket;
        !self.take(is_it).is_empty()
    }

    /// Removes the requests of a session.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.take(|tried| tried.is_of(session));
    }

    /// When the time of a session's first request is over.
    pub(super) fn first_end(&self, session: SessionId) -> Option<Instant> {
        let its = self.0.iter().filter(|tried| tried.is_of(session));
        its.map(|tried| tried.until).min()
    }
}

impl State {
    /// Records that a descriptor of an owner's file was closed.
    pub(super) fn ends_soon(&mut self, place: &Place, holder: Holder) {
        if place.kind == LockKind::File {
            self.table.ends(place, holder, Instant::now() + ENDING);
        }
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
        let Some(until) = self.table.all_end(place, &wanted, Instant::now()) else {
            return reply;
        };
        if !self.tries.has_room(place) {
            return reply;
        }
        self.tries.0.push(Try {
            place: place.clone(),
            until,
            wanted,
        });
        let mine = self.mine(session);
        mine.waiting.insert(wanted.ticket);
        // A poll that already runs must check again at that time.
        mine.channel.wake();
        LockReply::Queued { change }
    }

    /// Refuses the requests of a session whose time is over.
    pub(super) fn refuse_late(&mut self, session: SessionId) {
        let now = Instant::now();
        let is_late = |tried: &Try| tried.is_of(session) && tried.until <= now;
        for tried in self.tries.take(is_late) {
            self.try_last(&tried);
        }
    }

    /// Decides a request that waits no longer.
    fn try_last(&mut self, tried: &Try) {
        let wanted = tried.wanted;
        let session = wanted.holder.session;
        let reply = self.lock(session, &tried.place, wanted, false);
        if let LockReply::Decided { outcome, change } = reply {
            self.mine(session).notify(wanted.ticket, outcome, change);
        }
    }

    /// Retries the requests for locks on a file, or on any: some locks were released, or granted. A request that
    /// conflicts with a lock that is not ending is refused.
    pub(super) fn try_again(&mut self, place: Option<&Place>) {
        let is_there = |tried: &Try| place.is_none_or(|place| tried.place == *place);
        for tried in self.tries.take(is_there) {
            let now = Instant::now();
            let waits = self.table.all_end(&tried.place, &tried.wanted, now);
            match waits.is_some() && self.tries.has_room(&tried.place) {
                true => self.tries.0.push(tried),
                false => self.try_last(&tried),
            }
        }
        self.notify_decided();
    }
}
