//! Which owner holds which locks, and which requests wait: a pure state machine, without clocks, threads or epochs.
//!
//! A waiting request stands in its file's queue. After every change the queue is scanned from the front, and each
//! request that can be granted is granted; [`Table::take_decided`] reports these to the caller. The scan ends at a
//! request that cannot be granted and that nothing behind it can overtake ([`Locks::ends_scan`]), so that `n` requests
//! for all bytes of a file cost O(n log n) in all.
//!
//! # Order
//!
//! Waiting requests are served in order of arrival: a request waits for every earlier conflicting request in the
//! queue, even if no held lock conflicts with it, so that a stream of readers does not starve a writer. One
//! exception: a request overtakes an earlier one that waits, directly or through others, for the same owner. The
//! earlier one cannot continue before this one does, so standing behind it would be a deadlock caused by the queue
//! alone. (An owner that holds a read lock on bytes 0 to 9 and requests more overtakes the writer that waits for
//! those ten.)
//!
//! A non-blocking request does not queue either: as POSIX requires, it gets any lock that conflicts with no held
//! lock.
//!
//! # Deadlocks
//!
//! Owners are the nodes of a graph: a waiting owner has an edge to every owner whose lock conflicts. A record lock
//! whose wait would close a cycle is refused. `flock` locks are not checked: their owner is an open file
//! description, of which a process has several, so a cycle of processes is not a cycle of owners. (Record locks of
//! open file descriptions have the same property, but cannot be distinguished from those of a process.)

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Instant;

use foldhash::HashMap;

use slabfs_model::SessionId;

use super::Spans;
use crate::api::{
    HeldLocks, LockAsk, LockConflict, LockFile, LockKind, LockMode, LockOutcome, LockOwner,
    LockSpan, LockTicket, LostLocks,
};
pub(super) use list::Row;

/// A file and one family of its locks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) file: LockFile,
    pub(super) kind: LockKind,
}

impl Place {
    /// The place of a request.
    pub(super) fn of(ask: &LockAsk) -> Place {
        Place {
            file: ask.file.clone(),
            kind: ask.kind,
        }
    }
}

/// Whether two locks on the same bytes conflict.
fn conflicting(one: LockMode, other: LockMode) -> bool {
    one == LockMode::Exclusive || other == LockMode::Exclusive
}

/// The first of an owner's locks that conflicts with a lock of this mode on these bytes.
fn conflict(spans: &Spans, span: LockSpan, mode: LockMode) -> Option<(LockSpan, LockMode)> {
    spans
        .overlapping(span)
        .find(|(_, of)| conflicting(*of, mode))
}

/// An owner within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) session: SessionId,
    pub(super) owner: LockOwner,
}

/// A requested lock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) holder: Holder,
    pub(super) pid: u32,
    pub(super) span: LockSpan,
    pub(super) mode: LockMode,
    pub(super) ticket: LockTicket,
    /// When it was requested.
    pub(super) since: Instant,
}

/// The immediate outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Now(LockOutcome),
    Queued,
}

/// A waiting request that is now granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) session: SessionId,
    pub(super) ticket: LockTicket,
}

/// All locks of one lock server.
#[derive(Debug, Default)]
pub(super) struct Table {
    places: HashMap<Place, Locks>,
    /// The requests of each owner that wait, and in how many places it holds locks.
    waits: HashMap<(LockKind, Holder), Vec<(Place, u64)>>,
    holds: HashMap<(LockKind, Holder), usize>,
    tickets: HashMap<(SessionId, LockTicket), (Place, u64)>,
    /// How many owners and requests of a session are in each place.
    present: HashMap<SessionId, HashMap<Place, usize>>,
    /// The number of the next request that waits.
    arrivals: u64,
    decided: Vec<Decided>,
}

#[derive(Debug, Default)]
struct Locks {
    held: BTreeMap<Holder, Held>,
    /// How many of these may have an exclusive lock.
    exclusive: usize,
    /// Waiting requests, in order of arrival.
    queue: BTreeMap<u64, Wanted>,
    /// Those of owners that others may wait for: they hold locks, here or elsewhere, or have other requests that wait.
    tangled: BTreeSet<u64>,
}

#[derive(Debug)]
struct Held {
    pid: u32,
    spans: Spans,
    /// When the oldest of them was requested.
    since: Instant,
    /// It may have an exclusive lock.
    exclusive: bool,
    /// A descriptor of its file was closed: until then, the locks may end at any moment.
    ends: Option<Instant>,
}

impl Locks {
    /// Other owners with conflicting locks, and the first such lock of each.
    fn in_the_way(
        &self,
        wanted: &Wanted,
    ) -> impl Iterator<Item = (Holder, &Held, (LockSpan, LockMode))> {
        let Wanted {
            holder, span, mode, ..
        } = *wanted;
        // Shared locks alone conflict with no shared lock.
        let any = mode == LockMode::Exclusive || self.exclusive > 0;
        let others = any.then(|| self.held.iter()).into_iter().flatten();
        others
            .inspect(|_| look())
            .filter(move |(other, _)| **other != holder)
            .filter_map(move |(other, held)| {
                Some((*other, held, conflict(&held.spans, span, mode)?))
            })
    }

    fn holders_in_the_way(&self, wanted: &Wanted) -> impl Iterator<Item = Holder> {
        self.in_the_way(wanted).map(|(other, ..)| other)
    }

    /// Owners of conflicting requests that arrived before number `before`.
    fn ahead(&self, wanted: &Wanted, before: u64) -> impl Iterator<Item = Holder> + '_ {
        let wanted = *wanted;
        self.queue
            .range(..before)
            .map(|(_, other)| other)
            .inspect(|_| look())
            .filter(move |other| {
                other.holder != wanted.holder
                    && other.span.overlaps(wanted.span)
                    && conflicting(other.mode, wanted.mode)
            })
            .map(|other| other.holder)
    }

    /// The bytes of a lock that conflict with other owners' locks, and the modes of those locks.
    fn against(&self, wanted: &Wanted) -> Spans {
        let mut parts = Spans::default();
        let others = self.held.iter();
        for (_, held) in others.filter(|(other, _)| **other != wanted.holder) {
            for (span, mode) in held.spans.within(wanted.span) {
                if conflicting(mode, wanted.mode) {
                    parts.set(span, Some(mode));
                }
            }
        }
        parts
    }

    /// Whether no request behind number `at`, which cannot be granted, can be granted either. A request overtakes one
    /// that waits for its owner; and no request waits for an owner that holds nothing and has no other request, except
    /// those that are behind it. So if no owner of the requests behind is tangled, none of them overtakes one that
    /// conflicts with it.
    fn ends_scan(&self, at: u64, wanted: &Wanted) -> bool {
        let exclusive = wanted.span == LockSpan::ALL && wanted.mode == LockMode::Exclusive;
        let behind_conflict = exclusive || self.is_taken();
        behind_conflict && self.tangled.range(at + 1..).next().is_none()
    }

    /// Whether one owner has an exclusive lock on everything.
    fn is_taken(&self) -> bool {
        let only = self.held.values().next().filter(|_| self.held.len() == 1);
        only.is_some_and(|held| {
            held.spans.iter().next() == Some((LockSpan::ALL, LockMode::Exclusive))
        })
    }

    /// Gives a lock; returns whether its owner held none here.
    fn give(&mut self, wanted: &Wanted) -> bool {
        let mut is_new = false;
        let held = self.held.entry(wanted.holder).or_insert_with(|| {
            is_new = true;
            Held {
                pid: wanted.pid,
                spans: Spans::default(),
                since: wanted.since,
                exclusive: false,
                ends: None,
            }
        });
        held.pid = wanted.pid;
        let exclusive = match wanted.mode {
            LockMode::Exclusive => true,
            LockMode::Shared => held.exclusive && wanted.span != LockSpan::ALL,
        };
        self.exclusive = self.exclusive + usize::from(exclusive) - usize::from(held.exclusive);
        held.exclusive = exclusive;
        // Another descriptor of its file is open.
        held.ends = None;
        held.spans.set(wanted.span, Some(wanted.mode));
        is_new
    }

    /// Releases locks; returns whether there were any.
    fn take(&mut self, holder: Holder, span: LockSpan) -> bool {
        let Some(held) = self.held.get_mut(&holder) else {
            return false;
        };
        let had = held.spans.overlaps(span);
        held.spans.set(span, None);
        if held.spans.is_empty() {
            self.remove(holder);
        }
        had
    }
}

impl Locks {
    /// Removes an owner with its locks.
    fn remove(&mut self, holder: Holder) {
        if let Some(held) = self.held.remove(&holder) {
            self.exclusive -= usize::from(held.exclusive);
        }
    }
}

impl Table {
    /// The conflicting lock that begins first.
    pub(super) fn test(&self, place: &Place, wanted: &Wanted) -> Option<LockConflict> {
        let locks = self.places.get(place)?;
        let mut first: Option<(Holder, &Held, (LockSpan, LockMode))> = None;
        for found in locks.in_the_way(wanted) {
            if first.is_none_or(|(_, _, (span, _))| found.2.0.first < span.first) {
                first = Some(found);
            }
            if first.is_some_and(|(_, _, (span, _))| span.first == 0) {
                break;
            }
        }
        first.map(|(other, held, (span, mode))| LockConflict {
            session: other.session,
            pid: held.pid,
            span,
            mode,
        })
    }

    /// An owner's locks on a file may end at any moment until then.
    pub(super) fn ends(&mut self, place: &Place, holder: Holder, until: Instant) {
        let locks = self.places.get_mut(place);
        if let Some(held) = locks.and_then(|locks| locks.held.get_mut(&holder)) {
            held.ends = Some(until);
        }
    }

    /// When all conflicting locks will have ended; `None` if one of them is not about to end, or if there are none.
    pub(super) fn all_end(&self, place: &Place, wanted: &Wanted, now: Instant) -> Option<Instant> {
        let conflicts = self.places.get(place)?.in_the_way(wanted);
        let ends = conflicts.map(|(_, held, _)| held.ends.filter(|ends| *ends > now));
        ends.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    /// Takes a lock; `wait`: if it conflicts, queues for it.
    pub(super) fn lock(&mut self, place: &Place, wanted: Wanted, wait: bool) -> Taken {
        let conflict = self.test(place, &wanted);
        let alone = || {
            self.places
                .get(place)
                .is_none_or(|locks| locks.queue.is_empty())
        };
        match conflict {
            Some(conflict) if !wait => return Taken::Now(LockOutcome::Held(conflict)),
            None if !wait || alone() => {
                self.give(place, &wanted);
                self.settle(place);
                self.settle_around(place.kind, wanted.holder);
                return Taken::Now(LockOutcome::Done);
            }
            Some(_) | None => {}
        }
        if !self.is_waited_for(place.kind, wanted.holder) {
            // Its wait changes nothing for others.
            let behind = |locks: &Locks| locks.ahead(&wanted, u64::MAX).next().is_some();
            if conflict.is_some() || self.places.get(place).is_some_and(behind) {
                self.queue(place, wanted);
                return Taken::Queued;
            }
        }
        if conflict.is_some()
            && place.kind == LockKind::Record
            && self.closes_circle(place, &wanted)
        {
            return Taken::Now(LockOutcome::Deadlock);
        }
        self.queue(place, wanted);
        let ticket = (wanted.holder.session, wanted.ticket);
        self.settle(place);
        if self.tickets.contains_key(&ticket) {
            self.settle_around(place.kind, wanted.holder);
        }
        if self.tickets.contains_key(&ticket) {
            return Taken::Queued;
        }
        self.decided
            .retain(|done| (done.session, done.ticket) != ticket);
        Taken::Now(LockOutcome::Done)
    }

    /// Releases locks; returns whether there were any.
    pub(super) fn unlock(&mut self, place: &Place, holder: Holder, span: LockSpan) -> bool {
        let Some(locks) = self.places.get_mut(place) else {
            return false;
        };
        let had = locks.take(holder, span);
        if had {
            if !locks.held.contains_key(&holder) {
                self.holds_no_more(place, holder);
            }
            self.settle(place);
            self.drop_empty(place);
        }
        had
    }

    /// Releases a lock that the owner holds in another mode than requested, as a first step to that mode; returns
    /// whether there was one.
    pub(super) fn unlock_other(&mut self, place: &Place, wanted: &Wanted) -> bool {
        let other = self.places.get(place).is_some_and(|locks| {
            locks
                .held
                .get(&wanted.holder)
                .is_some_and(|held| held.spans.iter().any(|(_, mode)| mode != wanted.mode))
        });
        other && self.unlock(place, wanted.holder, wanted.span)
    }

    /// Replaces all locks of a session by these, and removes its waiting requests. Returns the parts that conflict
    /// with other owners' locks.
    ///
    /// The session loses those bytes and no others: the rest of each lock is certainly held by its owner. And of
    /// those bytes it retains what it can: an owner that was downgrading an exclusive lock when the reply was lost
    /// has the shared lock in any case.
    pub(super) fn replace(
        &mut self,
        session: SessionId,
        held: impl IntoIterator<Item = HeldLocks>,
    ) -> Vec<LostLocks> {
        let before = self.present.get(&session);
        let before: Vec<Place> = before
            .into_iter()
            .flat_map(|at| at.keys().cloned())
            .collect();
        for place in &before {
            let Some(locks) = self.places.get_mut(place) else {
                continue;
            };
            let is_its = |wanted: &Wanted| wanted.holder.session == session;
            let waiting = locks.queue.iter().filter(|(_, wanted)| is_its(wanted));
            let waiting: Vec<u64> = waiting.map(|(&number, _)| number).collect();
            let from = Holder {
                session,
                owner: LockOwner(0),
            };
            let holders = locks.held.range(from..).map(|(&holder, _)| holder);
            let holders: Vec<Holder> = holders
                .take_while(|holder| holder.session == session)
                .collect();
            holders.iter().for_each(|&holder| locks.remove(holder));
            for number in waiting {
                self.dequeue(place, number);
            }
            for holder in holders {
                self.holds_no_more(place, holder);
            }
        }
        let mut lost = Vec::new();
        for one in held {
            let (kind, owner) = (one.kind, one.owner);
            let file = one.file;
            let place = Place { file, kind };
            let mut spans = Vec::new();
            for (span, mode) in one.spans {
                let wanted = Wanted {
                    holder: Holder { session, owner },
                    pid: one.pid,
                    span,
                    mode,
                    ticket: LockTicket(0),
                    since: Instant::now(),
                };
                self.reclaim(&place, &wanted, &mut spans);
            }
            let file = place.file;
            if !spans.is_empty() {
                lost.push(LostLocks {
                    file,
                    kind,
                    owner,
                    spans,
                });
            }
        }
        for place in &before {
            self.settle(place);
            self.drop_empty(place);
        }
        self.decided.retain(|done| done.session != session);
        lost
    }

    /// Gives an owner what it may have of a lock; adds the parts that it may not have to `lost`, with the mode that it
    /// has there.
    fn reclaim(
        &mut self,
        place: &Place,
        wanted: &Wanted,
        lost: &mut Vec<(LockSpan, Option<LockMode>)>,
    ) {
        let mut mine = Spans::default();
        mine.set(wanted.span, Some(wanted.mode));
        let against = self.places.get(place).map(|locks| locks.against(wanted));
        for (span, other) in against.iter().flat_map(Spans::iter) {
            let left = (other == LockMode::Shared).then_some(LockMode::Shared);
            mine.set(span, left);
            lost.push((span, left));
        }
        for (span, mode) in mine.iter() {
            self.give(
                place,
                &Wanted {
                    span,
                    mode,
                    ..*wanted
                },
            );
        }
    }

    /// Removes a request from its queue; returns whether it waited.
    pub(super) fn cancel(&mut self, session: SessionId, ticket: LockTicket) -> bool {
        let Some((place, number)) = self.tickets.get(&(session, ticket)).cloned() else {
            return false;
        };
        self.dequeue(&place, number);
        self.settle(&place);
        self.drop_empty(&place);
        true
    }

    /// Removes everything of a session.
    pub(super) fn end_session(&mut self, session: SessionId) {
        self.replace(session, []);
    }

    /// The requests that were granted since the last call.
    pub(super) fn take_decided(&mut self) -> Vec<Decided> {
        std::mem::take(&mut self.decided)
    }

    /// Number of spans that a session holds, in all files.
    pub(super) fn count(&self, session: SessionId) -> usize {
        let places = self.present.get(&session).into_iter();
        places
            .flat_map(|present| present.keys())
            .filter_map(|place| self.places.get(place))
            .flat_map(|locks| &locks.held)
            .filter(|(holder, _)| holder.session == session)
            .map(|(_, held)| held.spans.len())
            .sum()
    }

    fn give(&mut self, place: &Place, wanted: &Wanted) {
        let holder = wanted.holder;
        if self.places.entry(place.clone()).or_default().give(wanted) {
            *self.holds.entry((place.kind, holder)).or_default() += 1;
            self.is_present(place, holder.session);
            self.note_tangled(place.kind, holder);
        }
    }

    /// Notes that an owner has released its last lock in a place.
    fn holds_no_more(&mut self, place: &Place, holder: Holder) {
        let key = (place.kind, holder);
        if let Some(places) = self.holds.get_mut(&key) {
            *places -= 1;
            if *places == 0 {
                self.holds.remove(&key);
            }
        }
        self.is_absent(place, holder.session);
        self.note_tangled(place.kind, holder);
    }

    fn queue(&mut self, place: &Place, wanted: Wanted) {
        let (holder, number) = (wanted.holder, self.arrivals);
        self.arrivals += 1;
        let at = (place.clone(), number);
        self.tickets
            .insert((holder.session, wanted.ticket), at.clone());
        self.waits.entry((place.kind, holder)).or_default().push(at);
        let locks = self.places.entry(place.clone()).or_default();
        locks.queue.insert(number, wanted);
        self.is_present(place, holder.session);
        self.note_tangled(place.kind, holder);
    }

    /// Removes a request from its queue.
    fn dequeue(&mut self, place: &Place, number: u64) {
        let Some(locks) = self.places.get_mut(place) else {
            return;
        };
        let Some(wanted) = locks.queue.remove(&number) else {
            return;
        };
        locks.tangled.remove(&number);
        let session = wanted.holder.session;
        self.tickets.remove(&(session, wanted.ticket));
        let key = (place.kind, wanted.holder);
        if let Some(waits) = self.waits.get_mut(&key) {
            waits.retain(|(_, other)| *other != number);
            if waits.is_empty() {
                self.waits.remove(&key);
            }
        }
        self.is_absent(place, session);
        self.note_tangled(place.kind, wanted.holder);
    }

    /// One more owner or request of a session is in a place.
    fn is_present(&mut self, place: &Place, session: SessionId) {
        let present = self.present.entry(session).or_default();
        match present.get_mut(place) {
            Some(count) => *count += 1,
            None => {
                present.insert(place.clone(), 1);
            }
        }
    }

    /// One owner or request of a session less is in a place.
    fn is_absent(&mut self, place: &Place, session: SessionId) {
        let Some(present) = self.present.get_mut(&session) else {
            return;
        };
        if let Some(count) = present.get_mut(place) {
            *count -= 1;
            if *count == 0 {
                present.remove(place);
            }
        }
        if present.is_empty() {
            self.present.remove(&session);
        }
    }

    /// Whether others may wait for an owner that makes a request now.
    fn is_waited_for(&self, kind: LockKind, holder: Holder) -> bool {
        let key = (kind, holder);
        self.holds.contains_key(&key) || self.waits.contains_key(&key)
    }

    /// Marks the requests of an owner after a change of what it holds or waits for.
    fn note_tangled(&mut self, kind: LockKind, holder: Holder) {
        let key = (kind, holder);
        let Some(waits) = self.waits.get(&key) else {
            return;
        };
        let tangled = waits.len() > 1 || self.holds.contains_key(&key);
        for (place, number) in waits {
            if let Some(locks) = self.places.get_mut(place) {
                match tangled {
                    true => locks.tangled.insert(*number),
                    false => locks.tangled.remove(number),
                };
            }
        }
    }

    /// Grants waiting requests where possible, in the order of the queue.
    fn settle(&mut self, place: &Place) {
        let mut given = Vec::new();
        let mut from = 0;
        while let Some(locks) = self.places.get(place)
            && let Some((&at, &wanted)) = locks.queue.range(from..).next()
        {
            look();
            if !self.can_have(place, &wanted, at) {
                if locks.ends_scan(at, &wanted) {
                    break;
                }
                from = at + 1;
                continue;
            }
            let gives_up = locks.held.get(&wanted.holder).is_some_and(|held| {
                wanted.mode == LockMode::Shared
                    && conflict(&held.spans, wanted.span, wanted.mode).is_some()
            });
            if gives_up {
                // An exclusive lock became shared: a request further ahead may be grantable now.
                from = 0;
            }
            self.dequeue(place, at);
            self.give(place, &wanted);
            self.decided.push(Decided {
                session: wanted.holder.session,
                ticket: wanted.ticket,
            });
            given.push(wanted.holder);
        }
        for holder in given {
            self.settle_around(place.kind, holder);
        }
    }

    fn can_have(&self, place: &Place, wanted: &Wanted, at: u64) -> bool {
        let Some(locks) = self.places.get(place) else {
            return true;
        };
        if locks.holders_in_the_way(wanted).next().is_some() {
            return false;
        }
        locks
            .ahead(wanted, at)
            .all(|ahead| self.waits_for(place.kind, ahead, wanted.holder))
    }

    /// An owner has begun to wait, or has got a lock that others wait for: requests of the owners that it waits for
    /// may now overtake those. Settles the queues where these owners wait.
    fn settle_around(&mut self, kind: LockKind, holder: Holder) {
        if !self.waits.contains_key(&(kind, holder)) {
            return;
        }
        let reached = self.reach(kind, vec![holder], true, None);
        let places: HashSet<Place> = reached
            .iter()
            .filter_map(|&holder| self.waits.get(&(kind, holder)))
            .flatten()
            .map(|(place, _)| place.clone())
            .collect();
        for place in places {
            self.settle(&place);
        }
    }

    /// Whether `from` waits for `to`, directly, through others, or behind them in a queue.
    fn waits_for(&self, kind: LockKind, from: Holder, to: Holder) -> bool {
        self.reach(kind, vec![from], true, Some(to)).contains(&to)
    }

    /// Whether the owners of conflicting locks wait, by locks alone, for the requesting owner.
    fn closes_circle(&self, place: &Place, wanted: &Wanted) -> bool {
        let Some(locks) = self.places.get(place) else {
            return false;
        };
        let first: Vec<Holder> = locks.holders_in_the_way(wanted).collect();
        self.reach(place.kind, first, false, Some(wanted.holder))
            .contains(&wanted.holder)
    }

    /// The owners that these wait for, directly or through others, including themselves; `queues`: standing behind a
    /// request in a queue counts as well. Stops early at `goal`.
    fn reach(
        &self,
        kind: LockKind,
        mut todo: Vec<Holder>,
        queues: bool,
        goal: Option<Holder>,
    ) -> HashSet<Holder> {
        let mut seen = HashSet::new();
        while let Some(holder) = todo.pop() {
            if !seen.insert(holder) {
                continue;
            }
            if goal == Some(holder) {
                break;
            }
            for (place, at) in self.waits.get(&(kind, holder)).into_iter().flatten() {
                let Some(locks) = self.places.get(place) else {
                    continue;
                };
                if let Some(wanted) = locks.queue.get(at) {
                    todo.extend(locks.holders_in_the_way(wanted));
                    if queues {
                        todo.extend(locks.ahead(wanted, *at));
                    }
                }
            }
        }
        seen
    }

    fn drop_empty(&mut self, place: &Place) {
        if let Some(locks) = self.places.get(place)
            && locks.held.is_empty()
            && locks.queue.is_empty()
        {
            self.places.remove(place);
        }
    }

    /// Whether no lock is held and no request waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
            && self.waits.is_empty()
            && self.holds.is_empty()
            && self.tickets.is_empty()
            && self.present.is_empty()
            && self.decided.is_empty()
    }
}

/// Counts the owners and requests that are looked at, for a test of the cost.
fn look() {
    #[cfg(test)]
    tests::LOOKS.set(tests::LOOKS.get() + 1);
}

mod list;
#[cfg(test)]
mod tests;
