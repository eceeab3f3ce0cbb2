//! The home without a service around it, to be driven step by step: for the model of rights, which lies with
//! the mount's side of them (`fs/src/client/rights/model`), since that is where both can be seen.
//!
//! What is here of the service besides rights is the least that they rest on: which sessions live, which have
//! ended, what of that is on disk, and what the home is told about fences. Everything else is the real thing:
//! `Home` with its table, lives, events and kept replies. A state can be cloned, compared by its hash, and
//! started anew from what would have been on disk.
//!
//! [`Flaw`]s are mistakes that the home could have been written with. The model has to see each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use slabfs_model::{Coords, SessionId};

use super::area::Area;
use super::home::Home;
use super::ops;
use super::session::{Number, Pending};
use crate::api::{
    Entry, Ino, MdError, Reply, RightAsk, RightEventKind, RightGive, RightKept, RightNews,
    RightReply, RightTicket, RightsBegun, RightsLife,
};

/// A mistake of the home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// What was recalled counts as given when the recall is sent.
    GrantsBeforeItIsGiven,
    /// After a restart nobody is waited for who had rights before.
    ForgetsHoldersAtRestart,
    /// The record of a session goes at its end, though its writes may still arrive.
    ForgetsTheDeadAtRestart,
    /// What a session has goes with its end, though its writes may still arrive.
    GivesAwayWithoutFence,
    /// A giving takes what was granted after it was sent.
    TakesWhatIsNotGiven,
    /// When a second session comes, the first is not waited for.
    LeavesAloneTheFirst,
    /// A recall is not sent.
    RecallsNothing,
}

/// See the module's head.
#[derive(Debug)]
pub struct Driven {
    home: Home,
    flaw: Option<Flaw>,
    /// What would be on disk: sessions, and which of them have ended with writes on their way.
    sessions: BTreeMap<SessionId, bool>,
    /// The next session and the next life.
    next: u64,
    life: u64,
    /// The home was started with ends that are not closed.
    earlier: bool,
    entry: Entry,
}

impl Clone for Driven {
    fn clone(&self) -> Self {
        Self {
            home: self.home.fork(),
            flaw: self.flaw,
            sessions: self.sessions.clone(),
            next: self.next,
            life: self.life,
            earlier: self.earlier,
            entry: self.entry.clone(),
        }
    }
}

impl Hash for Driven {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.home.hash(state);
        self.sessions.hash(state);
        (self.next, self.life, self.earlier, self.rank()).hash(state);
    }
}

impl Driven {
    /// A home that was never started before. `entry`: of all objects there are.
    #[must_use]
    pub fn new(entry: Entry, flaw: Option<Flaw>) -> Self {
        Self {
            home: Home::new(RightsLife(1), BTreeSet::new(), false),
            flaw,
            sessions: BTreeMap::new(),
            next: 1,
            life: 1,
            earlier: false,
            entry,
        }
    }

    /// The home is started anew.
    pub fn restart(&mut self) {
        self.life += 1000;
        let before = self.sessions.iter().filter(|(_, ended)| !**ended);
        let before: BTreeSet<SessionId> = match self.flaw {
            Some(Flaw::ForgetsHoldersAtRestart) => BTreeSet::new(),
            _ => before.map(|(&session, _)| session).collect(),
        };
        self.earlier = self.sessions.values().any(|&ended| ended);
        self.home = Home::new(RightsLife(self.life), before, self.earlier);
    }

    /// Dims that objects have.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.entry.info.as_ref().map_or(1, |info| info.dims.len())
    }

    /// All objects are declared anew.
    pub fn declare(&mut self, rank: usize) {
        if let Some(info) = &mut self.entry.info {
            info.dims = Coords::from_elem(4, rank);
        }
        self.entry.attr.change += 1;
    }

    /// Whether requests of a session are heard.
    #[must_use]
    pub fn lives(&self, session: SessionId) -> bool {
        self.sessions.get(&session) == Some(&false)
    }

    fn check(&self, session: SessionId) -> Result<(), MdError> {
        self.lives(session)
            .then_some(())
            .ok_or(MdError::SessionLost)
    }

    /// A strict session attaches.
    pub fn attach(&mut self) -> (SessionId, RightsBegun) {
        let session = SessionId(self.next);
        self.next += 1;
        self.sessions.insert(session, false);
        if self.flaw == Some(Flaw::LeavesAloneTheFirst) {
            self.home.enter().state.forget_alone();
        }
        (session, self.home.attach(session))
    }

    /// A session ends: nothing of it is heard any more. `clean`: nor is anything on its way.
    pub fn end(&mut self, session: SessionId, clean: bool) {
        self.sessions.insert(session, true);
        self.home.ended(session);
        if clean || self.flaw == Some(Flaw::GivesAwayWithoutFence) {
            self.home.end_session(session);
        }
        if clean || self.flaw == Some(Flaw::ForgetsTheDeadAtRestart) {
            self.sessions.remove(&session);
        }
    }

    /// Data servers take nothing any more of sessions that do not live.
    pub fn close_fences(&mut self) {
        let ended = self.sessions.iter().filter(|(_, ended)| **ended);
        let ended: Vec<SessionId> = ended.map(|(&session, _)| session).collect();
        for session in self.home.dead() {
            self.home.end_session(session);
        }
        for session in ended {
            self.sessions.remove(&session);
        }
        self.earlier = false;
        self.home.earlier_closed();
    }

    /// Whether somebody's end is not closed.
    #[must_use]
    pub fn has_open_ends(&self) -> bool {
        self.earlier || self.sessions.values().any(|&ended| ended) || !self.home.dead().is_empty()
    }

    /// [`crate::api::Op::AskRight`].
    ///
    /// # Errors
    /// As the service; so do those below.
    pub fn ask(
        &mut self,
        (session, seq, done_below): (SessionId, u64, u64),
        life: RightsLife,
        ask: &RightAsk,
    ) -> Result<RightReply, MdError> {
        self.check(session)?;
        let number = Number { seq, done_below };
        let entry = || Ok(self.entry.clone());
        let reply = ops::ask_in(&mut self.home.enter(), session, number, life, ask, entry)?;
        if self.flaw == Some(Flaw::GrantsBeforeItIsGiven) {
            self.home.enter().give_recalled();
        }
        match reply {
            Reply::Right(reply) => Ok(reply),
            other => Err(MdError::Protocol(format!("{other:?}"))),
        }
    }

    /// [`crate::api::Op::GiveRights`].
    pub fn give(
        &mut self,
        (session, seq, done_below): (SessionId, u64, u64),
        life: RightsLife,
        mut gives: Vec<RightGive>,
    ) -> Result<(), MdError> {
        self.check(session)?;
        if self.flaw == Some(Flaw::TakesWhatIsNotGiven) {
            gives.iter_mut().for_each(|give| give.serial.0 = u64::MAX);
        }
        let areas = gives.iter().map(|give| Area::from_wire(&give.area));
        let areas: Vec<Area> = areas.collect::<Result<_, _>>()?;
        let number = Number { seq, done_below };
        ops::give_in(&mut self.home.enter(), session, number, life, gives, areas)?;
        Ok(())
    }

    /// [`crate::api::Op::ResetRights`].
    pub fn reset(
        &mut self,
        (session, seq, done_below): (SessionId, u64, u64),
        kept: Vec<RightKept>,
    ) -> Result<RightsBegun, MdError> {
        self.check(session)?;
        let number = Number { seq, done_below };
        let areas = kept.iter().map(|kept| Area::from_wire(&kept.area));
        let areas: Vec<Area> = areas.collect::<Result<_, _>>()?;
        match ops::reset_in(&mut self.home.enter(), session, number, seq, kept, areas)? {
            Reply::RightsBegun(begun) => Ok(begun),
            other => Err(MdError::Protocol(format!("{other:?}"))),
        }
    }

    /// [`crate::api::Op::CancelRight`].
    pub fn cancel(
        &mut self,
        session: SessionId,
        life: RightsLife,
        ticket: RightTicket,
    ) -> Result<(), MdError> {
        self.check(session)?;
        self.home.enter().cancel(session, life, ticket);
        Ok(())
    }

    /// A session releases an object for the last time.
    pub fn close(&mut self, session: SessionId, ino: Ino) -> Result<(), MdError> {
        self.check(session)?;
        self.home.close(session, &[ino]);
        Ok(())
    }

    /// Whether a poll would be told something.
    #[must_use]
    pub fn has_news(&self, session: SessionId, life: RightsLife, seen: u64) -> bool {
        !self.lives(session) || self.home.has_news(session, life, seen)
    }

    /// [`crate::api::Op::RightEvents`], without waiting.
    pub fn news(
        &mut self,
        session: SessionId,
        life: RightsLife,
        seen: u64,
    ) -> Result<RightNews, MdError> {
        self.check(session)?;
        let heard = self.home.news(session, life, seen, Duration::ZERO);
        let mut news = ops::tell(heard, |_| Ok(self.entry.clone()))?;
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

impl Home {
    /// A copy, of which nobody waits for anything.
    fn fork(&self) -> Home {
        Home {
            state: parking_lot::Mutex::new(self.enter().state.clone()),
            sized: parking_lot::Condvar::new(),
        }
    }

    /// Sessions that have ended, and may have writes on their way.
    fn dead(&self) -> Vec<SessionId> {
        let inside = self.enter();
        let sessions = inside.state.sessions.iter();
        sessions
            .filter(|(_, mine)| mine.ended)
            .map(|(&session, _)| session)
            .collect()
    }

    fn has_news(&self, session: SessionId, life: RightsLife, seen: u64) -> bool {
        let inside = self.enter();
        let Some(mine) = inside.state.sessions.get(&session) else {
            return inside.state.before.contains(&session);
        };
        let newest = mine.news.back().map_or(0, |(number, _)| *number);
        mine.over || mine.life != life || newest > seen
    }
}

impl Hash for Home {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let inside = self.enter();
        let home = &*inside.state;
        home.latest.hash(state);
        home.table.hash(state);
        (&home.before, home.earlier).hash(state);
        for (session, mine) in &home.sessions {
            (session, mine.life, mine.alone, mine.over, mine.ended).hash(state);
            mine.hash_rest(state);
        }
    }
}

impl super::home::State {
    /// For [`Flaw::LeavesAloneTheFirst`].
    fn forget_alone(&mut self) {
        for mine in self.sessions.values_mut().filter(|mine| mine.alone) {
            mine.end_life();
            mine.alone = false;
        }
    }
}

impl super::home::Inside<'_> {
    /// For [`Flaw::GrantsBeforeItIsGiven`].
    fn give_recalled(&mut self) {
        let recalled = self.state.sessions.iter().flat_map(|(&session, mine)| {
            mine.news.iter().filter_map(move |(_, what)| match what {
                Pending::Recall(recall) => Some((session, mine.life, recall.clone())),
                _ => None,
            })
        });
        let recalled: Vec<_> = recalled.collect();
        for (session, life, recall) in recalled {
            let Ok(area) = Area::from_wire(&recall.area) else {
                continue;
            };
            let give = RightGive {
                ino: recall.ino,
                serial: recall.serial,
                keep: recall.keep,
                area: recall.area,
            };
            self.give(session, life, [(give, area)].into_iter());
        }
    }
}
