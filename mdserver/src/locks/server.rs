//! The lock table of one metadata server behind a mutex, and the protocol state of each session: epoch, grace, event
//! queue, reply cache.
//!
//! Everything here is in memory and behind one mutex, held for microseconds and taken after the core's state. An
//! operation that gives a session anything enters with the core's state still locked, having checked there that the
//! session is alive. A session ends there first and here second. So no such operation follows
//! [`LockServer::end_session`]. A poll waits on its session's own condition variable.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use slabfs_model::SessionId;

use super::ending::{Ending, Tries};
use super::table::{Holder, Lost, Place, Table, Taken, Wanted};
use crate::api::{
    HeldLocks, LockAsk, LockEpoch, LockEvent, LockKind, LockMode, LockNews, LockOutcome, LockReply,
    LockSpan, LockTicket, LockWant, LostLocks, MdError, Reply,
};

/// Most spans that a session may hold; more than any sensible program needs.
const MOST_HELD: usize = 1 << 20;
/// Most waiting requests of a session.
const MOST_WAITING: usize = 1 << 16;
/// Longest wait of a poll.
const LONGEST_POLL: Duration = Duration::from_secs(10);

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
    pub(super) ending: Ending,
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
    /// The epoch that its requests are for.
    epoch: LockEpoch,
    /// The locks it has reclaimed so far (as in NFSv4), until it has reclaimed all.
    claimed: Vec<HeldLocks>,
    /// Number of changes of its locks so far.
    changes: u64,
    /// Spans it holds; an upper bound, recounted when it becomes too large.
    held: usize,
    pub(super) waiting: HashSet<LockTicket>,
    /// Number of events so far, and those that it has not acknowledged.
    events: u64,
    news: VecDeque<LockEvent>,
    pub(super) wake: Arc<Condvar>,
    /// Sequence number of its last reclaim.
    telling: u64,
    /// Reply cache; no request with a sequence number below `floor` is resent.
    replies: BTreeMap<u64, Reply>,
    floor: u64,
}

impl Mine {
    fn new(epoch: LockEpoch) -> Mine {
        Mine {
            epoch,
            claimed: Vec::new(),
            changes: 0,
            held: 0,
            waiting: HashSet::new(),
            events: 0,
            news: VecDeque::new(),
            wake: Arc::default(),
            telling: 0,
            replies: BTreeMap::new(),
            floor: 0,
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
        self.events += 1;
        self.news.push_back(LockEvent {
            number: self.events,
            ticket,
            outcome,
            change,
        });
        self.wake.notify_all();
    }
}

/// The sequence number of a request, by which a resend is recognised; 0 where there are no resends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) seq: u64,
    pub(super) done_below: u64,
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
                ending: Ending::default(),
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
    pub(super) fn enter(&self) -> Inside<'_> {
        Inside {
            state: self.state.lock(),
        }
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
            mine.wake.notify_all();
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
    ) -> LockNews {
        let until = Instant::now() + wait.min(LONGEST_POLL);
        let mut state = self.state.lock();
        loop {
            state.refuse_late(session);
            let closing = state.closing;
            let lock_server = state.epoch;
            let mine = match state.sessions.get_mut(&session) {
                Some(mine) if mine.epoch == epoch => mine,
                // It has made no request yet.
                None if lock_server == epoch => return LockNews::Events(Vec::new()),
                Some(_) | None => return LockNews::Reclaim,
            };
            while mine.news.front().is_some_and(|event| event.number <= seen) {
                mine.news.pop_front();
            }
            let over = Instant::now() >= until;
            if !mine.news.is_empty() || mine.waiting.is_empty() || closing || over {
                return LockNews::Events(mine.news.iter().copied().collect());
            }
            let wake = Arc::clone(&mine.wake);
            let first = state.tries.first_end(session);
            wake.wait_until(&mut state, first.map_or(until, |first| first.min(until)));
        }
    }

    /// Removes everything of a session that has ended.
    pub(crate) fn end_session(&self, session: SessionId) {
        let mut state = self.state.lock();
        state.table.end_session(session);
        state.forget_session(session);
        if let Some(mine) = state.sessions.remove(&session) {
            mine.wake.notify_all();
        }
        if let Some(grace) = &mut state.grace {
            grace.asked.retain(|(by, _)| *by != session);
        }
        state.is_here(session);
        state.notify_decided();
        state.try_all_again();
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
            mine.wake.notify_all();
        }
    }
}

/// The lock server, locked.
pub(super) struct Inside<'a> {
    state: MutexGuard<'a, State>,
}

impl Inside<'_> {
    /// Answers a request.
    pub(super) fn ask(
        mut self,
        session: SessionId,
        number: Number,
        epoch: LockEpoch,
        ask: LockAsk,
    ) -> Result<Reply, MdError> {
        let state = &mut *self.state;
        if let Some(reply) = state.answered(session, number)? {
            return Ok(reply);
        }
        if epoch != state.mine(session).epoch {
            return Ok(Reply::Lock(LockReply::Reclaim));
        }
        let tried = ask.kind == LockKind::File && !state.tries.is_empty();
        let tried = tried.then(|| Place {
            file: ask.file.clone(),
            kind: ask.kind,
        });
        let reply = match &mut state.grace {
            Some(grace) if !matches!(ask.want, LockWant::Unlock | LockWant::Ending) => {
                let ticket = ask.ticket;
                grace.asked.push_back((session, ask));
                state.mine(session).waiting.insert(ticket);
                LockReply::Queued { change: None }
            }
            _ => state.decide(session, &ask),
        };
        state.notify_decided();
        if let Some(place) = tried {
            state.try_again(&place);
        }
        Ok(state.keep(session, number, Reply::Lock(reply)))
    }

    /// Records locks that a session reclaims. The last part completes the list: the session then holds exactly these,
    /// and none of its requests waits.
    pub(super) fn reclaim(
        mut self,
        session: SessionId,
        number: Number,
        held: Vec<HeldLocks>,
        first: bool,
        last: bool,
    ) -> Result<Reply, MdError> {
        let state = &mut *self.state;
        if let Some(reply) = state.answered(session, number)? {
            return Ok(reply);
        }
        let mine = state.mine(session);
        if number.seq < mine.telling {
            // A delayed duplicate. The session has reclaimed again since, and that is what counts; its floor may
            // still be lower, if another of its requests is unanswered.
            return Err(MdError::Stale);
        }
        mine.telling = number.seq;
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
            state.replace(session)
        } else {
            Vec::new()
        };
        let epoch = state.mine(session).epoch;
        let reply = crate::api::LocksReclaimed { lost, epoch }.into();
        Ok(state.keep(session, number, reply))
    }
}

impl State {
    pub(super) fn mine(&mut self, session: SessionId) -> &mut Mine {
        let (epoch, grace) = (self.epoch, &self.grace);
        self.sessions.entry(session).or_insert_with(|| {
            // A session from before this lock server has to reclaim its locks first.
            let before = grace
                .as_ref()
                .is_some_and(|grace| grace.missing.contains(&session));
            Mine::new(if before { LockEpoch::UNKNOWN } else { epoch })
        })
    }

    /// Replaces a session's locks by what it reclaimed, and begins an epoch with that; returns the parts that others
    /// hold.
    fn replace(&mut self, session: SessionId) -> Vec<LostLocks> {
        self.latest = LockEpoch(self.latest.0 + 1);
        let epoch = self.latest;
        let mine = self.mine(session);
        let claimed = std::mem::take(&mut mine.claimed);
        mine.epoch = epoch;
        mine.changes = 0;
        mine.events = 0;
        mine.news.clear();
        mine.waiting.clear();
        mine.wake.notify_all();
        self.forget_session(session);
        let held = claimed.into_iter().flat_map(|one| {
            let holder = Holder {
                session,
                owner: one.owner,
            };
            let place = Place {
                file: one.file,
                kind: one.kind,
            };
            let pid = one.pid;
            one.spans.into_iter().map(move |(span, mode)| {
                let wanted = Wanted {
                    holder,
                    pid,
                    span,
                    mode,
                    ticket: LockTicket(0),
                };
                (place.clone(), wanted)
            })
        });
        let lost = self.table.replace(session, held);
        self.mine(session).held = self.table.count(session);
        let lost = by_owner(lost);
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
        self.try_all_again();
        lost
    }

    /// Drops a session's ending locks and its waiting non-blocking requests.
    fn forget_session(&mut self, session: SessionId) {
        self.ending.forget_session(session);
        self.tries.forget_session(session);
    }

    /// Caches a reply in case the request is resent.
    fn keep(&mut self, session: SessionId, number: Number, reply: Reply) -> Reply {
        if number.seq != 0 {
            let mine = self.mine(session);
            mine.replies.insert(number.seq, reply.clone());
        }
        reply
    }

    /// The cached reply, if the request was already answered.
    fn answered(&mut self, session: SessionId, number: Number) -> Result<Option<Reply>, MdError> {
        if number.seq == 0 {
            return Ok(None);
        }
        let mine = self.mine(session);
        mine.floor = mine.floor.max(number.done_below);
        mine.replies = mine.replies.split_off(&mine.floor);
        if number.seq < mine.floor {
            // A delayed duplicate; its sender already has the reply.
            return Err(MdError::Stale);
        }
        Ok(mine.replies.get(&number.seq).cloned())
    }

    fn decide(&mut self, session: SessionId, ask: &LockAsk) -> LockReply {
        let place = Place {
            file: ask.file.clone(),
            kind: ask.kind,
        };
        let wanted = |mode| Wanted {
            holder: Holder {
                session,
                owner: ask.owner,
            },
            pid: ask.pid,
            span: ask.span,
            mode,
            ticket: ask.ticket,
        };
        let decided = |outcome, change| LockReply::Decided { outcome, change };
        match ask.want {
            LockWant::Unlock => {
                let holder = wanted(LockMode::Shared).holder;
                let had = self.table.unlock(&place, holder, ask.span);
                let change = had.then(|| self.mine(session).changed());
                if had && !self.table.has(&place, holder) {
                    self.ending.forget(&place, holder);
                }
                decided(LockOutcome::Done, change)
            }
            LockWant::Test(mode) => match self.table.test(&place, &wanted(mode)) {
                Some(conflict) => decided(LockOutcome::Held(conflict), None),
                None => decided(LockOutcome::Free, None),
            },
            LockWant::Try(mode) => self.lock_at_once(session, &place, wanted(mode)),
            LockWant::Wait(mode) => self.lock(session, &place, wanted(mode), true),
            LockWant::Ending => {
                self.ends_soon(place, wanted(LockMode::Shared).holder);
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
                    // Another descriptor of its file is open.
                    self.ending.forget(place, wanted.holder);
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

/// Groups lost parts by owner and file; those of one owner and file are consecutive.
fn by_owner(lost: Vec<Lost>) -> Vec<LostLocks> {
    let mut all: Vec<LostLocks> = Vec::new();
    for Lost {
        place,
        owner,
        span,
        left,
    } in lost
    {
        match all.last_mut() {
            Some(one) if one.file == place.file && one.kind == place.kind && one.owner == owner => {
                one.spans.push((span, left));
            }
            _ => all.push(LostLocks {
                file: place.file,
                kind: place.kind,
                owner,
                spans: vec![(span, left)],
            }),
        }
    }
    all
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
