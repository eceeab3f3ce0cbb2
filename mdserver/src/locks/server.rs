//! The table behind a lock, with what it takes to serve sessions: lives, grace, events, resends.
//!
//! Everything here is in memory and behind one lock, held for microseconds and taken after the core's state.
//! What gives a session anything enters with that state still locked, having seen there that the session
//! lives; a session ends there first and here second. So nothing of it comes after [`LockServer::end_session`]. A
//! poll waits on its session's own condition.

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

/// Most spans that a session may hold; more than any program means to.
const MOST_HELD: usize = 1 << 20;
/// Most requests of a session that may wait.
const MOST_WAITING: usize = 1 << 16;
/// Longest that a poll waits.
const LONGEST_POLL: Duration = Duration::from_secs(10);

/// Locks of all sessions; see the module's head.
#[derive(Debug)]
pub(crate) struct LockServer {
    state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    /// The lock server's own epoch, and the one begun last.
    epoch: LockEpoch,
    latest: LockEpoch,
    pub(super) table: Table,
    sessions: HashMap<SessionId, Mine>,
    pub(super) ending: Ending,
    pub(super) tries: Tries,
    grace: Option<Grace>,
    closing: bool,
}

/// Sessions from before the lock server began its epoch may still say what they hold.
#[derive(Debug)]
struct Grace {
    missing: BTreeSet<SessionId>,
    until: Instant,
    /// What is decided when it is over, in the order in which it came.
    asked: VecDeque<(SessionId, LockAsk)>,
}

/// What is kept of one session.
#[derive(Debug)]
pub(super) struct Mine {
    /// The epoch that its requests are for.
    epoch: LockEpoch,
    /// The locks it has claimed so far (reclaim of NFSv4), until it has claimed all.
    claimed: Vec<HeldLocks>,
    /// Changes of its locks so far.
    changes: u64,
    /// Spans it holds, or a little more: counted anew when there seem to be too many.
    held: usize,
    pub(super) waiting: HashSet<LockTicket>,
    /// Events so far, and those that it has not said it has.
    events: u64,
    news: VecDeque<LockEvent>,
    pub(super) wake: Arc<Condvar>,
    /// Number of the request with which it told its locks last.
    telling: u64,
    /// Replies to requests that may come once more; none below `floor` will.
    kept: BTreeMap<u64, Reply>,
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
            kept: BTreeMap::new(),
            floor: 0,
        }
    }

    fn changed(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    pub(super) fn tell(&mut self, ticket: LockTicket, outcome: LockOutcome, change: Option<u64>) {
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

/// The number of a request, by which a resend is known; 0 where none can come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    pub(super) seq: u64,
    pub(super) done_below: u64,
}

impl LockServer {
    /// A lock server that begins its epoch; `before`: the sessions that may hold locks from the last one, which have
    /// until `until` to say so.
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

    /// Locks it, for requests of a session that lives; see the module's head for who has to know that.
    pub(super) fn enter(&self) -> Inside<'_> {
        Inside {
            state: self.state.lock(),
        }
    }

    /// Takes a request back; says whether it waited.
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
        state.tell_decided();
        cancelled
    }

    /// The session's events after number `seen`; waits up to `wait` for one, as long as there is anything
    /// that could bring one.
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
                // It has asked for nothing yet.
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

    /// Takes away everything of a session that has ended.
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
        state.tell_decided();
        state.try_all_again();
    }

    /// Ends the grace when its time is over.
    pub(crate) fn look(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.grace.as_ref().is_some_and(|grace| now >= grace.until) {
            state.end_grace();
        }
    }

    /// Lets polls wait, or return at once: now, and from now on.
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
        let tried = ask.kind == LockKind::Whole && !state.tries.is_empty();
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
        state.tell_decided();
        if let Some(place) = tried {
            state.try_again(&place);
        }
        Ok(state.keep(session, number, Reply::Lock(reply)))
    }

    /// Takes in what a session says it holds. With the last of it: that is what it holds, and it waits for
    /// nothing.
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
            // A copy that was long on its way. The session has told anew since, and goes by that; its floor
            // may still be below, where another of its requests is not answered.
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
        let reply = Reply::LocksReclaimed { lost, epoch };
        Ok(state.keep(session, number, reply))
    }
}

impl State {
    pub(super) fn mine(&mut self, session: SessionId) -> &mut Mine {
        let (epoch, grace) = (self.epoch, &self.grace);
        self.sessions.entry(session).or_insert_with(|| {
            // What is known of one that was there before this lock server must come from it first.
            let before = grace
                .as_ref()
                .is_some_and(|grace| grace.missing.contains(&session));
            Mine::new(if before { LockEpoch::UNKNOWN } else { epoch })
        })
    }

    /// Lets a session hold what it has told, and begins an epoch with it; gives back what others have of that.
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
                "others have got locks that a session had, or was giving up when it heard no more of it"
            );
        }
        if let Some(grace) = &mut self.grace {
            grace.asked.retain(|(by, _)| *by != session);
        }
        self.is_here(session);
        self.tell_decided();
        self.try_all_again();
        lost
    }

    /// Forgets what a session is about to give up, and what it tries.
    fn forget_session(&mut self, session: SessionId) {
        self.ending.forget_session(session);
        self.tries.forget_session(session);
    }

    /// Keeps a reply for a request that comes again.
    fn keep(&mut self, session: SessionId, number: Number, reply: Reply) -> Reply {
        if number.seq != 0 {
            let mine = self.mine(session);
            mine.kept.insert(number.seq, reply.clone());
        }
        reply
    }

    /// The reply to a request that was answered already.
    fn answered(&mut self, session: SessionId, number: Number) -> Result<Option<Reply>, MdError> {
        if number.seq == 0 {
            return Ok(None);
        }
        let mine = self.mine(session);
        mine.floor = mine.floor.max(number.done_below);
        mine.kept = mine.kept.split_off(&mine.floor);
        if number.seq < mine.floor {
            // A copy that was long on its way; its sender has been answered.
            return Err(MdError::Stale);
        }
        Ok(mine.kept.get(&number.seq).cloned())
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
        if place.kind == LockKind::Whole && self.table.unlock_other(place, &wanted) {
            // `flock` gives up the old lock first, whatever becomes of the new one.
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
                    // One change for both steps.
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

    /// Tells sessions which of their requests have their locks now.
    pub(super) fn tell_decided(&mut self) {
        for done in self.table.take_decided() {
            let mine = self.mine(done.session);
            mine.held += 2;
            let change = mine.changed();
            mine.tell(done.ticket, LockOutcome::Done, Some(change));
        }
    }

    /// Nothing more is to come from a session of before.
    fn is_here(&mut self, session: SessionId) {
        if let Some(grace) = &mut self.grace {
            grace.missing.remove(&session);
            if grace.missing.is_empty() {
                self.end_grace();
            }
        }
    }

    /// Decides what was asked meanwhile.
    fn end_grace(&mut self) {
        let Some(grace) = self.grace.take() else {
            return;
        };
        if !grace.missing.is_empty() {
            tracing::warn!(
                sessions = ?grace.missing,
                "sessions did not say in time which locks they hold; these are given to others"
            );
        }
        for (session, ask) in grace.asked {
            self.mine(session).waiting.remove(&ask.ticket);
            match self.decide(session, &ask) {
                LockReply::Decided { outcome, change } => {
                    self.mine(session).tell(ask.ticket, outcome, change);
                }
                LockReply::Queued { change } => {
                    let mine = self.mine(session);
                    if change.is_some() {
                        mine.tell(ask.ticket, LockOutcome::Waits, change);
                        mine.waiting.insert(ask.ticket);
                    }
                }
                LockReply::Reclaim => {}
            }
            self.tell_decided();
        }
    }
}

/// What was lost, put together by owner and file; those of one follow each other.
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

/// Whether a span is one.
pub(super) fn check(span: &LockSpan) -> Result<(), MdError> {
    if span.first > span.last {
        return Err(MdError::Invalid(format!(
            "a lock from byte {} to byte {}",
            span.first, span.last
        )));
    }
    Ok(())
}
