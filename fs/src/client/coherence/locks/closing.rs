//! Releases all locks of an owner on a file when the file is closed.
//!
//! One request ends all locks of an owner on a file; it is sent after the data written under them is written back.
//! The kernel reuses the owner's number as soon as the close is complete. That is before the request has reached the
//! lock server if the closing process was killed (`mount/killed.rs`) or the lock server was unreachable. So the owner
//! counts as *closing*, once for each such request, from the moment the need for it is known until the lock server
//! has answered. Requests of that owner in the meantime are *parked*: they occupy no thread, and are made when the
//! last unlock is answered. If an unlock fails, the parked requests fail with its error, and the owner stays closing
//! until the unlock is made again.

use std::sync::Arc;

use slabfs_mdserver::api::{
    LockAsk, LockFile, LockKind, LockOwner, LockSpan, LockTicket, LockWant, MdError,
};

use super::{Locked, State, Wait, Whose, awaited, whose};
use crate::client::Client;

impl State {
    /// Whether the owner of a request is closing the file.
    pub(super) fn has_to_park(&self, wait: &Wait) -> bool {
        // The requests of the close itself do not wait for its end.
        let closes = matches!(wait.ask.want, LockWant::Unlock | LockWant::Ending);
        !closes && !wait.closed && self.closing.contains_key(&whose(&wait.ask))
    }

    /// Counts one more unanswered request that ends all locks of this owner.
    fn begin_closing(&mut self, owner: Whose) {
        *self.closing.entry(owner).or_insert(0) += 1;
    }

    /// One of them is answered; returns the requests that may be made now.
    pub(super) fn end_closing(&mut self, owner: &Whose) -> Vec<LockTicket> {
        match self.closing.get_mut(owner) {
            Some(count) if *count > 1 => {
                *count -= 1;
                Vec::new()
            }
            Some(_) => {
                self.closing.remove(owner);
                self.take_parked(owner)
            }
            None => Vec::new(),
        }
    }

    /// Removes and returns the parked requests of this owner.
    fn take_parked(&mut self, owner: &Whose) -> Vec<LockTicket> {
        let waits = &self.waits;
        let is_theirs = |ticket: &mut LockTicket| {
            waits
                .get(ticket)
                .is_none_or(|wait| whose(&wait.ask) == *owner)
        };
        self.parked.extract_if(.., is_theirs).collect()
    }

    /// Removes a parked request; false if it is not parked.
    pub(super) fn unpark(&mut self, ticket: LockTicket) -> bool {
        let at = self.parked.iter().position(|parked| *parked == ticket);
        at.map(|at| self.parked.swap_remove(at)).is_some()
    }
}

impl Client {
    /// Arranges that abandoned requests whose file is now closed release their lock once they are decided. Until then
    /// requests of those owners are parked.
    fn close_abandoned(self: &Arc<Self>, state: &mut State, closes: impl Fn(&Wait) -> bool) {
        for wait in state.waits.values_mut() {
            if !wait.abandoned || wait.closed || !closes(wait) {
                continue;
            }
            wait.closed = true;
            *state.closing.entry(whose(&wait.ask)).or_insert(0) += 1;
            let then = std::mem::replace(&mut wait.then, Box::new(drop));
            let (client, ask) = (self.clone(), wait.ask.clone());
            wait.then = Box::new(move |result| {
                let gets_it = result == Ok(Locked::Done);
                then(result);
                client.end_abandoned(ask, gets_it);
            });
        }
    }

    fn end_abandoned(&self, ask: LockAsk, gets_it: bool) {
        let mut state = self.locks.state.lock();
        if gets_it {
            // The polling thread does this, and then unparks requests of this owner.
            state.owed.push_back(LockAsk {
                want: LockWant::Unlock,
                span: LockSpan::ALL,
                ..ask
            });
        } else {
            let free = state.end_closing(&whose(&ask));
            state.again.extend(free);
        }
        self.locks.changed.notify_all();
    }

    /// A process is closing a descriptor of a file. Returns whether it holds record locks on the file, which have to
    /// be ended by [`Client::unlock_all`]. Until that is done, requests of that owner are parked.
    pub fn closing_records(self: &Arc<Self>, file: &LockFile, owner: LockOwner) -> bool {
        let mut state = self.locks.state.lock();
        self.close_abandoned(&mut state, |wait| {
            let ask = &wait.ask;
            ask.kind == LockKind::Record && ask.owner == owner && ask.file == *file
        });
        if state.held.is_empty() {
            return false;
        }
        let key = (file.clone(), LockKind::Record);
        let holds = state.held.owners(&key, None).contains(&owner);
        if holds {
            state.begin_closing((key, owner));
        }
        holds
    }

    /// The owners that still hold locks on a file taken through an open file that is now closed; the locks have to be
    /// ended by [`Client::unlock_all`]. Until that is done, requests of those owners are parked: an owner's number
    /// may already be that of the next open file.
    pub fn closing_locks(
        self: &Arc<Self>,
        file: &LockFile,
        open: u64,
    ) -> Vec<(LockKind, LockOwner)> {
        let mut state = self.locks.state.lock();
        self.close_abandoned(&mut state, |wait| wait.open == open);
        if state.held.is_empty() {
            return Vec::new();
        }
        let mut all = Vec::new();
        for kind in [LockKind::Record, LockKind::File] {
            let key = (file.clone(), kind);
            for owner in state.held.owners(&key, Some(open)) {
                state.begin_closing((key.clone(), owner));
                all.push((kind, owner));
            }
        }
        all
    }

    /// Releases all locks of an owner on a file, once for each time that [`Client::closing_records`] or
    /// [`Client::closing_locks`] reported some. If the lock server is unreachable, this is done when it is back.
    pub fn unlock_all(&self, file: LockFile, kind: LockKind, owner: LockOwner) {
        self.give_up(LockAsk {
            file,
            kind,
            owner,
            pid: 0,
            span: LockSpan::ALL,
            want: LockWant::Unlock,
            ticket: self.lock_ticket(),
        });
    }

    /// Makes a request that ends all locks of a closing owner; if it fails, it is queued in `owed`.
    pub(super) fn give_up(&self, ask: LockAsk) {
        let (then, answer) = awaited();
        self.lock(ask.clone(), 0, then);
        let owner = whose(&ask);
        match answer.recv() {
            Ok(Ok(_)) | Ok(Err(MdError::SessionLost)) | Err(_) => {
                let free = self.locks.state.lock().end_closing(&owner);
                for ticket in free {
                    self.ask_for(ticket);
                }
            }
            Ok(Err(error)) => {
                tracing::warn!(ino = %ask.file.ino, %error, "locks of a closed file could not be released; trying again");
                let parked = {
                    let mut state = self.locks.state.lock();
                    state.owed.push_back(ask);
                    state.take_parked(&owner)
                };
                self.locks.changed.notify_all();
                for ticket in parked {
                    self.decide(ticket, Err(error.clone()));
                }
            }
        }
    }
}
