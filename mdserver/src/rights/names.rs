//! Names: which sessions keep names and attributes of which directories, and what has to be forgotten before one
//! of them changes. docs/decisions/names.md has the whole story.
//!
//! A session that looks a name up may *keep* what it saw: names in the directory, their absence, and attributes of
//! the directory itself. The permission is given *before* the directory is read, and not while it is being changed;
//! a change marks the directory, has everybody else forget it, waits for that, and only then happens. So whatever is
//! kept anywhere is what is so now.
//!
//! - Who has to forget stays on the list until it has said that it did, whichever change it was told for: another change
//!   that begins meanwhile waits for it too, and it is told once.
//! - A permission ends by itself ([`KEEP`]): what a session looked at once does not stay on the list for ever. A session
//!   counts from when it asked, so it stops before.
//! - It holds for an epoch of the session's rights. Who begins anew has forgotten everything before it says so.
//! - Who changes a directory keeps what it has of it, since it knows what it changes; but not what it has of a
//!   directory that is moved or removed by its name.
//! - A directory that others had to forget is not kept again for a moment ([`BUSY`]): else two that work in one
//!   directory would have to ask each other at each step.
//!
//! [`Names`] is pure, and driven together with what a session keeps by `names/tests.rs`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::server::{LockServer, State};
use super::session::Pending;
use crate::api::{Ino, MdError, NAMES_CACHED_FOR, RightsEpoch};

/// How long a permission holds. A session keeps a little less: see [`NAMES_CACHED_FOR`].
const KEEP: Duration = NAMES_CACHED_FOR.saturating_add(Duration::from_secs(10));
/// How long nobody keeps a directory of which somebody had to forget something.
const BUSY: Duration = Duration::from_secs(1);
/// How long a mount that was alone may keep names after the end of that: its kernel keeps them for a second.
const ALONE: Duration = Duration::from_secs(2);
/// Most directories that are kept by anybody.
const MOST: usize = 1 << 20;
/// How many may be listed before those that nobody keeps any more are looked for.
const FEW: usize = 1 << 10;
/// How long one request waits for others to forget, before its sender is told to try again: less than the shortest
/// time that a mount may be told to wait for an answer (`--io-timeout 100ms`).
const TRY: Duration = Duration::from_millis(50);
/// Most changes that wait at the same time, of one session and in all: each takes a connection. Those beyond are told to
/// try again at once.
const MOST_WAITING_OF_ONE: usize = 16;
const MOST_WAITING: usize = 128;
/// How long who has to forget something may live on without saying that he did.
const SILENT: Duration = Duration::from_secs(30);

/// One permission.
#[derive(Debug, Clone, Copy)]
struct Keeper {
    session: SessionId,
    epoch: RightsEpoch,
    until: Instant,
    /// It has to forget: since when, and by the event of which number.
    events: Option<(Instant, u64)>,
}

/// Who keeps what; see the module's head.
#[derive(Debug, Clone)]
pub(super) struct Names {
    keepers: HashMap<Ino, Vec<Keeper>>,
    /// Changes that have begun and not ended.
    changing: HashMap<Ino, u32>,
    busy: HashMap<Ino, Instant>,
    /// What sessions were told to forget, and have not said that they did.
    events: BTreeMap<u64, (SessionId, Vec<Ino>)>,
    /// Number of the last of them.
    last: u64,
    /// Changes that wait, by who makes them.
    waiting: HashMap<Option<SessionId>, usize>,
    /// When `keepers` or `busy` are this long they are looked through, but not before.
    look_through: (usize, Option<Instant>),
}

impl Names {
    /// A list whose numbers begin where no other one's do, which was kept before a restart: `epoch` is later.
    pub(super) fn new(RightsEpoch(epoch): RightsEpoch) -> Self {
        Self {
            keepers: HashMap::new(),
            changing: HashMap::new(),
            busy: HashMap::new(),
            events: BTreeMap::new(),
            last: epoch << 32,
            waiting: HashMap::new(),
            look_through: (FEW, None),
        }
    }

    /// A session asks whether it may keep what it is about to be told of a directory.
    pub(super) fn keep(
        &mut self,
        session: SessionId,
        epoch: RightsEpoch,
        ino: Ino,
        now: Instant,
    ) -> bool {
        if self.changing.contains_key(&ino) || self.busy.get(&ino).is_some_and(|end| *end > now) {
            return false;
        }
        self.look_through(now);
        if self.keepers.len() >= MOST && !self.keepers.contains_key(&ino) {
            return false;
        }
        let keepers = self.keepers.entry(ino).or_default();
        let keeper = Keeper {
            session,
            epoch,
            until: now + KEEP,
            events: None,
        };
        match keepers.iter_mut().find(|other| other.session == session) {
            // It has not said yet that it has forgotten what it was told before.
            Some(known) if known.epoch == epoch && known.events.is_some() => return false,
            Some(known) => *known = keeper,
            None => keepers.push(keeper),
        }
        true
    }

    /// What is over is taken out, when there may be as much of it as of what is not.
    fn look_through(&mut self, now: Instant) {
        let (many, earliest) = self.look_through;
        let listed = self.keepers.len().max(self.busy.len());
        if listed < many || earliest.is_some_and(|earliest| now < earliest) {
            return;
        }
        self.keepers.retain(|_, keepers| {
            keepers.retain(|keeper| keeper.until > now);
            !keepers.is_empty()
        });
        self.busy.retain(|_, end| *end > now);
        let left = self.keepers.len().max(self.busy.len());
        self.look_through = ((2 * left).clamp(FEW, MOST), Some(now + BUSY));
    }

    /// A change of directories begins, by `session`: nobody is allowed to keep anything of them from now on.
    fn begin(&mut self, touched: &Touched) {
        for (ino, _) in touched.all() {
            *self.changing.entry(ino).or_default() += 1;
        }
    }

    /// Who has to forget something for a change by `session`, and was not told so: which directories, and the number by
    /// which he will say that he has.
    fn tell(
        &mut self,
        session: Option<SessionId>,
        touched: &Touched,
        now: Instant,
    ) -> BTreeMap<SessionId, (u64, Vec<Ino>)> {
        let mut news: BTreeMap<SessionId, (u64, Vec<Ino>)> = BTreeMap::new();
        for (ino, own_too) in touched.all() {
            for keeper in self.keepers.get_mut(&ino).into_iter().flatten() {
                let own = Some(keeper.session) == session;
                if own && !own_too || keeper.events.is_some() || keeper.until <= now {
                    continue;
                }
                let (number, inos) = news.entry(keeper.session).or_insert_with(|| {
                    self.last += 1;
                    (self.last, Vec::new())
                });
                keeper.events = Some((now, *number));
                inos.push(ino);
                if !own {
                    self.busy.insert(ino, now + BUSY);
                }
            }
        }
        for (&session, (number, inos)) in &news {
            self.events.insert(*number, (session, inos.clone()));
        }
        news
    }

    /// Whether a change by `session` has to wait for somebody; `lives`: whether a session lives, and in this epoch.
    fn has_to_wait(
        &mut self,
        session: Option<SessionId>,
        touched: &Touched,
        now: Instant,
        lives: impl Fn(SessionId, RightsEpoch) -> bool,
    ) -> bool {
        let mut waits = false;
        for (ino, own_too) in touched.all() {
            let Some(keepers) = self.keepers.get_mut(&ino) else {
                continue;
            };
            keepers.retain(|keeper| {
                if keeper.until <= now || !lives(keeper.session, keeper.epoch) {
                    return false;
                }
                if Some(keeper.session) == session && !own_too {
                    return true;
                }
                let silent = |since| now.saturating_duration_since(since) > SILENT;
                if keeper.events.is_some_and(|(since, _)| silent(since)) {
                    let session = keeper.session;
                    tracing::warn!(%session, %ino, "it does not forget names; they change without it");
                    return false;
                }
                waits = true;
                true
            });
            if keepers.is_empty() {
                self.keepers.remove(&ino);
            }
        }
        waits
    }

    /// It ends.
    fn end(&mut self, touched: &Touched) {
        for (ino, _) in touched.all() {
            if let Some(count) = self.changing.get_mut(&ino) {
                *count -= 1;
                if *count == 0 {
                    self.changing.remove(&ino);
                }
            }
        }
    }

    /// A change begins to wait; not if too many do.
    fn wait(&mut self, session: Option<SessionId>) -> bool {
        let all: usize = self.waiting.values().sum();
        let own = self.waiting.entry(session).or_default();
        let room = all < MOST_WAITING && *own < MOST_WAITING_OF_ONE;
        if room {
            *own += 1;
        } else if *own == 0 {
            self.waiting.remove(&session);
        }
        room
    }

    /// It waits no more.
    fn waits_no_more(&mut self, session: Option<SessionId>) {
        if let Some(own) = self.waiting.get_mut(&session) {
            *own -= 1;
            if *own == 0 {
                self.waiting.remove(&session);
            }
        }
    }

    /// A session has forgotten what it was told to; says whether that is news.
    fn forgot(&mut self, session: SessionId, number: u64) -> bool {
        if self
            .events
            .get(&number)
            .is_none_or(|(by, _)| *by != session)
        {
            return false;
        }
        let (_, inos) = self.events.remove(&number).unwrap_or((session, Vec::new()));
        for ino in inos {
            self.take_out(ino, |keeper| {
                keeper.session == session && keeper.events.is_some_and(|(_, by)| by == number)
            });
        }
        true
    }

    fn take_out(&mut self, ino: Ino, which: impl Fn(&Keeper) -> bool) {
        if let Some(keepers) = self.keepers.get_mut(&ino) {
            keepers.retain(|keeper| !which(keeper));
            if keepers.is_empty() {
                self.keepers.remove(&ino);
            }
        }
    }

    /// A session keeps nothing any more, in the epoch that it is in.
    fn forgot_all(&mut self, session: SessionId) {
        self.keepers.retain(|_, keepers| {
            keepers.retain(|keeper| keeper.session != session);
            !keepers.is_empty()
        });
        self.leave(session);
    }

    /// The epoch of a session is over: what it kept does not count.
    pub(super) fn leave(&mut self, session: SessionId) {
        self.events.retain(|_, (by, _)| *by != session);
    }
}

/// Directories that a request changes.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Those in which names change, or whose attributes do: the session that does it knows.
    pub(crate) directories: Vec<Ino>,
    /// Those that are moved or removed by their names.
    pub(crate) moved: Vec<Ino>,
}

impl Touched {
    fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.moved.is_empty()
    }

    /// Each, and whether the session that does it has to forget it too.
    fn all(&self) -> impl Iterator<Item = (Ino, bool)> + '_ {
        let directories = self.directories.iter().map(|&ino| (ino, false));
        directories.chain(self.moved.iter().map(|&ino| (ino, true)))
    }
}

/// A change of directories that has begun: nobody else keeps anything of them until it is dropped.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    lock_server: &'a LockServer,
    touched: Touched,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.lock_server.enter().state.names.end(&self.touched);
    }
}

impl LockServer {
    /// Whether a session may keep what it is about to be told of a directory. To be asked before that is read.
    pub(super) fn keep_names(&self, session: SessionId, ino: Ino) -> bool {
        let mut inside = self.enter();
        let state = &mut *inside.state;
        let Some(mine) = state.sessions.get(&session) else {
            return false;
        };
        if mine.over || mine.ended || mine.alone || !mine.listens() {
            return false;
        }
        let epoch = mine.epoch;
        state.names.keep(session, epoch, ino, Instant::now())
    }

    /// Begins a change of directories: returns when nobody else keeps anything of them. The change is to be made while
    /// the answer is there.
    ///
    /// # Errors
    /// [`MdError::Kept`] where somebody still does after a moment. Unavailable where the service is about to stop, and
    /// nobody hears any more what is to be forgotten.
    pub(crate) fn change(
        &self,
        session: Option<SessionId>,
        touched: Touched,
    ) -> Result<Option<Changing<'_>>, MdError> {
        if touched.is_empty() {
            return Ok(None);
        }
        let mut inside = self.enter();
        inside.state.names.begin(&touched);
        let changing = Changing {
            lock_server: self,
            touched,
        };
        let touched = &changing.touched;
        let events = inside.state.names.tell(session, touched, Instant::now());
        for (keeper, (number, inos)) in events {
            // One whose epoch is over hears that instead, and forgets everything.
            if let Some(keeper) = inside.state.in_epoch(keeper) {
                let change = number;
                keeper.tell(Pending::Names { inos, change });
            }
        }
        let free = match inside.state.must_wait(session, touched) {
            None => Ok(()),
            Some(_) if !inside.state.names.wait(session) => Err(MdError::Kept),
            Some(first) => {
                let until = Instant::now() + TRY;
                let mut wake = first;
                let free = loop {
                    if inside.state.closing() {
                        break Err(MdError::Unavailable {
                            addr: String::new(),
                            detail: "it is stopping".to_owned(),
                        });
                    }
                    if Instant::now() >= until {
                        break Err(MdError::Kept);
                    }
                    self.sized.wait_until(&mut inside.state, wake.min(until));
                    match inside.state.must_wait(session, touched) {
                        None => break Ok(()),
                        Some(next) => wake = next,
                    }
                };
                inside.state.names.waits_no_more(session);
                free
            }
        };
        // Giving it up locks the lock server.
        drop(inside);
        free.map(|()| Some(changing))
    }

    /// A session has forgotten what it was told to, or, in this epoch, everything.
    pub(super) fn forgot(&self, session: SessionId, epoch: RightsEpoch, number: Option<u64>) {
        let state = &mut *self.enter().state;
        let news = match number {
            Some(number) => state.names.forgot(session, number),
            // A copy that comes late is not about what was kept since.
            None => {
                let mine = state.sessions.get(&session);
                let current = mine.is_some_and(|mine| mine.epoch == epoch);
                if current {
                    state.names.forgot_all(session);
                }
                current
            }
        };
        if news {
            self.sized.notify_all();
        }
    }
}

impl State {
    /// Whether a change has to wait, and when it is to look again at the latest.
    fn must_wait(&mut self, session: Option<SessionId>, touched: &Touched) -> Option<Instant> {
        let now = Instant::now();
        let State {
            names, sessions, ..
        } = &mut *self;
        let lives = |id: SessionId, epoch: RightsEpoch| {
            let mine = sessions.get(&id);
            mine.is_some_and(|mine| !mine.ended && mine.epoch == epoch)
        };
        let waits = names.has_to_wait(session, touched, now, lives);
        match self.names_unknown_others(session) {
            None => waits.then_some(now + TRY),
            Some(until) => Some(until.unwrap_or(now + TRY)),
        }
    }

    /// Whether somebody else may keep names that this lock server does not know of, and until when at most if that is known.
    fn names_unknown_others(&self, session: Option<SessionId>) -> Option<Option<Instant>> {
        if self.before.iter().any(|&id| Some(id) != session) {
            return Some(None);
        }
        let now = Instant::now();
        let others = self.sessions.iter();
        others
            .filter(|&(&id, mine)| Some(id) != session && mine.is_unknown() && !mine.ended)
            .filter_map(|(_, mine)| mine.over_since.map(|since| since + ALONE))
            .filter(|end| *end > now)
            .max()
            .map(Some)
    }
}

#[cfg(test)]
mod tests;
