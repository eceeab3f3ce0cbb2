//! Which whole-file locks may end in a moment, since a descriptor of their file was closed.
//!
//! What is kept is of the last [`ENDING`], whatever is told.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::table::{Holder, Place};

/// How long who asks for a lock and does not want to wait waits for the end of one whose file was closed.
const ENDING: Duration = Duration::from_secs(1);

/// Whole-file locks that may end in a moment, and until when that is waited for.
#[derive(Debug, Default)]
pub(super) struct Ending {
    until: HashMap<(Place, Holder), Instant>,
    /// In the order in which that is over. Some are not waited for any more, or for longer.
    order: VecDeque<(Instant, (Place, Holder))>,
}

impl Ending {
    /// Notes that a lock may end soon.
    pub(super) fn note(&mut self, lock: (Place, Holder), now: Instant) {
        while let Some((until, _)) = self.order.front()
            && *until <= now
            && let Some((until, lock)) = self.order.pop_front()
        {
            if self.until.get(&lock) == Some(&until) {
                self.until.remove(&lock);
            }
        }
        self.order.push_back((now + ENDING, lock.clone()));
        self.until.insert(lock, now + ENDING);
    }

    /// A lock has ended, or is not about to.
    pub(super) fn forget(&mut self, place: &Place, holder: Holder) {
        if !self.until.is_empty() {
            self.until.remove(&(place.clone(), holder));
        }
    }

    /// A session has none any more.
    pub(super) fn forget_session(&mut self, session: SessionId) {
        self.until
            .retain(|(_, holder), _| holder.session != session);
    }

    /// When all of these will have ended; none if one of them is not about to.
    pub(super) fn all_end(
        &self,
        place: &Place,
        holders: &[Holder],
        now: Instant,
    ) -> Option<Instant> {
        let until = |&holder: &Holder| self.until.get(&(place.clone(), holder)).copied();
        let all: Option<Vec<Instant>> = holders.iter().map(until).collect();
        let all = all?;
        all.iter()
            .all(|until| *until > now)
            .then(|| all.into_iter().max())
            .flatten()
    }
}
