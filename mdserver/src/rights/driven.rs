//! The lock server without a service around it, driven step by step by the model of rights. The model is next to the
//! mount's side of rights (`fs/src/client/coherence/rights/model`), where both sides are visible.
//!
//! Of the service this module has only the minimum that rights depend on: which sessions are alive, which have ended,
//! what of that is on disk, and what the lock server learns about fences. Everything else is the real code:
//! `LockServer` with its table, epochs and events, and the answers for resends. A state can be cloned, compared by its
//! hash, and restarted from what would have been on disk.
//!
//! [`Flaw`]s are mistakes that the lock server could contain. The model has to detect each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use slabfs_model::{Coords, SessionId};

use super::ops;
use super::server::LockServer;
use super::session::Pending;
use crate::api::{
    Entry, MdError, Op, Reply, Request, RightEventKind, RightGive, RightNews, RightTicket,
    RightsBegun, RightsEpoch, op,
};
use crate::sessions::Answers;

/// A mistake of the lock server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// A recalled right counts as returned when the recall is sent.
    GrantsBeforeItIsGiven,
    /// After a restart, requests do not wait for sessions that held rights before.
    ForgetsHoldersAtRestart,
    /// The record of a session is deleted at its end, though its writes may still arrive.
    ForgetsTheDeadAtRestart,
    /// The rights of a session are released at its end, though its writes may still arrive.
    GivesAwayWithoutFence,
    /// A return removes rights that were granted after it was sent.
    TakesWhatIsNotGiven,
    /// When a second session attaches, it does not wait for the first.
    LeavesAloneTheFirst,
    /// A recall is not sent.
    RecallsNothing,
}

/// The lock server to be driven; see the module documentation.
#[derive(Debug)]
pub struct Driven {
    lock_server: LockServer,
    flaw: Option<Flaw>,
    /// What would be on disk: the sessions, and whether each has ended with writes possibly in flight.
    sessions: BTreeMap<SessionId, bool>,
    /// The answers to the requests of sessions that are alive.
    answers: BTreeMap<SessionId, Answers>,
    /// The next session and the next epoch.
    next: u64,
    epoch: u64,
    /// The lock server was started while some ends were not closed.
    earlier: bool,
    entry: Entry,
}

impl Clone for Driven {
    fn clone(&self) -> Self {
        Self {
            lock_server: self.lock_server.fork(),
            flaw: self.flaw,
            sessions: self.sessions.clone(),
            answers: self.answers.clone(),
            next: self.next,
            epoch: self.epoch,
            earlier: self.earlier,
            entry: self.entry.clone(),
        }
    }
}

impl Hash for Driven {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.lock_server.hash(state);
        self.sessions.hash(state);
        for (session, answers) in &self.answers {
            session.hash(state);
            answers.hash_rest(state);
        }
        (self.next, self.epoch, self.earlier, self.rank()).hash(state);
    }
}

impl Driven {
    /// A lock server that never ran before. `entry`: the state of every object.
    #[must_use]
    pub fn new(entry: Entry, flaw: Option<Flaw>) -> Self {
        Self {
            lock_server: LockServer::new(RightsEpoch(1), BTreeSet::new(), false),
            flaw,
            sessions: BTreeMap::new(),
            answers: BTreeMap::new(),
            next: 1,
            epoch: 1,
            earlier: false,
            entry,
        }
    }

    /// Restarts the lock server.
    pub fn restart(&mut self) {
        self.answers.clear();
        self.epoch += 1000;
        let before = self.sessions.iter().filter(|(_, ended)| !**ended);
        let before: BTreeSet<SessionId> = match self.flaw {
            Some(Flaw::ForgetsHoldersAtRestart) => BTreeSet::new(),
            _ => before.map(|(&session, _)| session).collect(),
        };
        self.earlier = self.sessions.values().any(|&ended| ended);
        self.lock_server = LockServer::new(RightsEpoch(self.epoch), before, self.earlier);
    }

    /// Rank of the objects.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.entry.info.as_ref().map_or(1, |info| info.dims.len())
    }

    /// Redeclares all objects.
    pub fn declare(&mut self, rank: usize) {
        if let Some(info) = &mut self.entry.info {
            info.dims = Coords::from_elem(4, rank);
        }
        self.entry.attr.change += 1;
    }

    /// Whether requests of a session are accepted.
    #[must_use]
    pub fn is_alive(&self, session: SessionId) -> bool {
        self.sessions.get(&session) == Some(&false)
    }

    /// A strict session attaches.
    pub fn attach(&mut self) -> (SessionId, RightsBegun) {
        let session = SessionId(self.next);
        self.next += 1;
        self.sessions.insert(session, false);
        if self.flaw == Some(Flaw::LeavesAloneTheFirst) {
            self.lock_server.enter().forget_alone();
        }
        (session, self.lock_server.attach(session))
    }

    /// A session ends: no request of it is accepted any more. `clean`: it has no writes in flight either.
    pub fn end(&mut self, session: SessionId, clean: bool) {
        self.sessions.insert(session, true);
        self.answers.remove(&session);
        self.lock_server.ended(session);
        if clean || self.flaw == Some(Flaw::GivesAwayWithoutFence) {
            self.lock_server.end_session(session);
        }
        if clean || self.flaw == Some(Flaw::ForgetsTheDeadAtRestart) {
            self.sessions.remove(&session);
        }
    }

    /// Data servers stop accepting writes of sessions that have ended.
    pub fn close_fences(&mut self) {
        let ended = self.sessions.iter().filter(|(_, ended)| **ended);
        let ended: Vec<SessionId> = ended.map(|(&session, _)| session).collect();
        for session in self.lock_server.dead() {
            self.lock_server.end_session(session);
        }
        for session in ended {
            self.sessions.remove(&session);
        }
        self.earlier = false;
        self.lock_server.earlier_closed();
    }

    /// Whether some session's end is not closed.
    #[must_use]
    pub fn has_open_ends(&self) -> bool {
        self.earlier
            || self.sessions.values().any(|&ended| ended)
            || !self.lock_server.dead().is_empty()
    }

    /// Answers a request.
    ///
    /// # Errors
    /// As the service.
    pub fn call(&mut self, request: Request) -> Result<Reply, MdError> {
        let Request {
            session,
            seq,
            done_below,
            op,
        } = request;
        if !self.is_alive(session) {
            return Err(MdError::SessionLost);
        }
        if !op.changes() {
            return self.execute(session, seq, op);
        }
        let answers = self.answers.entry(session).or_default();
        if let Some(answer) = answers.find(seq, done_below) {
            return answer;
        }
        let answer = self.execute(session, seq, op);
        let answers = self.answers.entry(session).or_default();
        answers.keep(seq, answer.clone());
        answer
    }

    fn execute(&self, session: SessionId, seq: u64, op: Op) -> Result<Reply, MdError> {
        if let Op::Release(op::Release { inos }) = op {
            self.lock_server.close(session, &inos);
            return Ok(Reply::Done);
        }
        let mut lock_server = self.lock_server.enter();
        match op {
            Op::AskRight(op::AskRight { epoch, ask }) => {
                let entry = self.entry.clone();
                let reply = ops::ask_in(&mut lock_server, session, epoch, &ask, entry)?;
                if self.flaw == Some(Flaw::GrantsBeforeItIsGiven) {
                    lock_server.give_recalled();
                }
                Ok(Reply::Right(reply))
            }
            Op::GiveRights(op::GiveRights { epoch, mut gives }) => {
                if self.flaw == Some(Flaw::TakesWhatIsNotGiven) {
                    gives.iter_mut().for_each(|give| give.serial.0 = u64::MAX);
                }
                lock_server.give(session, epoch, ops::cells(gives)?);
                Ok(Reply::Done)
            }
            Op::ResetRights(op::ResetRights { held }) => {
                ops::reset_in(&mut lock_server, session, seq, held).map(Reply::RightsBegun)
            }
            Op::CancelRight(op::CancelRight { epoch, ticket }) => {
                lock_server.cancel(session, epoch, ticket);
                Ok(Reply::Done)
            }
            other => Err(MdError::Protocol(format!("{other:?}"))),
        }
    }

    /// Whether a poll would return something.
    #[must_use]
    pub fn has_news(&self, session: SessionId, epoch: RightsEpoch, seen: u64) -> bool {
        !self.is_alive(session) || self.lock_server.has_news(session, epoch, seen)
    }

    /// [`Op::RightEvents`], without waiting.
    ///
    /// # Errors
    /// As the service.
    pub fn news(
        &mut self,
        session: SessionId,
        epoch: RightsEpoch,
        seen: u64,
    ) -> Result<RightNews, MdError> {
        if !self.is_alive(session) {
            return Err(MdError::SessionLost);
        }
        let news = self
            .lock_server
            .news(session, epoch, seen, Duration::ZERO)?;
        let mut news = ops::to_wire(news, |_| Ok(self.entry.clone()))?;
        if let (RightNews::Events(events), Some(Flaw::RecallsNothing)) = (&mut news, self.flaw) {
            for event in events {
                if matches!(event.kind, RightEventKind::Recall(_)) {
                    event.kind = RightEventKind::Refused(RightTicket(u64::MAX));
                }
            }
        }
        Ok(news)
    }
}

impl LockServer {
    /// A copy on which no thread waits.
    fn fork(&self) -> LockServer {
        LockServer::of(self.enter().clone())
    }

    /// Sessions that have ended and may have writes in flight.
    fn dead(&self) -> Vec<SessionId> {
        let state = self.enter();
        let sessions = state.sessions.iter();
        sessions
            .filter(|(_, mine)| mine.ended)
            .map(|(&session, _)| session)
            .collect()
    }

    fn has_news(&self, session: SessionId, epoch: RightsEpoch, seen: u64) -> bool {
        let state = self.enter();
        let Some(mine) = state.sessions.get(&session) else {
            return state.before.contains(&session);
        };
        let newest = mine.channel.events().back().map_or(0, |last| last.number);
        !mine.channel.is_in(epoch) || newest > seen
    }
}

impl Hash for LockServer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let lock_server = self.enter();
        lock_server.latest.hash(state);
        lock_server.table.hash(state);
        (&lock_server.before, lock_server.earlier).hash(state);
        for (session, mine) in &lock_server.sessions {
            (session, mine.alone, mine.ended).hash(state);
            mine.channel.hash_rest(state);
        }
    }
}

impl super::server::State {
    /// For [`Flaw::LeavesAloneTheFirst`].
    fn forget_alone(&mut self) {
        for mine in self.sessions.values_mut().filter(|mine| mine.alone) {
            mine.end_epoch();
            mine.alone = false;
        }
    }

    /// For [`Flaw::GrantsBeforeItIsGiven`].
    fn give_recalled(&mut self) {
        let recalled = self.sessions.iter().flat_map(|(&session, mine)| {
            let events = mine.channel.events().iter();
            events.filter_map(move |event| match &event.kind {
                Pending::Recall(recall) => Some((session, mine.channel.epoch(), recall.clone())),
                _ => None,
            })
        });
        let recalled: Vec<_> = recalled.collect();
        for (session, epoch, recall) in recalled {
            let Ok(area) = recall.area.cells() else {
                continue;
            };
            let give = RightGive {
                ino: recall.ino,
                serial: recall.serial,
                keep: recall.keep,
                area: recall.area,
            };
            self.give(session, epoch, [(give, area)]);
        }
    }
}
