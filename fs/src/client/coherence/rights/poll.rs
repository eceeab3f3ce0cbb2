//! The channel of rights events.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{
    Epoch, Ino, MdError, RightEventKind, RightTicket, RightsEpoch, Unflushed, op,
};

use super::{Phase, Rights};
use crate::client::Client;
use crate::client::coherence::channel::{Channel, Next, PAUSE};

/// A session that has been the only one for this long asks to be alone again.
const ALONE_AFTER: Duration = Duration::from_secs(5);

impl Channel for Rights {
    const NAME: &str = "rights";
    type Kind = RightEventKind;
    type Poll = op::RightEvents;

    fn next(client: &Client, failed: bool) -> Result<Next, MdError> {
        let rights = &client.rights;
        let Some(epoch) = rights.await_epoch(failed) else {
            return Ok(Next::Stop);
        };
        let is_only = !rights.alone() && client.md.session_count() <= 1;
        if rights.reset.swap(false, Ordering::SeqCst) || rights.wants_alone(epoch, is_only) {
            client.reset_rights(epoch);
            return Ok(Next::Again);
        }
        // Epochs of rights are never used again, also by another session.
        Ok(Next::Poll(epoch, 0))
    }

    fn poll(epoch: Epoch, seen: u64, wait_ms: u32) -> op::RightEvents {
        op::RightEvents {
            epoch,
            seen,
            wait_ms,
        }
    }

    fn happened(client: &Client, epoch: Epoch, event: RightEventKind) {
        match event {
            RightEventKind::Granted(grant) => match client.rights.find(grant.entry.attr.ino) {
                Some(own) => client.granted(&own, epoch, grant),
                None => {
                    client.rights.hear(epoch, grant.serial);
                }
            },
            RightEventKind::Refused(ticket) => client.refused(ticket),
            RightEventKind::Recall(recall) => client.rights.recall(epoch, recall),
            RightEventKind::Size { ino, question } => {
                let unflushed = client.unflushed(ino);
                let sent = client.md.call(op::ReportSize {
                    question,
                    unflushed,
                });
                if let Err(error) = sent {
                    tracing::debug!(%ino, %error, "answering a size request failed");
                }
            }
            RightEventKind::Names { inos, change } => {
                client.md.forget_names(&inos);
                let change = Some(change);
                if let Err(error) = client.md.call(op::ReportForgotten { epoch, change }) {
                    // The lock server does not ask again: it ends the session, or continues without this change.
                    tracing::debug!(%error, "notifying the metadata service of dropped names failed");
                }
            }
        }
    }

    fn renew(client: &Client, over: Epoch) -> Result<(), MdError> {
        client.reset_rights(over);
        Ok(())
    }

    fn failed(client: &Client, epoch: Epoch, error: &MdError) {
        if *error == MdError::SessionLost {
            client.rights.suspend(epoch);
        }
    }
}

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

    /// Waits until there is an epoch, after a failure at most for `PAUSE` for another one; `None` when the client stops.
    fn await_epoch(&self, failed: bool) -> Option<RightsEpoch> {
        let mut order = self.epoch_wait.lock();
        let mut waits = failed;
        while !self.stopping() {
            let epoch = self.epoch();
            if !waits && epoch != RightsEpoch::UNKNOWN {
                return Some(epoch);
            }
            self.epoch_changed.wait_for(&mut order, PAUSE);
            waits = false;
        }
        None
    }

    /// Whether it is time to ask to be alone. `is_only`: the session is the only one, but not alone in this epoch.
    fn wants_alone(&self, epoch: RightsEpoch, is_only: bool) -> bool {
        let mut since = self.only_since.lock();
        *since = since.filter(|(of, _)| is_only && *of == epoch);
        if !is_only {
            return false;
        }
        let (_, since) = since.get_or_insert_with(|| (epoch, Instant::now()));
        since.elapsed() > ALONE_AFTER
    }
}

impl Client {
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
        let touched = object.touched.load(Ordering::Acquire) || object.is_to_be_emptied();
        if !(dirty || grown > 0 || touched) {
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
