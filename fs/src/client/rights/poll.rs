//! The thread that polls the lock server for rights events. It waits for the lock server only.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{
    Ino, MdError, RightEventKind, RightNews, RightTicket, RightsEpoch, Unflushed, op,
};

use super::super::Client;
use super::{Phase, Rights};

/// Longest wait of one poll; every poll is cut to half of the request timeout.
const POLL: Duration = Duration::from_secs(5);
/// Pause before a failed poll is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// A session that has been the only one for this long asks to be alone again.
const ALONE_AFTER: Duration = Duration::from_secs(5);

impl Rights {
    /// Called when a reply says that the session is lost: no operation begins in this epoch any more. The rest is
    /// done by the code that verifies the loss.
    pub(super) fn suspend(&self, epoch: RightsEpoch) {
        if epoch.0 != 0 && epoch == self.epoch() {
            self.clock.set(Phase::Closed);
        }
    }

    /// Marks an epoch as over: the polling thread has to end it.
    pub(super) fn end_epoch(&self, epoch: RightsEpoch) {
        if epoch.0 != 0 && epoch == self.epoch() {
            self.reset.store(true, Ordering::SeqCst);
        }
    }
}

impl Client {
    /// Main loop of the polling thread; it runs until the client stops.
    pub(in crate::client) fn poll_rights(&self) {
        let mut seen = (RightsEpoch::UNKNOWN, 0);
        let mut only_since: Option<Instant> = None;
        while !self.rights.stopping() {
            let epoch = self.rights.epoch();
            if epoch == RightsEpoch::UNKNOWN {
                // Another session is being attached.
                self.await_round();
                continue;
            }
            if seen.0 != epoch {
                seen = (epoch, 0);
                only_since = None;
            }
            if self.rights.reset.swap(false, Ordering::SeqCst) {
                self.reset_rights(epoch);
                continue;
            }
            let wait = POLL.min(self.options.io_timeout / 2);
            match self.md.call(op::RightEvents {
                epoch,
                seen: seen.1,
                wait_ms: op::millis(wait),
            }) {
                Ok(RightNews::Events(events)) => {
                    for event in events {
                        if event.number > seen.1 {
                            seen.1 = event.number;
                            self.right_happened(epoch, event.kind);
                        }
                    }
                }
                Ok(RightNews::Reset) => self.reset_rights(epoch),
                Err(MdError::SessionLost) => {
                    self.rights.suspend(epoch);
                    self.await_round();
                }
                Err(error) => {
                    tracing::debug!(%error, "polling the rights events failed; trying again");
                    self.pause(PAUSE);
                }
            }
            if self.rights.alone() || self.md.session_count() > 1 {
                only_since = None;
            } else if only_since.get_or_insert_with(Instant::now).elapsed() > ALONE_AFTER {
                only_since = None;
                self.reset_rights(epoch);
            }
        }
    }

    /// Waits for another epoch, at most for `PAUSE`.
    fn await_round(&self) {
        let mut order = self.rights.epoch_wait.lock();
        if !self.rights.stopping() {
            self.rights.epoch_changed.wait_for(&mut order, PAUSE);
        }
    }

    fn right_happened(&self, epoch: RightsEpoch, what: RightEventKind) {
        match what {
            RightEventKind::Granted(grant) => match self.rights.find(grant.entry.attr.ino) {
                Some(own) => self.granted(&own, epoch, grant),
                None => {
                    self.rights.hear(epoch, grant.serial);
                }
            },
            RightEventKind::Refused(ticket) => self.refused(ticket),
            RightEventKind::Recall(recall) => self.rights.recall(epoch, recall),
            RightEventKind::Size { ino, question } => {
                let sent = self.md.call(op::ReportSize {
                    question,
                    unflushed: self.unflushed(ino),
                });
                if let Err(error) = sent {
                    tracing::debug!(%ino, %error, "answering a size request failed");
                }
            }
            RightEventKind::Names { inos, change } => {
                self.md.forget_names(&inos);
                if let Err(error) = self.md.call(op::ReportForgotten {
                    epoch,
                    change: Some(change),
                }) {
                    // The lock server does not ask again: it ends the session, or continues without this change.
                    tracing::debug!(%error, "notifying the metadata service of dropped names failed");
                }
            }
        }
    }

    fn refused(&self, ticket: RightTicket) {
        for own in self.rights.all() {
            let mut state = own.state.lock();
            if state.decided(ticket) {
                state.refused = true;
                own.changed.notify_all();
            }
        }
    }

    /// The size and time of an object's unflushed data; reads only what needs no waiting.
    fn unflushed(&self, ino: Ino) -> Option<Unflushed> {
        let object = self.rights.find(ino)?.object()?;
        let dirty = object.state.try_lock().is_none_or(|state| {
            !state.runs.is_empty() || state.taken.is_some() || !state.streams.is_empty()
        });
        let grown = object.grown.load(Ordering::Acquire);
        if !(dirty || grown > 0 || object.touched.load(Ordering::Acquire)) {
            return None;
        }
        Some(Unflushed {
            size: grown,
            mtime: object.written.try_lock().and_then(|time| *time),
        })
    }

    /// Stops this thread and the recall threads; all waits for rights end.
    pub(in crate::client) fn stop_rights(&self) {
        self.rights.stopping.store(true, Ordering::SeqCst);
        self.rights.stop_work();
        self.rights.wake_all();
    }
}
