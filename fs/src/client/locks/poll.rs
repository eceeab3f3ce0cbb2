//! The thread that polls for all queued lock requests, and retries requests that failed.

use std::sync::Weak;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{LockAsk, LockEpoch, LockEvent, LockNews, LockOutcome, MdError, op};

use super::super::Client;
use super::{Locked, locked, whose};

/// Longest wait of one poll; every poll is cut to half of the request timeout.
const POLL: Duration = Duration::from_secs(5);
/// Pause before a poll that the lock server answered at once is repeated, and before a failed request is retried.
const PAUSE: Duration = Duration::from_millis(100);

impl Client {
    /// Main loop of the polling thread.
    pub(in crate::client) fn poll_locks(&self) {
        let mut failed = false;
        while self.await_work(failed) {
            failed = !self.work();
        }
    }

    /// Waits until there is work, after a failure at least for `PAUSE`; false when the client stops.
    fn await_work(&self, failed: bool) -> bool {
        let until = Instant::now() + PAUSE;
        let mut state = self.locks.state.lock();
        while failed && !state.stopping {
            if self.locks.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        while !state.stopping && (state.reclaiming || !state.has_work()) {
            self.locks.changed.wait(&mut state);
        }
        !state.stopping
    }

    /// Does the pending work, or polls; false if that achieved nothing and took no time.
    fn work(&self) -> bool {
        let epoch = self.locks.state.lock().epoch;
        if epoch == LockEpoch::UNKNOWN
            && let Err(error) = self.reclaim_locks(epoch)
        {
            return self.failed(&error);
        }
        loop {
            let again = self.locks.state.lock().again.pop_front();
            match again {
                Some(ticket) => self.ask_for(ticket),
                None => break,
            }
        }
        self.pay() && self.poll()
    }

    /// One poll.
    fn poll(&self) -> bool {
        let (epoch, seen) = {
            let state = self.locks.state.lock();
            if !state.has_queued() {
                return true;
            }
            (state.epoch, state.seen)
        };
        let wait = POLL.min(self.options.io_timeout / 2);
        let begun = Instant::now();
        match self.md.call(op::LockEvents {
            epoch,
            seen,
            wait_ms: op::millis(wait),
        }) {
            Ok(LockNews::Events(events)) => {
                let any = !events.is_empty();
                for event in events {
                    self.happened(epoch, event);
                }
                any || begun.elapsed() >= wait / 2
            }
            Ok(LockNews::Reclaim) => match self.reclaim_locks(epoch) {
                Ok(()) => true,
                Err(error) => self.failed(&error),
            },
            Err(error) => self.failed(&error),
        }
    }

    fn failed(&self, error: &MdError) -> bool {
        if matches!(error, MdError::SessionLost) {
            self.fail_waits(error);
        } else {
            tracing::debug!(%error, "polling the lock events failed; trying again");
            let tries = self.locks.state.lock().take_tries();
            for ticket in tries {
                self.decide(ticket, Err(error.clone()));
            }
        }
        false
    }

    /// Records an event.
    fn happened(&self, epoch: LockEpoch, event: LockEvent) {
        let (then, result) = {
            let mut state = self.locks.state.lock();
            if epoch != state.epoch || event.number <= state.seen {
                return;
            }
            state.seen = event.number;
            if event.outcome == LockOutcome::Waits {
                if let Some(wait) = state.waits.get(&event.ticket) {
                    let (ask, open) = (wait.ask.clone(), wait.open);
                    state.held.note(&ask, open, None, event.change);
                }
                return;
            }
            let Some(wait) = state.waits.remove(&event.ticket) else {
                state.held.skip(event.change);
                return;
            };
            state
                .held
                .note(&wait.ask, wait.open, Some(event.outcome), event.change);
            (wait.then, locked(event.outcome))
        };
        then(Ok(result));
    }

    /// Retries the unlocks that failed; false if one fails again.
    fn pay(&self) -> bool {
        let owed = std::mem::take(&mut self.locks.state.lock().owed);
        for ask in owed {
            let ticket = self.lock_ticket();
            // An unlock that fails is queued in `owed` again.
            self.give_up(LockAsk { ticket, ..ask });
        }
        self.locks.state.lock().owed.is_empty()
    }

    /// The session is lost, and with it all locks: waiting requests fail, and none are made until there is another
    /// session.
    pub(in crate::client) fn lose_locks(&self) {
        self.fail_waits(&MdError::SessionLost);
        let mut state = self.locks.state.lock();
        state.end_epoch();
        for (ino, open) in state.held.opens() {
            tracing::error!(object = %ino, "a lock held on this mount is lost with its session");
            if let Some(handle) = state.lockers.get(&open).and_then(Weak::upgrade) {
                handle.set_unlocked(true);
            }
        }
        state.held = Default::default();
        self.locks.changed.notify_all();
    }

    /// Another session has begun, without locks, while the lock server was in this epoch.
    pub(in crate::client) fn locks_new_session(&self, epoch: LockEpoch) {
        let mut state = self.locks.state.lock();
        state.epoch = epoch;
        state.lost = false;
        self.locks.changed.notify_all();
    }

    fn fail_waits(&self, error: &MdError) {
        let waits = {
            let mut state = self.locks.state.lock();
            state.lost = true;
            state.again.clear();
            // All parked requests are among the waiting ones.
            state.parked.clear();
            for ask in std::mem::take(&mut state.owed) {
                state.end_closing(&whose(&ask));
            }
            std::mem::take(&mut state.waits)
        };
        for wait in waits.into_values() {
            (wait.then)(Err(error.clone()));
        }
    }

    /// Ends the polling thread; waiting requests are cancelled.
    pub(in crate::client) fn stop_locks(&self) {
        let waits = {
            let mut state = self.locks.state.lock();
            state.stopping = true;
            std::mem::take(&mut state.waits)
        };
        self.locks.changed.notify_all();
        for (ticket, wait) in waits {
            // A poll that has nothing left to wait for returns.
            if let Err(error) = self.md.call(op::CancelLock { ticket }) {
                tracing::debug!(%error, "a request for a lock could not be cancelled; the session ends anyway");
            }
            (wait.then)(Ok(Locked::Interrupted));
        }
    }
}
