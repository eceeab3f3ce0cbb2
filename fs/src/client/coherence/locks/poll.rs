//! The thread that polls for all queued lock requests, and retries requests that failed.

use std::sync::Weak;
use std::time::Instant;

use slabfs_mdserver::api::{Epoch, LockAsk, LockDecision, LockEpoch, LockOutcome, MdError, op};

use super::{Locked, Locks, locked, whose};
use crate::client::Client;
use crate::client::coherence::channel::{Channel, Next, PAUSE};

impl Channel for Locks {
    const NAME: &str = "lock";
    type Kind = LockDecision;
    type Poll = op::LockEvents;

    fn next(client: &Client, failed: bool) -> Result<Next, MdError> {
        if !client.await_work(failed) {
            return Ok(Next::Stop);
        }
        let epoch = client.locks.state.lock().epoch;
        if epoch == LockEpoch::UNKNOWN {
            client.reclaim_locks(epoch)?;
        }
        loop {
            let again = client.locks.state.lock().again.pop_front();
            match again {
                Some(ticket) => client.ask_for(ticket),
                None => break,
            }
        }
        if !client.pay() {
            return Ok(Next::Pause);
        }
        let state = client.locks.state.lock();
        Ok(match state.has_queued() {
            true => Next::Poll(state.epoch, state.session),
            false => Next::Again,
        })
    }

    fn poll(epoch: Epoch, seen: u64, wait_ms: u32) -> op::LockEvents {
        op::LockEvents {
            epoch,
            seen,
            wait_ms,
        }
    }

    fn happened(client: &Client, epoch: Epoch, event: LockDecision) {
        let (then, result) = {
            let mut state = client.locks.state.lock();
            if epoch != state.epoch {
                return;
            }
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

    fn renew(client: &Client, over: Epoch) -> Result<(), MdError> {
        client.reclaim_locks(over)
    }

    fn failed(client: &Client, _: Epoch, error: &MdError) {
        if *error == MdError::SessionLost {
            return client.fail_waits(error);
        }
        let tries = client.locks.state.lock().take_tries();
        for ticket in tries {
            client.decide(ticket, Err(error.clone()));
        }
    }
}

impl Client {
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
        state.session += 1;
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
