//! The state of one strict session.

use std::time::Instant;

use super::table::Granted;
use crate::api::{Ino, RightRecall, RightTicket, RightsEpoch};
use crate::sessions::channel::Channel;

/// Number of unfetched events above which the session gets no more queries.
const MOST_UNFETCHED: usize = 1 << 14;
/// A queued event. The object that it describes is read when the event is fetched.
#[derive(Debug, Clone, Hash)]
pub(super) enum Pending {
    Granted(Granted),
    Refused(RightTicket),
    Recall(RightRecall),
    Size { ino: Ino, question: u64 },
    Names { inos: Vec<Ino>, change: u64 },
}

/// A strict session.
#[derive(Debug, Clone)]
pub(super) struct Mine {
    /// When its epoch is over, it has to reset its rights.
    pub(super) channel: Channel<Pending>,
    /// Whether the session was alone when its current epoch began, or the one that is over.
    pub(super) alone: bool,
    /// Since when its epoch is over, if it had one on this lock server.
    pub(super) over_since: Option<Instant>,
    /// The session has ended, and may have writes in flight.
    pub(super) ended: bool,
}

impl Mine {
    pub(super) fn new(epoch: RightsEpoch, alone: bool) -> Self {
        Self {
            channel: Channel::new(epoch),
            alone,
            over_since: None,
            ended: false,
        }
    }

    /// A session of which nothing is known: it has to reset its rights.
    pub(super) fn unknown() -> Self {
        Self {
            channel: Channel::unknown(),
            ..Self::new(RightsEpoch::UNKNOWN, true)
        }
    }

    /// Begins an epoch.
    pub(super) fn begin(&mut self, epoch: RightsEpoch, alone: bool) {
        self.channel.begin(epoch);
        self.alone = alone;
        self.over_since = None;
    }

    /// Ends its epoch; it has to reset its rights.
    pub(super) fn end_epoch(&mut self) {
        self.channel.end();
        self.over_since.get_or_insert_with(Instant::now);
    }

    /// Whether it may hold anything without a right that the lock server knows.
    pub(super) fn is_unknown(&self) -> bool {
        self.channel.is_over() && self.alone
    }

    /// Whether it is alive and within an epoch.
    pub(super) fn is_active(&self) -> bool {
        !self.channel.is_over() && !self.ended
    }

    /// Whether it can be queried: it is alive, and fetches its events.
    pub(super) fn listens(&self) -> bool {
        !self.ended && self.channel.events().len() < MOST_UNFETCHED
    }

    /// Queues an event.
    pub(super) fn notify(&mut self, what: Pending) {
        if self.is_active() {
            self.channel.notify(what);
        }
    }

    /// Replaces unfetched grants of an object by refusals: the session closes it.
    pub(super) fn drop_grants(&mut self, ino: Ino) {
        for event in self.channel.events_mut() {
            if let Pending::Granted(granted) = &event.kind
                && granted.ino == ino
            {
                event.kind = Pending::Refused(granted.ticket);
            }
        }
    }
}
