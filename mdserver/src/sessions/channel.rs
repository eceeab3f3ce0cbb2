//! The server's end of a session's channel to a lock server. Each strict session has two: for its locks and for its
//! rights.
//!
//! ```text
//!   mount                                    lock server
//!   request { epoch, .. } -----------------> done, if it is for the current epoch
//!   poll { epoch, seen, wait } ------------> waits for an event after number `seen`, which are acknowledged
//!                         <----------------- events { number, .. }, or: the epoch is over
//!   what it has and keeps -----------------> reclaim, reset: begins another epoch
//! ```
//!
//! - A request names the epoch that it is made for. In another epoch it has no effect.
//! - Events are numbered without a gap in each epoch, and stay queued until they are acknowledged: a poll whose reply
//!   is lost is repeated.
//! - An older request to begin an epoch is refused after a newer one, however late a copy of it arrives.
//! - Polls end after ten seconds, and when the service is about to stop.
//!
//! A resent request is recognised before it gets here ([`super::Answers`]). What an epoch means, when it ends, and what a
//! session may keep into the next one is different for locks and rights.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::api::{Epoch, Event, MdError, News};

/// Most events in one reply.
const MOST_EVENTS: usize = 256;
/// Longest wait of a poll.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// The channel of one session; see the module documentation.
#[derive(Debug, Clone)]
pub(crate) struct Channel<K> {
    /// The current epoch, or the one that is over.
    epoch: Epoch,
    over: bool,
    /// Number of events so far, and those that are not acknowledged.
    count: u64,
    events: VecDeque<Event<K>>,
    wake: Arc<Condvar>,
    /// Sequence number of the last request to begin an epoch.
    began: u64,
}

impl<K: Clone> Channel<K> {
    /// The channel of a session in its first epoch.
    pub(crate) fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            over: false,
            count: 0,
            events: VecDeque::new(),
            wake: Arc::default(),
            began: 0,
        }
    }

    /// The channel of a session from before the start of the lock server: it has to begin an epoch.
    pub(crate) fn unknown() -> Self {
        Self {
            over: true,
            ..Self::new(Epoch::UNKNOWN)
        }
    }

    /// The current epoch, or the one that is over.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether the session has to begin another epoch.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether a request for `epoch` has an effect.
    pub(crate) fn is_in(&self, epoch: Epoch) -> bool {
        !self.over && self.epoch == epoch
    }

    /// Begins an epoch.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.over = false;
        self.count = 0;
        self.events.clear();
        self.wake.notify_all();
    }

    /// Ends the epoch.
    pub(crate) fn end(&mut self) {
        self.over = true;
        self.events.clear();
        self.wake.notify_all();
    }

    /// Checks that a request to begin an epoch is no older than the last one.
    ///
    /// # Errors
    /// `Stale` for a delayed duplicate. The session has begun an epoch since, and that is what counts; it may not have
    /// acknowledged the reply yet, if another of its requests is unanswered.
    pub(crate) fn renew(&mut self, seq: u64) -> Result<(), MdError> {
        if seq < self.began {
            return Err(MdError::Stale);
        }
        self.began = seq;
        Ok(())
    }

    /// Queues an event.
    pub(crate) fn notify(&mut self, kind: K) {
        self.count += 1;
        self.events.push_back(Event {
            number: self.count,
            kind,
        });
        self.wake.notify_all();
    }

    /// The events that are not acknowledged.
    pub(crate) fn events(&self) -> &VecDeque<Event<K>> {
        &self.events
    }

    /// As [`Channel::events`].
    pub(crate) fn events_mut(&mut self) -> &mut VecDeque<Event<K>> {
        &mut self.events
    }

    /// Makes a poll check again.
    pub(crate) fn wake(&self) {
        self.wake.notify_all();
    }

    /// Drops the events up to number `seen`, and returns those after it for a poll. `at_once`: it returns in any case.
    pub(crate) fn fetch(&mut self, epoch: Epoch, seen: u64, at_once: bool) -> Look<K> {
        if !self.is_in(epoch) {
            return Look::Found(News::Over);
        }
        while self.events.front().is_some_and(|one| one.number <= seen) {
            self.events.pop_front();
        }
        if self.events.is_empty() && !at_once {
            return Look::Nothing(Arc::clone(&self.wake));
        }
        Look::Found(News::Events(
            self.events.iter().take(MOST_EVENTS).cloned().collect(),
        ))
    }

    /// Hashes what decides about later events.
    #[cfg(feature = "model")]
    pub(crate) fn hash_rest(&self, state: &mut impl std::hash::Hasher)
    where
        K: std::hash::Hash,
    {
        use std::hash::Hash;

        (self.epoch, self.over, self.count, &self.events, self.began).hash(state);
    }
}

/// What a poll finds.
pub(crate) enum Look<K> {
    /// Its reply.
    Found(News<K>),
    /// It waits for this.
    Nothing(Arc<Condvar>),
}

/// Waits up to `wait` for events. `look` fetches them from the state; its second argument says whether the time is over.
/// It also returns when it has to be called again at the latest, if that is sooner than when the session is woken.
///
/// # Errors
/// Those of `look`.
pub(crate) fn poll<S, K>(
    state: &Mutex<S>,
    wait: Duration,
    mut look: impl FnMut(&mut S, bool) -> Result<(Look<K>, Option<Instant>), MdError>,
) -> Result<News<K>, MdError> {
    let until = Instant::now() + wait.min(LONGEST_POLL);
    let mut state = state.lock();
    loop {
        let (look, again) = look(&mut state, Instant::now() >= until)?;
        match look {
            Look::Found(news) => return Ok(news),
            Look::Nothing(wake) => {
                wake.wait_until(&mut state, again.map_or(until, |again| again.min(until)));
            }
        }
    }
}
