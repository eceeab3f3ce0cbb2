//! The lock table of one metadata server behind a mutex, and the channel of each session.
//!
//! Everything here is in memory and behind one mutex, held for microseconds and taken after the core's state. An
//! operation that gives a session anything enters with the core's state still locked, having checked there that the
//! session is alive. A session ends there first and here second. So no such operation follows [`LockServer::ended`].
//!
//! A session is known here from the time it attached as strict until its end is *closed* (`sessions/end.rs`): its
//! rights block others until no write of it can arrive any more. The table is frozen as long as some session's rights
//! are unknown: a session that was alone in its epoch and has not reported that it gave up everything; a session from
//! before the start of the lock server, which may be strict; and sessions that ended before, of which data servers
//! may still accept writes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use slabfs_model::SessionId;

use super::names::Names;
use super::session::{Mine, Pending};
use super::sizes::Questions;
use super::table::{Ask, Event, Granted, Retained, Table};
use crate::api::{Ino, MdError, News, RightGive, RightTicket, RightsBegun, RightsEpoch};
use crate::sessions::channel::{Look, poll};
use slabfs_model::BoxSet;

/// Most waiting requests of a session.
const MOST_WAITING: usize = 1 << 12;
/// Most objects of which a session may hold or request something.
const MOST_OBJECTS: usize = 1 << 20;

/// Rights of all sessions; see the module documentation.
#[derive(Debug)]
pub(crate) struct LockServer {
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
pub(super) struct State {
    /// The latest epoch.
    pub(super) latest: RightsEpoch,
    pub(super) table: Table,
    pub(super) sessions: BTreeMap<SessionId, Mine>,
    /// Sessions from before the start of the lock server that may be strict and have not reset their rights.
    pub(super) before: BTreeSet<SessionId>,
    /// Data servers may accept writes of sessions that ended before the lock server started.
    pub(super) earlier: bool,
    pub(super) questions: Questions,
    pub(super) names: Names,
    closing: bool,
    /// Notified on changes that a size query or a change of names may wait for.
    sized: Arc<Condvar>,
}

/// The outcome of a request for a right.
#[derive(Debug)]
pub(super) enum Asked {
    Granted(Granted),
    Queued,
    /// The epoch is over.
    Reset,
}

impl LockServer {
    /// A lock server whose epochs are numbered from `epoch` on. `before`: the sessions that were alive before it
    /// started; `earlier`: other sessions ended before, and may have writes in flight.
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
            sized: Arc::default(),
        };
        state.freeze();
        Self::of(state)
    }

    pub(super) fn of(state: State) -> LockServer {
        LockServer {
            state: Mutex::new(state),
        }
    }

    /// Locks it, for a request of a session that is alive; the module documentation defines who must check that.
    pub(super) fn enter(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// A strict session attaches. If another session was alone, its epoch ends.
    pub(crate) fn attach(&self, session: SessionId) -> RightsBegun {
        let mut state = self.state.lock();
        for other in state.sessions.values_mut().filter(|other| other.alone) {
            other.end_epoch();
        }
        let begun = state.begin(session);
        state.changed();
        begun
    }

    /// A session reports whether it is strict; this matters only for a session from before the start of the lock
    /// server.
    pub(crate) fn heard(&self, session: SessionId, strict: bool) {
        let mut state = self.state.lock();
        if !strict && state.before.remove(&session) {
            state.sessions.remove(&session);
            state.changed();
        }
    }

    /// A session has ended. Its requests are withdrawn; its rights stay until [`LockServer::end_session`].
    pub(crate) fn ended(&self, session: SessionId) {
        let state = &mut *self.state.lock();
        if state.before.remove(&session) {
            state.sessions.insert(session, Mine::unknown());
        }
        if let Some(mine) = state.sessions.get_mut(&session) {
            mine.ended = true;
            mine.channel.wake();
            state.table.withdraw(session);
        }
        state.questions.leave(session, |_| false);
        state.names.leave(session);
        state.changed();
    }

    /// Removes everything of a session, of which no write can arrive any more.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.before.remove(&session);
        if let Some(mine) = state.sessions.remove(&session) {
            mine.channel.wake();
            state.table.forget(session);
        }
        state.questions.leave(session, |_| false);
        state.names.leave(session);
        state.changed();
    }

    /// No data server accepts writes any more of sessions that ended before the lock server started.
    pub(crate) fn earlier_closed(&self) {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.earlier, false) {
            state.changed();
        }
    }

    /// A session has closed objects for the last time.
    pub(crate) fn close(&self, session: SessionId, inos: &[Ino]) {
        if inos.is_empty() {
            return;
        }
        let state = &mut *self.state.lock();
        let Some(mine) = state.sessions.get_mut(&session) else {
            return;
        };
        for &ino in inos {
            mine.drop_grants(ino);
            state.table.close(session, ino);
        }
        state.changed();
    }

    /// Objects are removed for good.
    pub(crate) fn gone(&self, inos: impl Iterator<Item = Ino>) {
        let mut inos = inos.peekable();
        if inos.peek().is_none() {
            return;
        }
        let mut state = self.state.lock();
        inos.for_each(|ino| state.table.gone(ino));
        state.changed();
    }

    /// The session's events after number `seen`; waits up to `wait` for one.
    pub(super) fn news(
        &self,
        session: SessionId,
        epoch: RightsEpoch,
        seen: u64,
        wait: Duration,
    ) -> Result<News<Pending>, MdError> {
        poll(&self.state, wait, |state, over| {
            let at_once = over || state.closing;
            let found = match state.sessions.get_mut(&session) {
                Some(mine) => mine.channel.fetch(epoch, seen, at_once || mine.ended),
                None if state.before.contains(&session) => Look::Found(News::Over),
                None => return Err(not_strict()),
            };
            Ok((found, None))
        })
    }

    /// Makes polls wait, or makes current and later polls return at once.
    pub(crate) fn hold_polls(&self, hold: bool) {
        let mut state = self.state.lock();
        state.closing = !hold;
        for mine in state.sessions.values() {
            mine.channel.wake();
        }
        state.sized.notify_all();
    }
}

impl State {
    /// Called after every change: updates the frozen state and queues the table's events to the sessions.
    fn changed(&mut self) {
        loop {
            self.freeze();
            let events = self.table.take_events();
            if events.is_empty() {
                break;
            }
            for (session, event) in events {
                self.notify(session, event);
            }
        }
        self.sized.notify_all();
    }

    /// Makes size queries and changes of names check again.
    pub(super) fn wake(&self) {
        self.sized.notify_all();
    }

    /// Waits for a change that a size query or a change of names may wait for.
    pub(super) fn wait(state: &mut MutexGuard<'_, State>, until: Instant) {
        let sized = Arc::clone(&state.sized);
        sized.wait_until(state, until);
    }

    /// Requests a right.
    pub(super) fn ask(
        &mut self,
        session: SessionId,
        epoch: RightsEpoch,
        ask: Ask,
    ) -> Result<Asked, MdError> {
        let mine = self.mine(session)?;
        if !mine.channel.is_in(epoch) {
            return Ok(Asked::Reset);
        }
        if self.table.waits(session, ask.ticket) {
            return Err(MdError::Invalid(
                "two requests for rights with the same ticket".into(),
            ));
        }
        let (waiting, objects) = self.table.load(session);
        if waiting >= MOST_WAITING || objects >= MOST_OBJECTS {
            return Err(MdError::Busy);
        }
        let granted = self.table.ask(session, ask);
        self.changed();
        Ok(granted.map_or(Asked::Queued, Asked::Granted))
    }

    /// Cancels a request.
    pub(super) fn cancel(&mut self, session: SessionId, epoch: RightsEpoch, ticket: RightTicket) {
        if self.is_in(session, epoch) && self.table.cancel(session, ticket) {
            self.changed();
        }
    }

    /// Processes returned rights.
    pub(super) fn give(
        &mut self,
        session: SessionId,
        epoch: RightsEpoch,
        gives: impl IntoIterator<Item = (RightGive, BoxSet)>,
    ) {
        if !self.is_in(session, epoch) {
            return;
        }
        for (give, area) in gives {
            let RightGive {
                ino, serial, keep, ..
            } = give;
            self.table.give(session, ino, serial, keep, &area);
        }
        self.changed();
    }

    /// Begins a new epoch of a session that holds only `retained`. `seq`: the sequence number of the request.
    pub(super) fn reset(
        &mut self,
        session: SessionId,
        seq: u64,
        mut retained: Vec<Retained>,
    ) -> Result<RightsBegun, MdError> {
        self.mine(session)?.channel.renew(seq)?;
        if !self.table.may_retain(session, &retained) {
            let text = "rights that the session retains conflict with another session's";
            tracing::error!(%session, "{text}");
            return Err(MdError::Invalid(text.into()));
        }
        let begun = self.begin(session);
        if begun.alone {
            // It may do everything, and will report what it holds when its epoch ends.
            retained.clear();
        }
        // Size queries about what it retains were lost: that event belonged to the previous epoch.
        let again = self
            .questions
            .leave(session, |ino| retained.iter().any(|it| it.ino == ino));
        self.names.leave(session);
        self.table.reset(session, retained);
        if let Some(mine) = self.in_epoch(session) {
            for (question, ino) in again {
                mine.notify(Pending::Size { ino, question });
            }
        }
        self.changed();
        Ok(begun)
    }

    /// The state of a strict session; also of a session from before the start of the lock server, if it acts like
    /// one.
    fn mine(&mut self, session: SessionId) -> Result<&mut Mine, MdError> {
        if self.before.contains(&session) {
            return Ok(self.sessions.entry(session).or_insert_with(Mine::unknown));
        }
        self.sessions.get_mut(&session).ok_or_else(not_strict)
    }

    fn is_in(&self, session: SessionId, epoch: RightsEpoch) -> bool {
        let mine = self.sessions.get(&session);
        mine.is_some_and(|mine| mine.channel.is_in(epoch))
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

    /// Whether other sessions that are alive may hold rights that the lock server does not know.
    pub(super) fn unknown_others(&self, session: SessionId) -> bool {
        let unknown =
            |(&id, mine): (&SessionId, &Mine)| id != session && mine.is_unknown() && !mine.ended;
        self.before.iter().any(|&id| id != session) || self.sessions.iter().any(unknown)
    }

    /// Whether polls and queries must end now.
    pub(super) fn closing(&self) -> bool {
        self.closing
    }

    /// The session, if it is strict and within an epoch.
    pub(super) fn in_epoch(&mut self, session: SessionId) -> Option<&mut Mine> {
        let mine = self.sessions.get_mut(&session)?;
        mine.is_active().then_some(mine)
    }

    /// Other sessions that have a right to write an object and can be queried.
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

    /// Queues an event of the table for a session.
    fn notify(&mut self, session: SessionId, events: Event) {
        let Some(mine) = self.sessions.get_mut(&session) else {
            return;
        };
        match events {
            Event::Granted(granted) => mine.notify(Pending::Granted(granted)),
            Event::Refused(ticket) => mine.notify(Pending::Refused(ticket)),
            Event::Recall(recall) => mine.notify(Pending::Recall(recall)),
            Event::Lost => {
                tracing::warn!(%session, "the session's rights are no longer known: it has to reset them");
                mine.end_epoch();
                self.table.withdraw(session);
            }
        }
    }
}

fn not_strict() -> MdError {
    MdError::Invalid("the session did not attach as strict".into())
}
