//! The end of an epoch of rights, and the beginning of the next one.
//!
//! The lock server ends an epoch when a second strict session attaches to one that was alone, and when it was
//! restarted; and a mount ends it itself when it no longer knows its rights. Then no operation begins, everything is
//! released as if it had been recalled, and the lock server is notified that nothing is held.
//!
//! Running operations are not waited for, since a write may take hours: an object with running operations keeps its
//! rights into the next epoch, in which they can be recalled like any others. The same message reports them to the
//! lock server (`RightHeld`), so none of them is granted to another mount in between. An operation that was only
//! counted may touch all of its object, so the recalls of that object wait for it ([`Own::counts_against`]); a listed
//! operation (all that may take long: `Need::long`) has its cells.
//!
//! When the session is lost, nothing has to be reported and nothing can be flushed: the rights are dropped
//! ([`Client::lose_rights`]), and another epoch begins with another session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slabfs_mdserver::api::{MAX_RIGHTS_HELD, MdError, RightHeld, RightsBegun, RightsEpoch, op};

use super::state::{LastGrant, everything};
use super::{Own, Phase, Rights};
use crate::client::Client;
use crate::client::coherence::channel::PAUSE;

/// How long the kernel caches names and attributes that it got while the mount was alone.
const NAME_TIMEOUT: Duration = Duration::from_secs(1);

impl Rights {
    /// Closes an epoch, so that no operation begins in it; returns whether the mount was alone, or `None` if the
    /// epoch is over already.
    fn close(&self, epoch: RightsEpoch) -> Option<bool> {
        let mut last_grant = self.last_grant.lock();
        if last_grant.epoch() != epoch {
            return None;
        }
        let alone = self.alone();
        *last_grant = LastGrant::default();
        // Under the lock: an end and a beginning that meet leave the epoch and the phase of the same one.
        self.clock.set(Phase::Closed);
        Some(alone)
    }
}

impl Client {
    /// Ends an epoch: releases everything except the rights of running operations, reports that, and begins another
    /// epoch.
    pub(super) fn reset_rights(&self, epoch: RightsEpoch) {
        let round = self.rights.clock.round();
        let Some(alone) = self.rights.close(epoch) else {
            return;
        };
        tracing::debug!(alone, "releasing all rights");
        self.md.forget_all_names();
        // The rest may take long, and other mounts may wait to change cached names.
        if let Err(error) = self.md.call(op::ReportForgotten {
            epoch,
            change: None,
        }) {
            tracing::debug!(%error, "notifying the metadata service of dropped names failed");
        }
        let owns = self.rights.all();
        for own in &owns {
            let mut state = own.state.lock();
            state.end_epoch(alone);
            own.changed.notify_all();
        }
        let mut taken = Vec::new();
        let mut held = Vec::new();
        for own in &owns {
            if round == self.rights.clock.round() {
                let room = MAX_RIGHTS_HELD - held.len();
                let keeps = self.take_back_or_keep(own, room);
                taken.push((own, keeps.is_some()));
                held.extend(keeps.into_iter().flatten());
            }
        }
        if alone
            && let Some(caches) = self.lease.caches()
            && !caches.forget_names()
        {
            self.pause(NAME_TIMEOUT);
        }
        let begun = self.send_reset(round, &held);
        // Drops names that were requested before the old epoch was closed, and returned after.
        self.md.forget_all_names();
        for (own, keeps) in taken {
            let mut state = own.state.lock();
            // Under the lock: a session loss from here on removes the retained rights after this.
            match round != self.rights.clock.round() {
                // The rights held by now belong to another session, and so may the recalls received since.
                true => state.held.reopen(),
                false if keeps && begun.is_some() => state.begin_with_held(),
                false => state.begin_epoch(),
            }
            state.work_ends();
            own.changed.notify_all();
            let more = !state.recalls.is_empty();
            drop(state);
            match more {
                true => self.rights.call(own.clone()),
                false => self.rights.tidy(own),
            }
        }
        if let Some(begun) = begun {
            tracing::info!(alone = begun.alone, "rights start again");
            self.rights.begin(round, begun);
        }
        self.rights.wake_all();
    }

    /// Has the pages of an object dropped, flushes it and drops its cached blocks. If an operation runs, does none of
    /// that and returns the rights that stay held, unless they are more than `room`.
    fn take_back_or_keep(&self, own: &Arc<Own>, room: usize) -> Option<Vec<RightHeld>> {
        let mut state = own.state.lock();
        while state.working {
            own.changed.wait(&mut state);
        }
        state.working = true;
        state.held.close(everything());
        own.changed.notify_all();
        while state.held.is_busy() || own.counts_any() {
            if let Some(held) = state.held(own.ino).filter(|held| held.len() <= room) {
                return Some(held);
            }
            own.changed.wait(&mut state);
        }
        drop(self.drop_pages(own, state));
        let object = own.object()?;
        self.write_back_for_others(&object, RightsEpoch::UNKNOWN);
        if self.servers().end_unanswered(own.ino).is_err()
            && let Some(held) = own.state.lock().held(own.ino)
            && held.len() <= room
        {
            return Some(held);
        }
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(&object);
        None
    }

    /// Reports that nothing is held but `held`. `None` when the session is lost or the client stops.
    fn send_reset(&self, round: u64, held: &[RightHeld]) -> Option<RightsBegun> {
        while round == self.rights.clock.round() && !self.rights.stopping() {
            match self.md.call(op::ResetRights {
                held: held.to_vec(),
            }) {
                Ok(begun) => return Some(begun),
                Err(MdError::SessionLost) => {
                    self.suspect();
                    return None;
                }
                Err(error) => {
                    tracing::debug!(%error, "reporting the end of an epoch of rights failed; trying again");
                    self.pause(PAUSE);
                }
            }
        }
        None
    }

    /// The session is over: no operation begins, and running ones do not count in the next session.
    pub(in crate::client) fn lose_rights(&self) {
        if !self.rights.strict() {
            return;
        }
        self.rights.clock.round.fetch_add(1, Ordering::SeqCst);
        {
            let mut last_grant = self.rights.last_grant.lock();
            *last_grant = LastGrant::default();
            self.rights.clock.set(Phase::Closed);
        }
        self.md.forget_all_names();
        self.rights.wake_all();
    }

    /// Begins another session, when no work in the name of the lost one is left.
    pub(in crate::client) fn rights_new_session(&self, begun: Option<RightsBegun>) {
        let Some(begun) = begun.filter(|_| self.rights.strict()) else {
            return;
        };
        let round = self.rights.clock.round();
        for own in self.rights.all() {
            own.state.lock().begin_session();
        }
        self.rights.begin(round, begun);
    }
}
