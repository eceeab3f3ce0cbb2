//! The end of an epoch, and the beginning of the next one.
//!
//! The lock server says that an epoch is over when another strict session has come to one that was alone, and when it
//! was started anew; and a mount ends it itself when it does not know what it has. Then nothing begins any more,
//! all is taken back as if it had been recalled, and the lock server is told that nothing is held.
//!
//! But nobody waits for what runs, which may be a write of hours: an object on which something does is taken along
//! as it is. What was held of it is held in the next epoch, in which it can be recalled like anything else; the lock server is
//! told so in the same breath (`RightHeld`), so nobody is granted any of it in between. What was only
//! counted may touch all of its object, so the recalls of that object wait for it ([`Own::counts_against`]); what was
//! listed (all that may take long: `Client::enter_long`) has its cells.
//!
//! When the session is lost nothing has to be told, and nothing can be flushed: what is held is forgotten
//! ([`Client::lose_rights`]), and another epoch begins with another session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slabfs_mdserver::api::{MAX_RIGHTS_KEPT, MdError, RightHeld, RightsBegun, RightsEpoch};

use super::super::Client;
use super::state::everything;
use super::{Own, Phase, Rights};

/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the kernel keeps names and attributes that it was told while the mount was alone.
const KEPT: Duration = Duration::from_secs(1);

impl Rights {
    /// Nothing begins in this epoch any more; says whether the mount was alone. Nothing if it is over already.
    fn close(&self, epoch: RightsEpoch) -> Option<bool> {
        let alone = self.alone();
        let closed = self
            .epoch
            .compare_exchange(epoch.0, 0, Ordering::SeqCst, Ordering::SeqCst);
        closed.ok()?;
        self.clock.set(Phase::Closed);
        *self.line.lock() = Default::default();
        Some(alone)
    }
}

impl Client {
    /// Ends an epoch: gives up everything but what runs needs, says so, and begins another one.
    pub(super) fn reset_rights(&self, epoch: RightsEpoch) {
        let round = self.rights.clock.round();
        let Some(alone) = self.rights.close(epoch) else {
            return;
        };
        tracing::debug!(alone, "all rights are given up");
        self.md.forget_all_names();
        // What follows may take long, and others may want to change what was kept.
        if let Err(error) = self.md.tell_forgot(epoch, None) {
            tracing::debug!(%error, "that names are forgotten was not heard");
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
                let room = MAX_RIGHTS_KEPT - held.len();
                let keeps = self.take_back_or_keep(own, room);
                taken.push((own, keeps.is_some()));
                held.extend(keeps.into_iter().flatten());
            }
        }
        if alone
            && let Some(caches) = self.lease.caches()
            && !caches.forget_names()
        {
            self.pause(KEPT);
        }
        let begun = self.tell_reset(round, &held);
        // Of what was asked before the old epoch was closed, and answered after.
        self.md.forget_all_names();
        let lost = round != self.rights.clock.round();
        for (own, keeps) in taken {
            let mut state = own.state.lock();
            // Under the lock: a session that is lost from here on takes away what is kept, after this.
            match round != self.rights.clock.round() {
                // What is held by now is of another session, and so is what may have been recalled since.
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
        if let Some(begun) = begun.filter(|_| !lost) {
            tracing::info!(alone = begun.alone, "rights begin anew");
            self.rights.begin(begun);
        }
        self.rights.stir();
    }

    /// Lets the pages of an object be dropped, flushes it and forgets what was read. Where something runs nothing of
    /// that is done, and what is held stays, which is said then, unless it is more than there is `room` for.
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
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(&object);
        None
    }

    /// Says that nothing is held but `held`. Nothing when there is nobody to say it to.
    fn tell_reset(&self, round: u64, held: &[RightHeld]) -> Option<RightsBegun> {
        while round == self.rights.clock.round() && !self.rights.stopping() {
            match self.md.reset_rights(held.to_vec()) {
                Ok(begun) => return Some(begun),
                Err(MdError::SessionLost) => {
                    self.suspect();
                    return None;
                }
                Err(error) => {
                    tracing::debug!(%error, "the end of an epoch of rights was not heard; trying again");
                    self.pause(PAUSE);
                }
            }
        }
        None
    }

    /// The session is over: nothing begins, and what has begun does not count in the next one.
    pub(in crate::client) fn lose_rights(&self) {
        if !self.rights.strict() {
            return;
        }
        self.rights.clock.round.fetch_add(1, Ordering::SeqCst);
        self.rights.epoch.store(0, Ordering::SeqCst);
        self.rights.clock.set(Phase::Closed);
        *self.rights.line.lock() = Default::default();
        self.md.forget_all_names();
        self.rights.stir();
    }

    /// After that, when nothing is done in the name of the lost session any more: another one begins.
    pub(in crate::client) fn rights_anew(&self, begun: Option<RightsBegun>) {
        let Some(begun) = begun.filter(|_| self.rights.strict()) else {
            return;
        };
        for own in self.rights.all() {
            own.state.lock().begin_session();
        }
        self.rights.begin(begun);
    }
}
