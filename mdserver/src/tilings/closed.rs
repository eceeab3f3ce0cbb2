//! Reservations that have no effect any more, because their session closed the object, but that are still in its
//! record.
//!
//! The creator of an object has a reservation in its record, and nearly always closes the object and does not open it
//! again: removing the reservation at the close would write each new record twice. So it is removed when the record
//! is written anyway, or later in the background, many in one batch. Until then it is ignored ([`mod@super::reserve`]).
//! If a restart loses this list, the next client that grows the object has to check for a tail that is not there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use foldhash::{HashMap, HashMapExt};
use slabfs_model::SessionId;
use smallvec::SmallVec;

use crate::api::{Ino, MdError};
use crate::core::{Core, Ctx};
use crate::records::Object;

/// How long a record may wait to be written for another reason.
const LEISURE: Duration = Duration::from_secs(3);
/// Most waiting objects; beyond that a close removes its reservation at once.
const MOST: usize = 1 << 17;
/// Records written in one batch, for which the state is locked.
const BATCH: usize = 32;
/// Batches per round of the background thread.
const BATCHES: usize = 128;

/// The list; see the module documentation.
#[derive(Debug)]
pub(crate) struct Closed {
    by_ino: HashMap<Ino, SmallVec<[SessionId; 1]>>,
    /// In the order of closing; some entries are stale.
    order: VecDeque<(Instant, Ino)>,
}

impl Closed {
    pub(crate) fn new() -> Self {
        Self {
            by_ino: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Records that the reservation of `session` has no effect any more; false if it has to be removed at once.
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

    /// The session makes a new reservation.
    pub(crate) fn reopen(&mut self, ino: Ino, session: SessionId) {
        if let Some(sessions) = self.by_ino.get_mut(&ino) {
            sessions.retain(|closed| *closed != session);
        }
    }

    /// Whether the reservation of `session` has no effect any more.
    pub(crate) fn is(&self, ino: Ino, session: SessionId) -> bool {
        !self.by_ino.is_empty()
            && self
                .by_ino
                .get(&ino)
                .is_some_and(|sessions| sessions.contains(&session))
    }

    /// Whether the record of `object` has any reservation to remove.
    pub(crate) fn any(&self, ino: Ino, object: &Object) -> bool {
        object
            .reserves
            .iter()
            .any(|(session, _)| self.is(ino, *session))
    }

    /// Removes such reservations from `object`, whose record is about to be written.
    pub(crate) fn strip(&self, ino: Ino, object: &mut Object) {
        object
            .reserves
            .retain(|(session, _)| !self.is(ino, *session));
    }

    /// The record was written without them, or is gone.
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

/// Writes waiting records, as many as one round of the background thread should.
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
        txn.commit(())?;
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
