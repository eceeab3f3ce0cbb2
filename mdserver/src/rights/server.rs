//! The table behind a lock, with what it takes to serve sessions: lives, events, resends.
//!
//! Everything here is in memory and behind one lock, held for microseconds and taken after the core's state.
//! What gives a session anything enters with that state still locked, having seen there that the session
//! lives; a session ends there first and here second. So nothing of it comes after [`LockServer::ended`].
//!
//! A session is known here from the time it attached as strict until its end is *closed*
//! (`sessions/end.rs`): what it has stays in the way of others until nothing of it can arrive any more. As long
//! as somebody's rights are unknown the table is frozen: a session that was alone in its epoch and has not
//! said that it gave up everything; one from before the lock server was started, which may be a strict one; and
//! those that ended before, of which data servers may still take writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use slabfs_model::SessionId;

use super::area::Area;
use super::names::Names;
use super::session::{Heard, Mine, Number, Pending};
use super::sizes::Questions;
use super::table::{Ask, Event, Granted, Kept, Table};
use crate::api::{Ino, MdError, Reply, RightGive, RightTicket, RightsBegun, RightsEpoch};

/// Most asks of a session that may wait.
const MOST_WAITING: usize = 1 << 12;
/// Most objects of which a session may have or want something.
const MOST_OBJECTS: usize = 1 << 20;
/// Longest that a poll waits.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// Rights of all sessions; see the module's head.
#[derive(Debug)]
pub(crate) struct LockServer {
    pub(super) state: Mutex<State>,
    /// Something changed that whoever wants to know a size may wait for.
    pub(super) sized: Condvar,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    /// The epoch that began last.
    pub(super) latest: RightsEpoch,
    pub(super) table: Table,
    pub(super) sessions: BTreeMap<SessionId, Mine>,
    /// Sessions from before the lock server was started that may be strict, and have not begun anew.
    pub(super) before: BTreeSet<SessionId>,
    /// Data servers may take writes of sessions that ended before the lock server was started.
    pub(super) earlier: bool,
    pub(super) questions: Questions,
    pub(super) names: Names,
    closing: bool,
}

/// What became of an ask.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(Granted),
    Queued,
    /// The epoch is over.
    Reset,
}

impl LockServer {
    /// A lock server whose lives are numbered from `epoch` on. `before`: the sessions that live since before it;
    /// `earlier`: others ended before, and may have writes on their way.
    pub(crate) fn new(
        epoch: RightsEpoch,
        before: BTreeSet<SessionId>,
        earlier: bool,
    ) -> LockServer {
        let mut state = State {
            latest: epoch,
            table: Table::default(),
            sessions: BTreeMap::new(),
            before,
            earlier,
            questions: Questions::default(),
            names: Names::new(epoch),
            closing: false,
        };
        state.freeze();
        LockServer {
            state: Mutex::new(state),
            sized: Condvar::new(),
        }
    }

    /// Locks it, for requests of a session that lives; see the module's head for who has to know that.
    pub(super) fn enter(&self) -> Inside<'_> {
        Inside {
            lock_server: self,
            state: self.state.lock(),
        }
    }

    /// A strict session attaches. One that was alone is not so any more: its epoch is over.
    pub(crate) fn attach(&self, session: SessionId) -> RightsBegun {
        let mut state = self.state.lock();
        for other in state.sessions.values_mut().filter(|other| other.alone) {
            other.end_epoch();
        }
        let begun = state.begin(session);
        self.changed(&mut state);
        begun
    }

    /// A session says whether it is strict: news only of one from before the lock server was started.
    pub(crate) fn heard(&self, session: SessionId, strict: bool) {
        let mut state = self.state.lock();
        if !strict && state.before.remove(&session) {
            state.sessions.remove(&session);
            self.changed(&mut state);
        }
    }

    /// A session has ended. It wants nothing any more; what it has stays until [`LockServer::end_session`].
    pub(crate) fn ended(&self, session: SessionId) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.before.remove(&session) {
            state.sessions.insert(session, Mine::unknown());
        }
        if let Some(mine) = state.sessions.get_mut(&session) {
            mine.ended = true;
            mine.wake.notify_all();
            state.table.withdraw(session);
        }
        state.questions.leave(session, |_| false);
        state.names.leave(session);
        self.changed(state);
    }

    /// Takes away everything of a session of which nothing can arrive any more.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.before.remove(&session);
        if let Some(mine) = state.sessions.remove(&session) {
            mine.wake.notify_all();
            state.table.forget(session);
        }
        state.questions.leave(session, |_| false);
        state.names.leave(session);
        self.changed(&mut state);
    }

    /// No data server takes a write any more of a session that ended before the lock server was started.
    pub(crate) fn earlier_closed(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.earlier, false) {
            self.changed(&mut state);
        }
    }

    /// A session has closed objects for the last time.
    pub(crate) fn close(&self, session: SessionId, inos: &[Ino]) {
        if inos.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        let Some(mine) = state.sessions.get_mut(&session) else {
            return;
        };
        for &ino in inos {
            mine.drop_grants(ino);
            state.table.close(session, ino);
        }
        self.changed(state);
    }

    /// Objects are gone for good.
    pub(crate) fn gone(&self, inos: impl Iterator<Item = Ino>) {
        let mut inos = inos.peekable();
        if inos.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        inos.for_each(|ino| state.table.gone(ino));
        self.changed(&mut state);
    }

    /// The session's events after number `seen`; waits up to `wait` for one. Nothing if it is no strict
    /// session.
    pub(super) fn news(
        &self,
        session: SessionId,
        epoch: RightsEpoch,
        seen: u64,
        wait: Duration,
    ) -> Option<Heard> {
        let until = Instant::now() + wait.min(LONGEST_POLL);
        let mut state = self.state.lock();
        loop {
            let closing = state.closing;
            let Some(mine) = state.sessions.get_mut(&session) else {
                return state.before.contains(&session).then_some(Heard::Reset);
            };
            if mine.over || mine.epoch != epoch {
                return Some(Heard::Reset);
            }
            mine.has(seen);
            let over = Instant::now() >= until;
            if !mine.news.is_empty() || mine.ended || closing || over {
                return Some(Heard::Events(mine.next()));
            }
            let wake = Arc::clone(&mine.wake);
            wake.wait_until(&mut state, until);
        }
    }

    /// Lets polls wait, or return at once: now, and from now on.
    pub(crate) fn hold_polls(&self, hold: bool) {
        let mut state = self.state.lock();
        state.closing = !hold;
        for mine in state.sessions.values() {
            mine.wake.notify_all();
        }
        self.sized.notify_all();
    }

    /// After every change: what became known or unknown, and who has to hear what.
    fn changed(&self, state: &mut State) {
        loop {
            state.freeze();
            let events = state.table.take_events();
            if events.is_empty() {
                break;
            }
            events
                .into_iter()
                .for_each(|(session, events)| state.tell(session, events));
        }
        self.sized.notify_all();
    }
}

/// The lock server, locked.
pub(super) struct Inside<'a> {
    lock_server: &'a LockServer,
    pub(super) state: MutexGuard<'a, State>,
}

impl Inside<'_> {
    /// The reply to a request that was answered already.
    pub(super) fn answered(
        &mut self,
        session: SessionId,
        number: Number,
    ) -> Result<Option<Reply>, MdError> {
        self.state.mine(session)?.answered(number)
    }

    /// Keeps a reply for a request that comes again.
    pub(super) fn keep(&mut self, session: SessionId, number: Number, reply: &Reply) {
        if let Ok(mine) = self.state.mine(session) {
            mine.keep(number, reply);
        }
    }

    /// Asks for a right.
    pub(super) fn ask(
        &mut self,
        session: SessionId,
        epoch: RightsEpoch,
        ask: Ask,
    ) -> Result<Asked, MdError> {
        let state = &mut *self.state;
        let mine = state.mine(session)?;
        if mine.over || mine.epoch != epoch {
            return Ok(Asked::Reset);
        }
        if state.table.waits(session, ask.ticket) {
            return Err(MdError::Invalid("two asks with one number".into()));
        }
        let (waiting, objects) = state.table.load(session);
        if waiting >= MOST_WAITING || objects >= MOST_OBJECTS {
            return Err(MdError::Busy);
        }
        let granted = state.table.ask(session, ask);
        self.lock_server.changed(state);
        Ok(granted.map_or(Asked::Queued, Asked::Granted))
    }

    /// Takes an ask back.
    pub(super) fn cancel(&mut self, session: SessionId, epoch: RightsEpoch, ticket: RightTicket) {
        let state = &mut *self.state;
        if state.is_in(session, epoch) && state.table.cancel(session, ticket) {
            self.lock_server.changed(state);
        }
    }

    /// Takes in what a session gives back.
    pub(super) fn give(
        &mut self,
        session: SessionId,
        epoch: RightsEpoch,
        gives: impl Iterator<Item = (RightGive, Area)>,
    ) {
        let state = &mut *self.state;
        if !state.is_in(session, epoch) {
            return;
        }
        for (give, area) in gives {
            let RightGive {
                ino, serial, keep, ..
            } = give;
            state.table.give(session, ino, serial, keep, &area);
        }
        self.lock_server.changed(state);
    }

    /// Begins an epoch of a session that has nothing but `kept`. `seq`: the number of the request that says so.
    pub(super) fn reset(
        &mut self,
        session: SessionId,
        seq: u64,
        mut kept: Vec<Kept>,
    ) -> Result<RightsBegun, MdError> {
        let state = &mut *self.state;
        if !state.mine(session)?.resets(seq) {
            // A copy that was long on its way. The session has begun anew since, and may have rights.
            return Err(MdError::Stale);
        }
        if !state.table.may_keep(session, &kept) {
            let text = "what the session says that it keeps goes against what others have";
            tracing::error!(%session, "{text}");
            return Err(MdError::Invalid(text.into()));
        }
        let begun = state.begin(session);
        if begun.alone {
            // It may do everything, and will say what it keeps when it may not any more.
            kept.clear();
        }
        // Who wants to know the size of what it keeps has not been told: that event was of the epoch before.
        let again = state
            .questions
            .leave(session, |ino| kept.iter().any(|it| it.ino == ino));
        state.names.leave(session);
        state.table.begin_anew(session, kept);
        if let Some(mine) = state.in_epoch(session) {
            for (question, ino) in again {
                mine.tell(Pending::Size { ino, question });
            }
        }
        self.lock_server.changed(state);
        Ok(begun)
    }
}

impl State {
    /// What is kept of a strict session; of one from before the lock server was started, if it acts like one.
    fn mine(&mut self, session: SessionId) -> Result<&mut Mine, MdError> {
        if self.before.contains(&session) {
            return Ok(self.sessions.entry(session).or_insert_with(Mine::unknown));
        }
        self.sessions
            .get_mut(&session)
            .ok_or_else(|| MdError::Invalid("the session did not attach as strict".into()))
    }

    fn is_in(&self, session: SessionId, epoch: RightsEpoch) -> bool {
        let mine = self.sessions.get(&session);
        mine.is_some_and(|mine| !mine.over && mine.epoch == epoch)
    }

    /// Begins an epoch of a session.
    fn begin(&mut self, session: SessionId) -> RightsBegun {
        self.before.remove(&session);
        self.latest = RightsEpoch(self.latest.0 + 1);
        let epoch = self.latest;
        let others = self.sessions.keys().any(|&other| other != session);
        let alone = !others && self.before.is_empty() && !self.earlier;
        match self.sessions.get_mut(&session) {
            Some(mine) => mine.begin(epoch, alone),
            None => {
                self.sessions.insert(session, Mine::new(epoch, alone));
            }
        }
        RightsBegun { epoch, alone }
    }

    /// Whether others that live may have rights that are not known here.
    pub(super) fn unknown_others(&self, session: SessionId) -> bool {
        let unknown =
            |(&id, mine): (&SessionId, &Mine)| id != session && mine.is_unknown() && !mine.ended;
        self.before.iter().any(|&id| id != session) || self.sessions.iter().any(unknown)
    }

    /// Whether polls and questions are to end now.
    pub(super) fn closing(&self) -> bool {
        self.closing
    }

    /// The session, if it is a strict one and within an epoch.
    pub(super) fn in_epoch(&mut self, session: SessionId) -> Option<&mut Mine> {
        let mine = self.sessions.get_mut(&session)?;
        (!mine.over && !mine.ended).then_some(mine)
    }

    /// Others that have a right to write an object and can be asked something.
    pub(super) fn writers(&self, ino: Ino, but: SessionId) -> BTreeSet<SessionId> {
        let writers = self.table.writers(ino).filter(|&id| id != but);
        let listens = |id: &SessionId| self.sessions.get(id).is_some_and(Mine::listens);
        writers.filter(listens).collect()
    }

    fn freeze(&mut self) {
        let frozen =
            self.earlier || !self.before.is_empty() || self.sessions.values().any(Mine::is_unknown);
        if frozen != self.table.is_frozen() {
            self.table.freeze(frozen);
        }
    }

    /// Puts what the table has to say among the session's events.
    fn tell(&mut self, session: SessionId, events: Event) {
        let Some(mine) = self.sessions.get_mut(&session) else {
            return;
        };
        match events {
            Event::Granted(granted) => mine.tell(Pending::Granted(granted)),
            Event::Refused(ticket) => mine.tell(Pending::Refused(ticket)),
            Event::Recall(recall) => mine.tell(Pending::Recall(recall)),
            Event::Lost => {
                tracing::warn!(%session, "what the session has is not known any more: it begins anew");
                mine.end_epoch();
                self.table.withdraw(session);
            }
        }
    }
}
