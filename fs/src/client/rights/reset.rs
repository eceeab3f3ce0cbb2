//! The end of a life, and the beginning of the next one.
//!
//! The home says that a life is over when another strict session has come to one that was alone, and when it
//! was started anew; and a mount ends it itself when it does not know what it has. Then nothing begins any more,
//! all is taken back as if it had been recalled, and the home is told that nothing is held.
//!
//! When the session is lost nothing has to be told, and nothing can be flushed: what is held is forgotten
//! ([`Client::lose_rights`]), and another life begins with another session.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slabfs_mdserver::api::{MdError, RightsBegun, RightsLife};

use super::super::Client;
use super::state::everything;
use super::{Own, Phase, Rights};

/// Before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the kernel keeps names and attributes that it was told while the mount was alone.
const KEPT: Duration = Duration::from_secs(1);

impl Rights {
    /// Nothing begins in this life any more; says whether the mount was alone. Nothing if it is over already.
    fn close(&self, life: RightsLife) -> Option<bool> {
        let alone = self.alone();
        let closed = self
            .life
            .compare_exchange(life.0, 0, Ordering::SeqCst, Ordering::SeqCst);
        closed.ok()?;
        self.clock.set(Phase::Closed);
        *self.line.lock() = Default::default();
        Some(alone)
    }
}

impl Client {
    /// Ends a life: gives up everything, says so, and begins another one.
    pub(super) fn reset_rights(&self, life: RightsLife) {
        let turn = self.rights.clock.turn();
        let Some(alone) = self.rights.close(life) else {
            return;
        };
        tracing::debug!(alone, "all rights are given up");
        let owns = self.rights.all();
        for own in &owns {
            let mut state = own.state.lock();
            state.end_life(alone);
            own.changed.notify_all();
        }
        let mut taken = Vec::new();
        for own in &owns {
            if turn == self.rights.clock.turn() {
                self.take_all_back(own);
                taken.push(own);
            }
        }
        if alone
            && let Some(caches) = self.life.caches()
            && !caches.forget_names()
        {
            self.pause(KEPT);
        }
        let begun = self.tell_reset(turn);
        let lost = turn != self.rights.clock.turn();
        for own in taken {
            let mut state = own.state.lock();
            match lost {
                // What is held by now is of another session, and so is what may have been recalled since.
                true => state.held.reopen(),
                false => state.begin_life(),
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

    /// Waits for what has begun on an object, lets its pages be dropped, flushes it and forgets what was read.
    fn take_all_back(&self, own: &Arc<Own>) {
        let mut state = own.state.lock();
        while state.working {
            own.changed.wait(&mut state);
        }
        state.working = true;
        state.held.close(everything());
        own.changed.notify_all();
        while state.held.is_busy() || own.counts_any() {
            own.changed.wait(&mut state);
        }
        drop(self.drop_pages(own, state));
        let Some(object) = own.object() else { return };
        self.bring_out_for_others(&object, RightsLife::UNKNOWN);
        object.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache().forget_object(object.ino);
    }

    /// Says that nothing is held. Nothing when there is nobody to say it to.
    fn tell_reset(&self, turn: u64) -> Option<RightsBegun> {
        while turn == self.rights.clock.turn() && !self.rights.stopping() {
            match self.md.reset_rights() {
                Ok(begun) => return Some(begun),
                Err(MdError::SessionLost) => {
                    self.suspect();
                    return None;
                }
                Err(error) => {
                    tracing::debug!(%error, "the end of a life of rights was not heard; trying again");
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
        self.rights.clock.turn.fetch_add(1, Ordering::SeqCst);
        self.rights.life.store(0, Ordering::SeqCst);
        self.rights.clock.set(Phase::Closed);
        *self.rights.line.lock() = Default::default();
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
