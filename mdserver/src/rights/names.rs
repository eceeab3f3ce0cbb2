//! Which sessions cache names and attributes of which directories, and the recall of these before a change.
//! docs/decisions/22-names.md describes the design.
//!
//! A session that looks up a name may get permission to *cache* what it saw: names in the directory, their absence,
//! and attributes of the directory itself. The permission is given *before* the directory is read, and not while it
//! is being changed. A change marks the directory, makes all other sessions drop their cached entries, waits for
//! that, and only then happens. So everything cached anywhere is current.
//!
//! - A session that was asked to drop its entries stays on the list until it acknowledges, whichever change it was
//!   notified for: a further change that begins meanwhile waits for it too, without a second notification.
//! - A permission expires ([`KEEP`]), so that one lookup does not stay on the list for ever. A session counts from
//!   the time of its request, so it stops earlier.
//! - A permission is valid for one epoch of the session's rights. A session that resets its rights has dropped
//!   everything before.
//! - A session that changes a directory retains its own entries of it, since it knows the change; but not its entries
//!   of a directory that is itself moved or removed.
//! - A directory for which entries were recalled cannot be cached again for a moment ([`BUSY`]): otherwise two
//!   sessions that work in one directory would recall each other's entries at each step.
//!
//! [`Names`] is pure, and `names/tests.rs` drives it together with a session's cache.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use slabfs_model::SessionId;

use super::server::{LockServer, State};
use super::session::Pending;
use crate::api::{Ino, MdError, NAMES_CACHED_FOR, RightsEpoch};

/// How long a permission is valid. A session caches for a little less: see [`NAMES_CACHED_FOR`].
const KEEP: Duration = NAMES_CACHED_FOR.saturating_add(Duration::from_secs(10));
/// How long a directory cannot be cached after entries of it were recalled.
const BUSY: Duration = Duration::from_secs(1);
/// How long a mount that was alone may still cache names after that epoch ends: its kernel caches them for a second.
const ALONE: Duration = Duration::from_secs(2);
/// Most directories that are cached by any session.
const MOST: usize = 1 << 20;
/// Length of the list below which it is not scanned for expired permissions.
const FEW: usize = 1 << 10;
/// How long one request waits for other sessions to drop their entries before its sender is made to retry: less than
/// the shortest timeout that a mount may have (`--io-timeout 100ms`).
const TRY: Duration = Duration::from_millis(50);
/// Most changes that wait at the same time, of one session and in total: each occupies a connection. Further ones
/// have to retry at once.
const MOST_WAITING_OF_ONE: usize = 16;
const MOST_WAITING: usize = 128;
/// How long a live session may take to acknowledge a recall.
const SILENT: Duration = Duration::from_secs(30);

/// One permission.
#[derive(Debug, Clone, Copy)]
struct Keeper {
    session: SessionId,
    epoch: RightsEpoch,
    until: Instant,
    /// Its entries are recalled: since when, and by the event with which number.
    events: Option<(Instant, u64)>,
}

/// The list of permissions; see the module documentation.
#[derive(Debug, Clone)]
pub(super) struct Names {
    keepers: HashMap<Ino, Vec<Keeper>>,
    /// Changes in progress.
    changing: HashMap<Ino, u32>,
    busy: HashMap<Ino, Instant>,
    /// Recalls that the sessions have not acknowledged.
    events: BTreeMap<u64, (SessionId, Vec<Ino>)>,
    /// Number of the last recall.
    last: u64,
    /// The sessions whose changes wait.
    waiting: Vec<Option<SessionId>>,
    /// The lists are scanned for expired items when `keepers` or `busy` reaches this length, but not before this
    /// time.
    look_through: (usize, Option<Instant>),
}

impl Names {
    /// A list whose event numbers start above those of every list before a restart: `epoch` is later.
    pub(super) fn new(RightsEpoch(epoch): RightsEpoch) -> Self {
        Self {
            keepers: HashMap::new(),
            changing: HashMap::new(),
            busy: HashMap::new(),
            events: BTreeMap::new(),
            last: epoch << 32,
            waiting: Vec::new(),
            look_through: (FEW, None),
        }
    }

    /// Asks for permission to cache what the session is about to read of a directory.
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
            // It has not acknowledged yet that it dropped its earlier entries.
            Some(known) if known.epoch == epoch && known.events.is_some() => return false,
            Some(known) => *known = keeper,
            None => keepers.push(keeper),
        }
        true
    }

    /// Removes expired items, once there may be as many of them as of valid ones.
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

    /// A change of directories begins: from now on no session gets permission to cache them.
    fn begin(&mut self, touched: &Touched) {
        for (ino, _) in touched.all() {
            *self.changing.entry(ino).or_default() += 1;
        }
    }

    /// Recalls the entries that conflict with a change by `session` and are not recalled yet. Returns, for each
    /// session, the directories and the number by which it is to acknowledge.
    fn recall(
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

    /// Whether a change by `session` has to wait; `alive`: whether a session is alive and in this epoch.
    fn has_to_wait(
        &mut self,
        session: Option<SessionId>,
        touched: &Touched,
        now: Instant,
        alive: impl Fn(SessionId, RightsEpoch) -> bool,
    ) -> bool {
        let mut waits = false;
        for (ino, own_too) in touched.all() {
            let Some(keepers) = self.keepers.get_mut(&ino) else {
                continue;
            };
            keepers.retain(|keeper| {
                if keeper.until <= now || !alive(keeper.session, keeper.epoch) {
                    return false;
                }
                if Some(keeper.session) == session && !own_too {
                    return true;
                }
                let silent = |since| now.saturating_duration_since(since) > SILENT;
                if keeper.events.is_some_and(|(since, _)| silent(since)) {
                    let session = keeper.session;
                    tracing::warn!(%session, %ino, "the session does not drop cached names; they change without it");
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

    /// A change ends.
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

    /// A change begins to wait; returns false if too many changes wait.
    fn wait(&mut self, session: Option<SessionId>) -> bool {
        let own = self.waiting.iter().filter(|by| **by == session).count();
        let room = self.waiting.len() < MOST_WAITING && own < MOST_WAITING_OF_ONE;
        if room {
            self.waiting.push(session);
        }
        room
    }

    /// A change stops waiting.
    fn waits_no_more(&mut self, session: Option<SessionId>) {
        if let Some(at) = self.waiting.iter().position(|by| *by == session) {
            self.waiting.swap_remove(at);
        }
    }

    /// A session acknowledges a recall; returns false if it did so before.
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

    /// A session caches nothing any more in its current epoch.
    fn forgot_all(&mut self, session: SessionId) {
        self.keepers.retain(|_, keepers| {
            keepers.retain(|keeper| keeper.session != session);
            !keepers.is_empty()
        });
        self.leave(session);
    }

    /// The epoch of a session is over: its permissions are void.
    pub(super) fn leave(&mut self, session: SessionId) {
        self.events.retain(|_, (by, _)| *by != session);
    }
}

/// Directories that a request changes.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    /// Directories whose names or attributes change: the session that makes the change knows it.
    pub(crate) directories: Vec<Ino>,
    /// Directories that are themselves moved or removed.
    pub(crate) moved: Vec<Ino>,
}

impl Touched {
    fn is_empty(&self) -> bool {
        self.directories.is_empty() && self.moved.is_empty()
    }

    /// Each directory, and whether the session that makes the change has to drop its own entries too.
    fn all(&self) -> impl Iterator<Item = (Ino, bool)> + '_ {
        let directories = self.directories.iter().map(|&ino| (ino, false));
        directories.chain(self.moved.iter().map(|&ino| (ino, true)))
    }
}

/// A change of directories in progress: until it is dropped, no other session caches anything of them.
#[derive(Debug)]
pub(crate) struct Changing<'a> {
    lock_server: &'a LockServer,
    touched: Touched,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.lock_server.enter().names.end(&self.touched);
    }
}

impl LockServer {
    /// Asks for permission to cache what is about to be read of a directory. Must be called before the read.
    pub(super) fn keep_names(&self, session: SessionId, ino: Ino) -> bool {
        let mut state = self.enter();
        let Some(mine) = state.sessions.get(&session) else {
            return false;
        };
        if !mine.is_active() || mine.alone || !mine.listens() {
            return false;
        }
        let epoch = mine.channel.epoch();
        state.names.keep(session, epoch, ino, Instant::now())
    }

    /// Begins a change of directories: returns when no other session caches anything of them. The caller makes the
    /// change while it holds the returned guard.
    ///
    /// # Errors
    /// [`MdError::NamesCached`] if another session still has entries after a moment. Unavailable if the service is about to
    /// stop, since sessions then no longer receive recalls.
    pub(crate) fn change(
        &self,
        session: Option<SessionId>,
        touched: Touched,
    ) -> Result<Option<Changing<'_>>, MdError> {
        if touched.is_empty() {
            return Ok(None);
        }
        let mut state = self.enter();
        state.names.begin(&touched);
        let changing = Changing {
            lock_server: self,
            touched,
        };
        let touched = &changing.touched;
        let events = state.names.recall(session, touched, Instant::now());
        for (keeper, (number, inos)) in events {
            // A session whose epoch is over is notified of that instead, and drops everything.
            if let Some(keeper) = state.in_epoch(keeper) {
                let change = number;
                keeper.notify(Pending::Names { inos, change });
            }
        }
        let until = Instant::now() + TRY;
        let mut waits = false;
        let free = loop {
            let Some(wake) = state.must_wait(session, touched) else {
                break Ok(());
            };
            if state.closing() {
                break Err(MdError::Unavailable {
                    addr: String::new(),
                    detail: "it is stopping".to_owned(),
                });
            }
            if Instant::now() >= until || !waits && !state.names.wait(session) {
                break Err(MdError::NamesCached);
            }
            waits = true;
            State::wait(&mut state, wake.min(until));
        };
        if waits {
            state.names.waits_no_more(session);
        }
        // Dropping `changing` locks the lock server.
        drop(state);
        free.map(|()| Some(changing))
    }

    /// A session has dropped its entries: those of one recall, or all of this epoch.
    pub(super) fn forgot(&self, session: SessionId, epoch: RightsEpoch, number: Option<u64>) {
        let mut state = self.enter();
        let news = match number {
            Some(number) => state.names.forgot(session, number),
            // A delayed duplicate does not apply to what was cached since.
            None => {
                let mine = state.sessions.get(&session);
                let current = mine.is_some_and(|mine| mine.channel.epoch() == epoch);
                if current {
                    state.names.forgot_all(session);
                }
                current
            }
        };
        if news {
            state.wake();
        }
    }
}

impl State {
    /// Whether a change has to wait; if so, the latest time to check again.
    fn must_wait(&mut self, session: Option<SessionId>, touched: &Touched) -> Option<Instant> {
        let now = Instant::now();
        let State {
            names, sessions, ..
        } = &mut *self;
        let alive = |id: SessionId, epoch: RightsEpoch| {
            let mine = sessions.get(&id);
            mine.is_some_and(|mine| !mine.ended && mine.channel.epoch() == epoch)
        };
        let waits = names.has_to_wait(session, touched, now, alive);
        match self.names_unknown_others(session) {
            None => waits.then_some(now + TRY),
            Some(until) => Some(until.unwrap_or(now + TRY)),
        }
    }

    /// Whether another session may cache names that this lock server does not know of, and until when at most, if
    /// known.
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
