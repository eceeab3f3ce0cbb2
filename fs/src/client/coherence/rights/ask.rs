//! Waiting for a right, and asking the lock server for it.
//!
//! An operation is added to the waiting list first, so that it begins at the moment of the grant. Then it sends an
//! ask, unless an ask for as much is already pending. No ask is sent during a recall.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use slabfs_mdserver::api::{
    MdError, RightAsk, RightGrant, RightReply, RightTicket, RightsEpoch, op,
};

use slabfs_objstore::interrupt;

use super::held::{By, Want};
use super::op::Op;
use super::{Own, Phase};
use crate::client::Client;
use crate::client::error::FsError;

impl Client {
    /// Waits until `want` may begin. `None` when it has to be tried by another way: the mount is alone, or pages have
    /// to be dropped first.
    pub(super) fn await_right(
        &self,
        own: &Arc<Own>,
        want: Want,
        until: Instant,
    ) -> Result<Option<Op>, FsError> {
        let mut state = own.state.lock();
        // Writes of an ended epoch `alone` are not listed; they finish first.
        while want.by == By::PageOut && own.counts_writes() && !self.rights.stopping() {
            own.changed.wait(&mut state);
        }
        let round = own.clock.round();
        let id = state.held.wait(want.clone());
        // The grant may have arrived since the last attempt.
        state.held.begin_waiting();
        loop {
            if state.held.take_begun(id) {
                return Ok(Some(own.listed(id, round, &want)));
            }
            let phase = own.clock.phase();
            let over = match phase {
                Phase::Alone | Phase::Off => Some(Ok(None)),
                _ if state.held.has_pages_under(&want) && state.held.holds(&want) => Some(Ok(None)),
                _ if own.clock.round() != round => Some(Ok(None)),
                _ if state.refused => Some(Err(FsError::Gone)),
                _ if state.is_stuck(&want) => Some(Err(FsError::Lost)),
                _ if self.rights.stopping()
                    || Instant::now() >= until
                    || interrupt::is_raised() =>
                {
                    Some(Err(FsError::Withheld(self.others_timeout())))
                }
                Phase::Shared | Phase::Closed => None,
            };
            if let Some(over) = over {
                state.held.give_up(id);
                own.changed.notify_all();
                let idle = state.take_idle_asks();
                drop(state);
                self.cancel_asks(idle);
                return over;
            }
            if phase == Phase::Shared && state.needs_ask(&want) {
                let epoch = self.rights.epoch();
                let ticket = self.rights.next_ticket();
                let ask = state.ask(own.ino, &want, ticket);
                drop(state);
                let asked = self.ask(own, epoch, ask);
                state = own.state.lock();
                if let Err(error) = asked
                    && !state.held.take_begun(id)
                {
                    state.held.give_up(id);
                    return Err(error);
                }
                continue;
            }
            interrupt::wait_until(&own.changed, &mut state, until);
        }
    }

    /// Sends one ask.
    fn ask(&self, own: &Arc<Own>, epoch: RightsEpoch, ask: RightAsk) -> Result<(), FsError> {
        self.rights.counts.asked.fetch_add(1, Ordering::Relaxed);
        let ticket = ask.ticket;
        let reply = self.md.call(op::AskRight { epoch, ask });
        let result = match reply {
            Ok(RightReply::Granted(grant)) => {
                self.granted(own, epoch, grant);
                Ok(())
            }
            Ok(RightReply::Queued) => {
                own.state.lock().queued(ticket);
                own.changed.notify_all();
                return Ok(());
            }
            Ok(RightReply::Reset) => {
                self.rights.end_epoch(epoch);
                Ok(())
            }
            Err(MdError::SessionLost) => {
                self.rights.suspend(epoch);
                self.suspect();
                Ok(())
            }
            Err(error) => {
                let refused = matches!(
                    error,
                    MdError::NotFound
                        | MdError::Invalid(_)
                        | MdError::NotPermitted(_)
                        | MdError::NotSupported(_)
                        | MdError::Stale
                        | MdError::Busy
                );
                if !refused {
                    // It is unknown whether the right was granted.
                    self.rights.end_epoch(epoch);
                }
                Err(error.into())
            }
        };
        own.state.lock().decided(ticket);
        own.changed.notify_all();
        result
    }

    /// Records a grant; operations that waited for it begin.
    pub(super) fn granted(&self, own: &Arc<Own>, epoch: RightsEpoch, grant: RightGrant) {
        let mut state = own.state.lock();
        let heard = self.rights.hear(epoch, grant.serial);
        state.granted(heard, grant);
        own.changed.notify_all();
    }

    /// Cancels asks that no operation waits for. A grant that arrives meanwhile is ignored.
    fn cancel_asks(&self, tickets: Vec<RightTicket>) {
        let epoch = self.rights.epoch();
        for ticket in tickets {
            if let Err(error) = self.md.call(op::CancelRight { epoch, ticket }) {
                tracing::debug!(%error, "an ask could not be cancelled");
                self.rights.end_epoch(epoch);
            }
        }
    }
}
