//! The lock table of one metadata server behind a mutex, the channel of each session, and the grace period.
//!
//! Everything here is in memory and behind one mutex, held for microseconds and taken after the core's state. An
//! operation that gives a session anything enters with the core's state still locked, having checked there that the
//! session is alive. A session ends there first and here second. So no such operation follows
//! [`LockServer::end_session`]. A poll waits on its session's own condition variable.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use slabfs_model::SessionId;

use super::table::{Holder, Place, Row, Table, Taken, Wanted};
use super::tries::Tries;
use crate::api::{
    HeldLocks, Ino, LockAsk, LockDecision, LockEpoch, LockKind, LockMode, LockNews, LockOutcome,
    LockReply, LockSpan, LockTicket, LockWant, LocksReclaimed, LostLocks, MdError,
};
use crate::sessions::channel::{Channel, Look, poll};

/// Most spans that a session may hold; more than any sensible program needs.
const MOST_HELD: usize = 1 << 20;
/// Most waiting requests of a session.
const MOST_WAITING: usize = 1 << 16;

/// Locks of all sessions; see the module documentation.
#[derive(Debug)]
pub(crate) struct LockServer {
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// The lock server's own epoch, and the latest epoch of any session.
    epoch: LockEpoch,
    latest: LockEpoch,
    pub(super) table: Table,
    sessions: HashMap<SessionId, Mine>,
    pub(super) tries: Tries,
    grace: Option<Grace>,
    closing: bool,
}

/// The grace period: sessions from before this epoch may still reclaim what they hold.
#[derive(Debug)]
struct Grace {
    missing: BTreeSet<SessionId>,
    until: Instant,
    /// Requests to be decided when it ends, in order of arrival.
    asked: VecDeque<(SessionId, LockAsk)>,
}

/// The state of one session.
#[derive(Debug)]
pub(super) struct Mine {
    pub(super) channel: Channel<LockDecision>,
    /// The locks it has reclaimed so far (as in NFSv4), until it has reclaimed all.
    claimed: Vec<HeldLocks>,
    /// Number of changes of its locks so far.
    changes: u64,
    /// Spans it holds; an upper bound, recounted when it becomes too large.
    held: usize,
    pub(super) waiting: HashSet<LockTicket>,
}

impl Mine {
    fn new(channel: Channel<LockDecision>) -> Mine {
        Mine {
            channel,
            claimed: Vec::new(),
            changes: 0,
            held: 0,
            waiting: HashSet::new(),
        }
    }

    fn changed(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    pub(super) fn notify(&mut self, ticket: LockTicket, outcome: LockOutcome, change: Option<u64>) {
        if outcome != LockOutcome::Waits {
            self.waiting.remove(&ticket);
        }
        self.channel.notify(LockDecision {
            ticket,
            outcome,
            change,
        });
    }
}

impl LockServer {
    /// A lock server that begins its epoch. `before`: the sessions that may hold locks from the last epoch, and have
    /// until `until` to reclaim them.
    pub(crate) fn new(epoch: LockEpoch, before: BTreeSet<SessionId>, until: Instant) -> LockServer {
        let grace = (!before.is_empty()).then(|| Grace {
            missing: before,
            until,
            asked: VecDeque::new(),
        });
        LockServer {
            state: Mutex::new(State {
                epoch,
                latest: epoch,
                table: Table::default(),
                sessions: HashMap::new(),
                tries: Tries::default(),
                grace,
                closing: false,
            }),
        }
    }

    /// Its epoch.
    pub(crate) fn epoch(&self) -> LockEpoch {
        self.state.lock().epoch
    }

    /// Locks it, for a request of a session that is alive; the module documentation defines who must check that.
    pub(super) fn enter(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Cancels a request; returns whether it waited.
    pub(super) fn cancel(&self, session: SessionId, ticket: LockTicket) -> bool {
        let mut state = self.state.lock();
        let deferred = state.grace.as_mut().is_some_and(|grace| {
            let before = grace.asked.len();
            grace
                .asked
                .retain(|(by, ask)| *by != session || ask.ticket != ticket);
            grace.asked.len() < before
        });
        let cancelled =
            deferred || state.tries.cancel(session, ticket) || state.table.cancel(session, ticket);
        if cancelled {
            let mine = state.mine(session);
            mine.waiting.remove(&ticket);
            mine.channel.wake();
        }
        state.notify_decided();
        cancelled
    }

    /// The session's events after number `seen`. Waits up to `wait` for one, as long as some request could cause one.
    pub(super) fn news(
        &self,
        session: SessionId,
        epoch: LockEpoch,
        seen: u64,
        wait: Duration,
    ) -> Result<LockNews, MdError> {
        poll(&self.state, wait, |state, over| {
            state.refuse_late(session);
            let again = state.tries.first_end(session);
            let at_once = over || state.closing;
            let found = match state.sessions.get_mut(&session) {
                Some(mine) => {
                    let at_once = at_once || mine.waiting.is_empty();
                    mine.channel.fetch(epoch, seen, at_once)
                }
                // It has made no request yet.
                None if state.epoch == epoch => Look::Found(LockNews::Events(Vec::new())),
                None => Look::Found(LockNews::Over),
            };
            Ok((found, again))
        })
    }

    /// [`Table::list`].
    pub(super) fn list(&self, ino: Option<Ino>, most: usize) -> (Vec<Row>, u64) {
        self.state.lock().table.list(ino, most)
    }

    /// Removes everything of a session that has ended.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.table.end_session(session);
        state.tries.forget_session(session);
        if let Some(mine) = state.sessions.remove(&session) {
            mine.channel.wake();
        }
        if let Some(grace) = &mut state.grace {
            grace.asked.retain(|(by, _)| *by != session);
        }
        state.is_here(session);
        state.notify_decided();
        state.try_again(None);
    }

    /// Ends the grace period when its time is over.
    pub(crate) fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.grace.as_ref().is_some_and(|grace| now >= grace.until) {
            state.end_grace();
        }
    }

    /// Makes polls wait, or makes current and later polls return at once.
    pub(crate) fn hold_polls(&self, hold: bool) {
        let mut state = self.state.lock();
        state.closing = !hold;
        for mine in state.sessions.values() {
            mine.channel.wake();
        }
    }
}

impl State {
    /// Answers a request.
    pub(super) fn ask(&mut self, session: SessionId, epoch: LockEpoch, ask: LockAsk) -> LockReply {
        if !self.mine(session).channel.is_in(epoch) {
            return LockReply::Reclaim;
        }
        let tried = ask.kind == LockKind::File && !self.tries.is_empty();
        let tried = tried.then(|| Place::of(&ask));
        let reply = match &mut self.grace {
            Some(grace) if !matches!(ask.want, LockWant::Unlock | LockWant::Ending) => {
                let ticket = ask.ticket;
                grace.asked.push_back((session, ask));
                self.mine(session).waiting.insert(ticket);
                LockReply::Queued { change: None }
            }
            _ => self.decide(session, &ask),
        };
        self.notify_decided();
        if let Some(place) = tried {
            self.try_again(Some(&place));
        }
        reply
    }

    /// Records locks that a session reclaims. The last part completes the list: the session then holds exactly these,
    /// and none of its requests waits. `seq`: the sequence number of the request. Returns what it has lost, and its
    /// epoch.
    pub(super) fn reclaim(
        &mut self,
        session: SessionId,
        seq: u64,
        held: Vec<HeldLocks>,
        first: bool,
        last: bool,
    ) -> Result<LocksReclaimed, MdError> {
        let mine = self.mine(session);
        mine.channel.renew(seq)?;
        if first {
            mine.claimed.clear();
        }
        mine.claimed.extend(held);
        let spans: usize = mine.claimed.iter().map(|one| one.spans.len()).sum();
        if spans > MOST_HELD {
            mine.claimed.clear();
            return Err(MdError::Invalid(format!("more than {MOST_HELD} locks")));
        }
        let lost = if last {
            self.replace(session)
        } else {
            Vec::new()
        };
        let epoch = self.mine(session).channel.epoch();
        Ok(LocksReclaimed { lost, epoch })
    }

    pub(super) fn mine(&mut self, session: SessionId) -> &mut Mine {
        let (epoch, grace) = (self.epoch, &self.grace);
        self.sessions.entry(session).or_insert_with(|| {
            // A session from before this lock server has to reclaim its locks first.
            let before = grace
                .as_ref()
                .is_some_and(|grace| grace.missing.contains(&session));
            Mine::new(match before {
                true => Channel::unknown(),
                false => Channel::new(epoch),
            })
        })
    }

    /// Replaces a session's locks by what it reclaimed, and begins an epoch with that; returns the parts that others
    /// hold.
    fn replace(&mut self, session: SessionId) -> Vec<LostLocks> {
        self.latest = LockEpoch(self.latest.0 + 1);
        let epoch = self.latest;
        let mine = self.mine(session);
        let claimed = std::mem::take(&mut mine.claimed);
        mine.channel.begin(epoch);
        mine.changes = 0;
        mine.waiting.clear();
        self.tries.forget_session(session);
        let lost = self.table.replace(session, claimed);
        self.mine(session).held = self.table.count(session);
        for one in &lost {
            tracing::warn!(
                %session, ino = %one.file.ino, parts = one.spans.len(),
                "others hold locks that a session reclaims: it lost them, or was releasing them when it lost contact"
            );
        }
        if let Some(grace) = &mut self.grace {
            grace.asked.retain(|(by, _)| *by != session);
        }
        self.is_here(session);
        self.notify_decided();
        self.try_again(None);
        lost
    }

    fn decide(&mut self, session: SessionId, ask: &LockAsk) -> LockReply {
        let place = Place::of(ask);
        let wanted = |mode| Wanted {
            holder: Holder {
                session,
                owner: ask.owner,
            },
            pid: ask.pid,
            span: ask.span,
            mode,
            ticket: ask.ticket,
            since: Instant::now(),
        };
        let decided = |outcome, change| LockReply::Decided { outcome, change };
        match ask.want {
            LockWant::Unlock => {
                let holder = wanted(LockMode::Shared).holder;
                let had = self.table.unlock(&place, holder, ask.span);
                let change = had.then(|| self.mine(session).changed());
                decided(LockOutcome::Done, change)
            }
            LockWant::Test(mode) => match self.table.test(&place, &wanted(mode)) {
                Some(conflict) => decided(LockOutcome::Held(conflict), None),
                None => decided(LockOutcome::Free, None),
            },
            LockWant::Try(mode) => self.lock_at_once(session, &place, wanted(mode)),
            LockWant::Wait(mode) => self.lock(session, &place, wanted(mode), true),
            LockWant::Ending => {
                self.ends_soon(&place, wanted(LockMode::Shared).holder);
                decided(LockOutcome::Done, None)
            }
        }
    }

    pub(super) fn lock(
        &mut self,
        session: SessionId,
        place: &Place,
        wanted: Wanted,
        wait: bool,
    ) -> LockReply {
        if self.too_many(session) {
            return LockReply::Decided {
                outcome: LockOutcome::TooMany,
                change: None,
            };
        }
        let mut change = None;
        if place.kind == LockKind::File && self.table.unlock_other(place, &wanted) {
            // `flock` releases the old lock first, whatever the outcome of the new request.
            change = Some(self.mine(session).changed());
        }
        match self.table.lock(place, wanted, wait) {
            Taken::Queued => {
                self.mine(session).waiting.insert(wanted.ticket);
                LockReply::Queued { change }
            }
            Taken::Now(outcome) => {
                if outcome == LockOutcome::Done {
                    let mine = self.mine(session);
                    // Cutting a span in two adds two.
                    mine.held += 2;
                    // One change number for both steps.
                    change = change.or_else(|| Some(mine.changed()));
                }
                LockReply::Decided { outcome, change }
            }
        }
    }

    fn too_many(&mut self, session: SessionId) -> bool {
        let mine = self.mine(session);
        if mine.waiting.len() >= MOST_WAITING {
            return true;
        }
        if mine.held < MOST_HELD {
            return false;
        }
        let held = self.table.count(session);
        self.mine(session).held = held;
        held >= MOST_HELD
    }

    /// Notifies sessions of their requests that are now granted.
    pub(super) fn notify_decided(&mut self) {
        for done in self.table.take_decided() {
            let mine = self.mine(done.session);
            mine.held += 2;
            let change = mine.changed();
            mine.notify(done.ticket, LockOutcome::Done, Some(change));
        }
    }

    /// A session from before this epoch has reclaimed everything, or has ended.
    fn is_here(&mut self, session: SessionId) {
        if let Some(grace) = &mut self.grace {
            grace.missing.remove(&session);
            if grace.missing.is_empty() {
                self.end_grace();
            }
        }
    }

    /// Ends the grace period and decides the requests that waited for it.
    fn end_grace(&mut self) {
        let Some(grace) = self.grace.take() else {
            return;
        };
        if !grace.missing.is_empty() {
            tracing::warn!(
                sessions = ?grace.missing,
                "sessions did not reclaim their locks in time; other sessions may get these locks"
            );
        }
        for (session, ask) in grace.asked {
            self.mine(session).waiting.remove(&ask.ticket);
            match self.decide(session, &ask) {
                LockReply::Decided { outcome, change } => {
                    self.mine(session).notify(ask.ticket, outcome, change);
                }
                LockReply::Queued { change } => {
                    let mine = self.mine(session);
                    if change.is_some() {
                        mine.notify(ask.ticket, LockOutcome::Waits, change);
                        mine.waiting.insert(ask.ticket);
                    }
                }
                LockReply::Reclaim => {}
            }
            self.notify_decided();
        }
    }
}

/// Checks that a span is valid.
pub(super) fn check(span: &LockSpan) -> Result<(), MdError> {
    if span.first > span.last {
        return Err(MdError::Invalid(format!(
            "a lock from byte {} to byte {}",
            span.first, span.last
        )));
    }
    Ok(())
}
