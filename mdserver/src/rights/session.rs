//! What is kept of one session: its epoch, its events, and the replies to requests that may come again.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Condvar;

use super::table::Granted;
use crate::api::{Ino, MdError, Reply, RightRecall, RightReply, RightTicket, RightsEpoch};

/// Most events in one reply.
const MOST_EVENTS: usize = 256;
/// Events that wait to be fetched above which nothing more is asked.
const MOST_UNFETCHED: usize = 1 << 14;
/// Most replies kept; the oldest go before.
const MOST_KEPT: usize = 100_000;

/// An event without what is read when it is fetched: the object as it is then.
#[derive(Debug, Clone, Hash)]
pub(super) enum Pending {
    Granted(Granted),
    Refused(RightTicket),
    Recall(RightRecall),
    Size { ino: Ino, question: u64 },
    Names { inos: Vec<Ino>, change: u64 },
}

/// What a poll heard.
#[derive(Debug)]
pub(super) enum Heard {
    Events(Vec<(u64, Pending)>),
    /// The epoch is over.
    Reset,
}

/// The number of a request, by which a resend is known; 0 where none can come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) seq: u64,
    pub(super) done_below: u64,
}

/// A strict session.
#[derive(Debug, Clone)]
pub(super) struct Mine {
    /// The epoch it is in, or that is over, and whether it was alone when that began.
    pub(super) epoch: RightsEpoch,
    pub(super) alone: bool,
    /// It has to begin anew.
    pub(super) over: bool,
    /// Since when, if it was in an epoch here.
    pub(super) over_since: Option<Instant>,
    /// The session has ended, and may have writes on their way.
    pub(super) ended: bool,
    /// Events so far, and those that it has not said it has.
    events: u64,
    pub(super) news: VecDeque<(u64, Pending)>,
    pub(super) wake: Arc<Condvar>,
    /// Number of the request with which it began anew last.
    reset: u64,
    /// Replies to requests that may come once more; none below `floor` will.
    kept: BTreeMap<u64, Reply>,
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
            kept: BTreeMap::new(),
            floor: 0,
        }
    }

    /// A session of which nothing is known: it has to begin anew.
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

    /// Ends its epoch, until it begins anew.
    pub(super) fn end_epoch(&mut self) {
        self.over = true;
        self.over_since.get_or_insert_with(Instant::now);
        self.news.clear();
        self.wake.notify_all();
    }

    /// Whether it may keep anything without a right that is known here.
    pub(super) fn is_unknown(&self) -> bool {
        self.over && self.alone
    }

    /// Whether it can be asked something: it lives, and fetches its events.
    pub(super) fn listens(&self) -> bool {
        !self.ended && self.news.len() < MOST_UNFETCHED
    }

    /// Adds an event.
    pub(super) fn tell(&mut self, what: Pending) {
        if self.over || self.ended {
            return;
        }
        self.events += 1;
        self.news.push_back((self.events, what));
        self.wake.notify_all();
    }

    /// Forgets the events up to a number.
    pub(super) fn has(&mut self, seen: u64) {
        while self.news.front().is_some_and(|(number, _)| *number <= seen) {
            self.news.pop_front();
        }
    }

    /// The events that one reply holds.
    pub(super) fn next(&self) -> Vec<(u64, Pending)> {
        self.news.iter().take(MOST_EVENTS).cloned().collect()
    }

    /// Grants of an object that were not fetched do not hold any more: their session closes it.
    pub(super) fn drop_grants(&mut self, ino: Ino) {
        for (_, event) in &mut self.news {
            if let Pending::Granted(granted) = event
                && granted.ino == ino
            {
                *event = Pending::Refused(granted.ticket);
            }
        }
    }

    /// Whether a request to begin anew is no older than one that was served.
    pub(super) fn resets(&mut self, seq: u64) -> bool {
        let newer = seq >= self.reset;
        self.reset = self.reset.max(seq);
        newer
    }

    /// The reply to a request that was answered already.
    pub(super) fn answered(&mut self, number: Number) -> Result<Option<Reply>, MdError> {
        if number.seq == 0 {
            return Ok(None);
        }
        self.floor = self.floor.max(number.done_below);
        self.kept = self.kept.split_off(&self.floor);
        if number.seq < self.floor {
            // A copy that was long on its way; its sender has been answered.
            return Err(MdError::Stale);
        }
        Ok(self.kept.get(&number.seq).cloned())
    }

    /// What tells two states apart, beside what can be seen from outside.
    pub(super) fn hash_rest(&self, state: &mut impl Hasher) {
        (self.events, &self.news, self.reset, self.floor).hash(state);
        for (seq, reply) in &self.kept {
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

    /// Keeps a reply for a request that comes again.
    pub(super) fn keep(&mut self, number: Number, reply: &Reply) {
        if number.seq == 0 {
            return;
        }
        self.kept.insert(number.seq, reply.clone());
        if self.kept.len() > MOST_KEPT
            && let Some((oldest, _)) = self.kept.pop_first()
        {
            self.floor = oldest + 1;
        }
    }
}
