//! Reservations of sessions that have closed the object, and that stand in its record all the same.
//!
//! Whoever made an object has a reservation in its record, and nearly everybody closes what he made and
//! never looks at it again: taking the reservation out at the close would write each new record twice. So
//! it is taken out when the record is written anyway, or at leisure, many in one batch. Until then it
//! counts for nothing ([`super::reserve`]). What is forgotten here, by a restart, costs the next one
//! who grows the object a look for a tail that is not there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt};
use slabfs_model::SessionId;
use smallvec::SmallVec;

use crate::api::{Ino, MdError};
use crate::core::{Core, Ctx};
use crate::records::Object;

/// How long a record may wait for being written for another reason.
const LEISURE: Duration = Duration::from_secs(3);
/// Most objects that wait; beyond that a close takes its reservation out at once.
const MOST: usize = 1 << 17;
/// Records written in one batch, for which the state is locked.
const BATCH: usize = 32;
/// Batches of one round of the background's work.
const BATCHES: usize = 128;

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Closed {
    by_ino: HashMap<Ino, SmallVec<[SessionId; 1]>>,
    /// In the order in which they were closed; some are gone by now.
    order: VecDeque<(Instant, Ino)>,
}

impl Closed {
    pub(crate) fn new() -> Self {
        Self {
            by_ino: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Notes that the reservation of `session` counts no more; false if it has to be taken out at once.
    pub(crate) fn note(&mut self, ino: Ino, session: SessionId) -> bool {
        if self.order.len() >= MOST {
            return false;
        }
        let sessions = self.by_ino.entry(ino).or_default();
        if sessions.is_empty() {
            self.order.push_back((Instant::now(), ino));
        }
        if !sessions.contains(&session) {
            sessions.push(session);
        }
        true
    }

    /// The session reserves anew.
    pub(crate) fn reopen(&mut self, ino: Ino, session: SessionId) {
        if let Some(sessions) = self.by_ino.get_mut(&ino) {
            sessions.retain(|closed| *closed != session);
        }
    }

    /// Whether the reservation of `session` counts no more.
    pub(crate) fn is(&self, ino: Ino, session: SessionId) -> bool {
        !self.by_ino.is_empty()
            && self
                .by_ino
                .get(&ino)
                .is_some_and(|sessions| sessions.contains(&session))
    }

    /// Whether there is anything to take out of the record of `object`.
    pub(crate) fn any(&self, ino: Ino, object: &Object) -> bool {
        object
            .reserves
            .iter()
            .any(|(session, _)| self.is(ino, *session))
    }

    /// Takes out of `object`, whose record is written now, what counts no more.
    pub(crate) fn strip(&self, ino: Ino, object: &mut Object) {
        object
            .reserves
            .retain(|(session, _)| !self.is(ino, *session));
    }

    /// The record was written without, or is gone.
    pub(crate) fn forget(&mut self, ino: Ino) {
        if !self.by_ino.is_empty() {
            self.by_ino.remove(&ino);
        }
    }

    /// Objects whose records have waited long enough, at most `most`.
    fn due(&mut self, now: Instant, most: usize) -> Vec<Ino> {
        let mut due = Vec::new();
        while due.len() < most
            && let Some(&(since, ino)) = self.order.front()
        {
            if now.saturating_duration_since(since) < LEISURE && self.by_ino.contains_key(&ino) {
                break;
            }
            self.order.pop_front();
            if self.by_ino.contains_key(&ino) {
                due.push(ino);
            }
        }
        due
    }
}

/// Writes records that wait, as many as one round of the background's work should.
pub(crate) fn tidy(core: &Core, now: Instant) -> Result<(), MdError> {
    for _ in 0..BATCHES {
        let mut txn = core.begin(&Ctx::SERVICE)?;
        let due = txn.state.closed.due(now, BATCH);
        if due.is_empty() {
            return Ok(());
        }
        for ino in due {
            match txn.inode(ino) {
                // The commit strips it.
                Ok(mut inode) => {
                    txn.own(&mut inode);
                    txn.put_quietly(inode);
                }
                Err(MdError::NotFound) => txn.state.closed.forget(ino),
                Err(error) => return Err(error),
            }
        }
        txn.commit(crate::api::Reply::Done)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use slabfs_model::ObjectId;

    #[test]
    fn each_is_due_once_and_not_before_its_time() {
        let mut closed = Closed::new();
        let (a, b) = (ObjectId(20), ObjectId(21));
        assert!(closed.note(a, SessionId(1)) && closed.note(b, SessionId(1)));
        assert!(closed.note(a, SessionId(2)));
        assert!(closed.is(a, SessionId(2)) && !closed.is(b, SessionId(2)));
        let now = Instant::now();
        assert_eq!(closed.due(now, 9), []);
        closed.forget(a);
        assert_eq!(closed.due(now, 9), []);
        assert_eq!(closed.due(now + LEISURE * 2, 9), [b]);
        assert!(closed.order.is_empty() && closed.is(b, SessionId(1)));
        closed.reopen(b, SessionId(1));
        assert!(!closed.is(b, SessionId(1)));
    }
}
