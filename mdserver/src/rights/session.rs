//! The state of one strict session: its epoch, its event queue, and its reply cache.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Condvar;

use super::table::Granted;
use crate::api::{Ino, MdError, Reply, RightRecall, RightTicket, RightsEpoch};

/// Most events in one reply.
const MOST_EVENTS: usize = 256;
/// Number of unfetched events above which the session gets no more queries.
const MOST_UNFETCHED: usize = 1 << 14;
/// Most replies in the cache; the oldest are dropped first.
const MOST_CACHED: usize = 100_000;

/// A queued event. The object that it describes is read when the event is fetched.
#[derive(Debug, Clone, Hash)]
pub(super) enum Pending {
    Granted(Granted),
    Refused(RightTicket),
    Recall(RightRecall),
    Size { ino: Ino, question: u64 },
    Names { inos: Vec<Ino>, change: u64 },
}

/// The result of a poll.
#[derive(Debug)]
pub(super) enum Heard {
    Events(Vec<(u64, Pending)>),
    /// The epoch is over.
    Reset,
}

/// The sequence number of a request, by which a resend is recognised; 0 where there are no resends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) seq: u64,
    pub(super) done_below: u64,
}

/// A strict session.
#[derive(Debug, Clone)]
pub(super) struct Mine {
    /// Its current epoch, or the one that is over, and whether the session was alone when that epoch began.
    pub(super) epoch: RightsEpoch,
    pub(super) alone: bool,
    /// It has to reset its rights.
    pub(super) over: bool,
    /// Since when, if it had an epoch on this lock server.
    pub(super) over_since: Option<Instant>,
    /// The session has ended, and may have writes in flight.
    pub(super) ended: bool,
    /// Number of events so far, and those that it has not acknowledged.
    events: u64,
    pub(super) news: VecDeque<(u64, Pending)>,
    pub(super) wake: Arc<Condvar>,
    /// Sequence number of its last reset.
    reset: u64,
    /// Reply cache; no request with a sequence number below `floor` is resent.
    replies: BTreeMap<u64, Reply>,
    floor: u64,
}

impl Mine {
    pub(super) fn new(epoch: RightsEpoch, alone: bool) -> Self {
        Self {
            epoch,
            alone,
            over: false,
            over_since: None,
            ended: false,
            events: 0,
            news: VecDeque::new(),
            wake: Arc::default(),
            reset: 0,
            replies: BTreeMap::new(),
            floor: 0,
        }
    }

    /// A session of which nothing is known: it has to reset its rights.
    pub(super) fn unknown() -> Self {
        Self {
            over: true,
            ..Self::new(RightsEpoch::UNKNOWN, true)
        }
    }

    /// Begins an epoch.
    pub(super) fn begin(&mut self, epoch: RightsEpoch, alone: bool) {
        self.epoch = epoch;
        self.alone = alone;
        self.over = false;
        self.over_since = None;
        self.events = 0;
        self.news.clear();
        self.wake.notify_all();
    }

    /// Ends its epoch; it has to reset its rights.
    pub(super) fn end_epoch(&mut self) {
        self.over = true;
        self.over_since.get_or_insert_with(Instant::now);
        self.news.clear();
        self.wake.notify_all();
    }

    /// Whether it may hold anything without a right that the lock server knows.
    pub(super) fn is_unknown(&self) -> bool {
        self.over && self.alone
    }

    /// Whether it can be queried: it is alive, and fetches its events.
    pub(super) fn listens(&self) -> bool {
        !self.ended && self.news.len() < MOST_UNFETCHED
    }

    /// Queues an event.
    pub(super) fn notify(&mut self, what: Pending) {
        if self.over || self.ended {
            return;
        }
        self.events += 1;
        self.news.push_back((self.events, what));
        self.wake.notify_all();
    }

    /// Drops the events up to number `seen`, which are acknowledged.
    pub(super) fn has(&mut self, seen: u64) {
        while self.news.front().is_some_and(|(number, _)| *number <= seen) {
            self.news.pop_front();
        }
    }

    /// The events that fit in one reply.
    pub(super) fn next(&self) -> Vec<(u64, Pending)> {
        self.news.iter().take(MOST_EVENTS).cloned().collect()
    }

    /// Replaces unfetched grants of an object by refusals: the session closes it.
    pub(super) fn drop_grants(&mut self, ino: Ino) {
        for (_, event) in &mut self.news {
            if let Pending::Granted(granted) = event
                && granted.ino == ino
            {
                *event = Pending::Refused(granted.ticket);
            }
        }
    }

    /// Whether a reset is no older than the last one.
    pub(super) fn resets(&mut self, seq: u64) -> bool {
        let newer = seq >= self.reset;
        self.reset = self.reset.max(seq);
        newer
    }

    /// The cached reply, if the request was already answered.
    pub(super) fn answered(&mut self, number: Number) -> Result<Option<Reply>, MdError> {
        if number.seq == 0 {
            return Ok(None);
        }
        self.floor = self.floor.max(number.done_below);
        self.replies = self.replies.split_off(&self.floor);
        if number.seq < self.floor {
            // A delayed duplicate; its sender already has the reply.
            return Err(MdError::Stale);
        }
        Ok(self.replies.get(&number.seq).cloned())
    }

    /// Hashes the private part of the state.
    #[cfg(feature = "model")]
    pub(super) fn hash_rest(&self, state: &mut impl std::hash::Hasher) {
        use crate::api::RightReply;
        use std::hash::Hash;

        (self.events, &self.news, self.reset, self.floor).hash(state);
        for (seq, reply) in &self.replies {
            seq.hash(state);
            match reply {
                Reply::Right(RightReply::Granted(grant)) => {
                    (grant.ticket, grant.serial, grant.mode, &grant.area).hash(state);
                }
                Reply::RightsBegun(begun) => (begun.epoch, begun.alone).hash(state),
                other => std::mem::discriminant(other).hash(state),
            }
        }
    }

    /// Caches a reply in case the request is resent.
    pub(super) fn keep(&mut self, number: Number, reply: &Reply) {
        if number.seq == 0 {
            return;
        }
        self.replies.insert(number.seq, reply.clone());
        if self.replies.len() > MOST_CACHED
            && let Some((oldest, _)) = self.replies.pop_first()
        {
            self.floor = oldest + 1;
        }
    }
}
