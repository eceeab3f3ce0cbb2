//! `flock` locks that may end in a moment, since a descriptor of their file was closed, and the non-blocking
//! requests that wait for that.
//!
//! These requests are in no queue: no other request waits for them. Both sets are bounded: closes are remembered for
//! [`ENDING`], and only of locked files; beyond [`MOST_A_FILE`] and [`MOST`], requests are refused at once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::table::{Holder, Place, Wanted};
use crate::api::LockTicket;

/// How long a non-blocking request waits for a lock whose file was closed.
const ENDING: Duration = Duration::from_secs(1);
/// A close this soon after another of the same file adds nothing.
const SOON: Duration = Duration::from_millis(100);
/// Most such requests per file, and in total.
const MOST_A_FILE: usize = 64;
const MOST: usize = 4096;

/// `flock` locks that may end in a moment, and until when requests wait for them.
#[derive(Debug, Default)]
pub(super) struct Ending {
    until: HashMap<Place, HashMap<Holder, Instant>>,
    /// In order of expiry. Entries may be stale: removed, or extended since.
    order: VecDeque<(Instant, Place, Holder)>,
}

impl Ending {
    /// Records that a lock may end soon.
    pub(super) fn note(&mut self, place: Place, holder: Holder, now: Instant) {
        while let Some((until, ..)) = self.order.front()
            && *until <= now
            && let Some((until, place, holder)) = self.order.pop_front()
        {
            if self.until_of(&place, holder) == Some(until) {
                self.forget(&place, holder);
            }
        }
        let until = now + ENDING;
        let before = self.until_of(&place, holder);
        if before.is_some_and(|before| until - SOON < before) {
            return;
        }
        self.order.push_back((until, place.clone(), holder));
        self.until.entry(place).or_default().insert(holder, until);
    }

    fn until_of(&self, place: &Place, holder: Holder) -> Option<Instant> {
        self.until.get(place)?.get(&holder).copied()
    }

    /// A lock has ended, or is not about to end.
    pub(super) fn forget(&mut self, place: &Place, holder: Holder) {
        if let Some(holders) = self.until.get_mut(place) {
            holders.remove(&holder);
            if holders.is_empty() {
                self.until.remove(place);
            }
        }
    }

    /// Removes the locks of a session.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.until.retain(|_, holders| {
            holders.retain(|holder, _| holder.session != session);
            !holders.is_empty()
        });
    }

    /// When all of these locks will have ended; `None` if one of them is not about to end, or if there are none.
    pub(super) fn all_end(
        &self,
        place: &Place,
        holders: &[Holder],
        now: Instant,
    ) -> Option<Instant> {
        let known = self.until.get(place)?;
        let mut last = None;
        for holder in holders {
            let until = *known.get(holder)?;
            if until <= now {
                return None;
            }
            last = last.max(Some(until));
        }
        last
    }
}

/// A non-blocking request that waits for locks that are ending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Try {
    pub(super) session: SessionId,
    /// It is decided at this time in any case.
    pub(super) until: Instant,
    pub(super) wanted: Wanted,
}

/// All waiting non-blocking requests, by file.
#[derive(Debug, Default)]
pub(super) struct Tries {
    places: HashMap<Place, Vec<Try>>,
    count: usize,
}

impl Tries {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a request; returns false if there are too many.
    pub(super) fn add(&mut self, place: &Place, tried: Try) -> bool {
        let here = self.places.get(place).map_or(0, Vec::len);
        if here >= MOST_A_FILE || self.count >= MOST {
            return false;
        }
        self.places.entry(place.clone()).or_default().push(tried);
        self.count += 1;
        true
    }

    /// Removes all requests for one file and returns them in order of arrival.
    pub(super) fn take(&mut self, place: &Place) -> Vec<Try> {
        let all = self.places.remove(place).unwrap_or_default();
        self.count -= all.len();
        all
    }

    /// Cancels a request; returns whether it was there.
    pub(super) fn cancel(&mut self, session: SessionId, ticket: LockTicket) -> bool {
        let is_it = |tried: &Try| tried.session == session && tried.wanted.ticket == ticket;
        !self.take_where(is_it).is_empty()
    }

    /// Removes and returns the requests of a session whose time is over.
    pub(super) fn take_late(&mut self, session: SessionId, now: Instant) -> Vec<(Place, Try)> {
        self.take_where(|tried| tried.session == session && tried.until <= now)
    }

    /// Removes the requests of a session.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.take_where(|tried| tried.session == session);
    }

    fn take_where(&mut self, which: impl Fn(&Try) -> bool) -> Vec<(Place, Try)> {
        let mut taken = Vec::new();
        if self.count == 0 {
            return taken;
        }
        self.places.retain(|place, all| {
            let these = all.extract_if(.., |tried| which(tried));
            taken.extend(these.map(|tried| (place.clone(), tried)));
            !all.is_empty()
        });
        self.count -= taken.len();
        taken
    }

    /// When the time of a session's first request is over.
    pub(super) fn first_end(&self, session: SessionId) -> Option<Instant> {
        let all = self.places.values().flatten();
        let its = all.filter(|tried| tried.session == session);
        its.map(|tried| tried.until).min()
    }

    /// All files with waiting requests.
    pub(super) fn places(&self) -> Vec<Place> {
        self.places.keys().cloned().collect()
    }
}
