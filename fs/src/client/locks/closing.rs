//! What a close ends: all locks of its owner on the file.
//!
//! All locks of an owner on a file end by one request, sent after what was written under them is out. The kernel
//! gives the owner's number to somebody else as soon as it takes the close for done, and that is before the
//! request has come to the lock server where who closed was killed (`mount/killed.rs`), or where the lock server was away. So
//! from when it is known that there is something to end until the lock server has answered, the owner is *closing*, once
//! for each such request; what is asked for as that owner meanwhile is *parked*: it holds no thread, and is asked
//! for when the last of them is answered. If one fails, what is parked gets its error, and the owner stays closing
//! until the request is made again.

use std::sync::Arc;

use slabfs_mdserver::api::{
    LockAsk, LockFile, LockKind, LockOwner, LockSpan, LockTicket, LockWant, MdError,
};

use super::super::Client;
use super::{Locked, State, Wait, Whose, awaited, whose};

impl State {
    /// Whether a request is made as somebody who is closing.
    pub(super) fn has_to_park(&self, wait: &Wait) -> bool {
        // What is part of closing does not wait for its end.
        let closes = matches!(wait.ask.want, LockWant::Unlock | LockWant::Ending);
        !closes && !wait.closed && self.closing.contains_key(&whose(&wait.ask))
    }

    /// One more request that ends all locks of this owner is to be answered.
    fn begin_closing(&mut self, owner: Whose) {
        *self.closing.entry(owner).or_insert(0) += 1;
    }

    /// One of them has been; gives what may be asked for now.
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

    /// Takes out what is parked for this owner.
    fn take_parked(&mut self, owner: &Whose) -> Vec<LockTicket> {
        let waits = &self.waits;
        let is_theirs = |ticket: &mut LockTicket| {
            waits
                .get(ticket)
                .is_none_or(|wait| whose(&wait.ask) == *owner)
        };
        self.parked.extract_if(.., is_theirs).collect()
    }

    /// Takes out one that is parked; false if it is not.
    pub(super) fn unpark(&mut self, ticket: LockTicket) -> bool {
        let at = self.parked.iter().position(|parked| *parked == ticket);
        at.map(|at| self.parked.swap_remove(at)).is_some()
    }
}

impl Client {
    /// What those ask for that have gone, and whose file is closed now, ends when it is decided. Until then nobody locks
    /// as those owners.
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
            // By the polling thread, which then lets others lock as this owner.
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

    /// A descriptor of a file is being closed by a process: whether it holds record locks on the file, which end by
    /// that, by [`Client::unlock_all`]. Until that is done nobody locks as that owner.
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

    /// Whose locks on a file were taken through an open file that is closed now, and are still there: they
    /// are to be given up by [`Client::unlock_all`]. Until that is done nobody locks as those owners: an
    /// owner's number may be that of the next open file already.
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
        for kind in [LockKind::Record, LockKind::Whole] {
            let key = (file.clone(), kind);
            for owner in state.held.owners(&key, Some(open)) {
                state.begin_closing((key.clone(), owner));
                all.push((kind, owner));
            }
        }
        all
    }

    /// Gives up all locks of an owner on a file, once for each time that [`Client::closing_records`] or
    /// [`Client::closing_locks`] said that there are any. If the lock server is away, that is done when it is back.
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

    /// Makes a request that ends all locks of an owner who is closing; if it fails, it is owed.
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
                tracing::warn!(ino = %ask.file.ino, %error, "locks of a closed file could not be given up; trying again");
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
