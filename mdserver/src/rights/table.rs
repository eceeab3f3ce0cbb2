//! Which session holds which rights, which requests wait, and what is recalled for them; pure.
//!
//! Invariants, for each object:
//!
//! - No two sessions hold conflicting rights: cells that one may write, no other may read.
//! - A request that conflicts with an earlier waiting request of another session is not granted before it, so
//!   conflicting requests are served in order. The remaining requests wait for holders only.
//! - For each request that waits for holders only, every conflicting cell was recalled from its holder. A cell is
//!   recalled once, and again only if more of it has to go (everything, where the first recall left reading).
//! - What a session holds according to the table is what it believes to hold, plus grants that have not arrived, plus
//!   returns that have not arrived. Recording less would grant a right twice. So holdings are exact, and a return
//!   removes nothing that came with a grant which its sender had not processed. A holding with very many boxes is
//!   recalled completely. One that cannot be recorded exactly (far too many boxes, or boxes of two ranks) counts as
//!   the entire object, and its session has to reset its rights ([`Event::Lost`]).
//! - An object of which no session holds or requests anything is not in the table.
//!
//! A session's requests do not conflict with its own holdings, nor with each other.
//!
//! While the table is *frozen*, requests are only queued: the holdings of some sessions are unknown.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slabfs_model::SessionId;

use slabfs_model::BoxSet;

use super::held::Held;
use super::widen::widened;
use crate::api::{Ino, RightArea, RightMode, RightRecall, RightSerial, RightTicket};

/// Number of boxes above which a session's holding of an object is recalled.
const MANY_BOXES: usize = 256;
/// Number of boxes above which the holding is no longer recorded exactly.
const TOO_MANY_BOXES: usize = 1024;

/// A request for a right, its area [`BoxSet::bounded`].
#[derive(Debug, Clone, Hash)]
pub(super) struct Ask {
    pub(super) ino: Ino,
    pub(super) mode: RightMode,
    pub(super) area: BoxSet,
    pub(super) ticket: RightTicket,
}

/// A right that a session retains across a reset.
#[derive(Debug, Clone)]
pub(super) struct Retained {
    pub(super) ino: Ino,
    pub(super) mode: RightMode,
    pub(super) area: BoxSet,
}

/// A right that was granted.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Granted {
    pub(super) ino: Ino,
    pub(super) ticket: RightTicket,
    pub(super) serial: RightSerial,
    pub(super) mode: RightMode,
    pub(super) area: RightArea,
}

/// A notification to a session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A waiting request is granted.
    Granted(Granted),
    /// A waiting request will not be granted.
    Refused(RightTicket),
    /// The session has to return something.
    Recall(RightRecall),
    /// What it holds is no longer known.
    Lost,
}

/// All rights; see the module documentation.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Table {
    frozen: bool,
    objects: BTreeMap<Ino, Object>,
    sessions: BTreeMap<SessionId, Present>,
    events: Vec<(SessionId, Event)>,
}

/// The objects of which a session holds or requests something.
#[derive(Debug, Default, Clone, Hash)]
struct Present {
    /// Serial of its last grant.
    serial: RightSerial,
    inos: BTreeSet<Ino>,
    tickets: BTreeMap<RightTicket, Ino>,
}

#[derive(Debug, Default, Clone, Hash)]
struct Object {
    held: BTreeMap<SessionId, Held>,
    queue: VecDeque<(SessionId, Ask)>,
}

fn collide(one: &(SessionId, Ask), two: &(SessionId, Ask)) -> bool {
    one.0 != two.0
        && (one.1.mode, two.1.mode) != (RightMode::Read, RightMode::Read)
        && one.1.area.overlaps(&two.1.area)
}

impl Object {
    /// Whether a request waits for an earlier one.
    fn behind(&self, at: usize) -> bool {
        let Some(asked) = self.queue.get(at) else {
            return false;
        };
        let ahead = self.queue.iter().take(at);
        ahead.into_iter().any(|other| collide(other, asked))
    }

    /// Areas that others hold or request, into which a grant must not extend beyond the requested area.
    fn objections(&self, session: SessionId, ask: &Ask) -> Vec<&BoxSet> {
        let held = self.held.iter().filter(|(by, _)| **by != session);
        let wanted = self.queue.iter().filter(|(by, other)| {
            *by != session && (ask.mode, other.mode) != (RightMode::Read, RightMode::Read)
        });
        held.map(|(_, held)| held.against(ask.mode))
            .chain(wanted.map(|(_, other)| &other.area))
            .collect()
    }
}

impl Table {
    /// Requests a right; returns `None` if it has to wait.
    pub(super) fn ask(&mut self, session: SessionId, ask: Ask) -> Option<Granted> {
        let (ino, ticket) = (ask.ino, ask.ticket);
        let present = self.sessions.entry(session).or_default();
        present.inos.insert(ino);
        present.tickets.insert(ticket, ino);
        let object = self.objects.entry(ino).or_default();
        object.queue.push_back((session, ask));
        self.settle(ino);
        let mine = |(by, events): &(SessionId, Event)| {
            *by == session && matches!(events, Event::Granted(granted) if granted.ticket == ticket)
        };
        let at = self.events.iter().position(mine)?;
        match self.events.remove(at) {
            (_, Event::Granted(granted)) => Some(granted),
            _ => None,
        }
    }

    /// Processes returned rights.
    pub(super) fn give(
        &mut self,
        session: SessionId,
        ino: Ino,
        serial: RightSerial,
        keep: Option<RightMode>,
        area: &BoxSet,
    ) {
        let Some(held) = self.held(session, ino) else {
            return;
        };
        held.give(serial, keep, area);
        self.watch(session, ino);
        self.tidy(session, ino);
        self.settle(ino);
    }

    /// Removes a request from its queue; returns whether it was there.
    pub(super) fn cancel(&mut self, session: SessionId, ticket: RightTicket) -> bool {
        let Some(present) = self.sessions.get_mut(&session) else {
            return false;
        };
        let Some(ino) = present.tickets.remove(&ticket) else {
            return false;
        };
        self.leave(ino, |by, ask| by == session && ask.ticket == ticket);
        self.tidy(session, ino);
        self.settle(ino);
        true
    }

    /// Removes everything of a session on an object; its requests are refused.
    pub(super) fn close(&mut self, session: SessionId, ino: Ino) {
        let present = self.sessions.get(&session);
        if present.is_none_or(|present| !present.inos.contains(&ino)) {
            return;
        }
        for (_, ask) in self.leave(ino, |by, _| by == session) {
            if let Some(present) = self.sessions.get_mut(&session) {
                present.tickets.remove(&ask.ticket);
            }
            self.events.push((session, Event::Refused(ask.ticket)));
        }
        if let Some(object) = self.objects.get_mut(&ino) {
            object.held.remove(&session);
        }
        self.tidy(session, ino);
        self.settle(ino);
    }

    /// Drops an object that is gone; requests that wait for it are refused.
    pub(super) fn gone(&mut self, ino: Ino) {
        let Some(object) = self.objects.remove(&ino) else {
            return;
        };
        for (session, ask) in object.queue {
            if let Some(present) = self.sessions.get_mut(&session) {
                present.tickets.remove(&ask.ticket);
                present.inos.remove(&ino);
            }
            self.events.push((session, Event::Refused(ask.ticket)));
        }
        for session in object.held.into_keys() {
            if let Some(present) = self.sessions.get_mut(&session) {
                present.inos.remove(&ino);
            }
        }
    }

    /// Removes all waiting requests of a session.
    pub(super) fn withdraw(&mut self, session: SessionId) {
        let Some(present) = self.sessions.get_mut(&session) else {
            return;
        };
        let inos: BTreeSet<Ino> = std::mem::take(&mut present.tickets).into_values().collect();
        for ino in inos {
            self.leave(ino, |by, _| by == session);
            self.tidy(session, ino);
            self.settle(ino);
        }
    }

    /// Removes everything of a session; its grants count from 1 again.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.reset(session, Vec::new());
    }

    /// Whether the rights that a session retains conflict with none of another session.
    pub(super) fn may_retain(&self, session: SessionId, retained: &[Retained]) -> bool {
        let collides = |retained: &Retained| {
            let held = self
                .objects
                .get(&retained.ino)
                .into_iter()
                .flat_map(|it| &it.held);
            let mut others = held.filter(|(by, _)| **by != session);
            others.any(|(_, held)| held.against(retained.mode).overlaps(&retained.area))
        };
        !retained.iter().any(collides)
    }

    /// A session holds `retained` and nothing else; its grants count from 1 again. Waiting requests are served only
    /// after that is recorded: they may wait for the very cells that it retains.
    pub(super) fn reset(&mut self, session: SessionId, retained: Vec<Retained>) {
        let present = self.sessions.remove(&session).unwrap_or_default();
        self.events.retain(|(by, _)| *by != session);
        let mut inos = present.inos;
        for ino in &inos {
            if let Some(object) = self.objects.get_mut(ino) {
                object.queue.retain(|(by, _)| *by != session);
                object.held.remove(&session);
            }
        }
        for Retained { ino, mode, area } in retained {
            let object = self.objects.entry(ino).or_default();
            let held = object.held.entry(session).or_default();
            held.add(RightSerial::default(), mode, &area);
            self.sessions.entry(session).or_default().inos.insert(ino);
            inos.insert(ino);
        }
        for ino in inos {
            self.tidy(session, ino);
            self.watch(session, ino);
            self.settle(ino);
        }
    }

    /// Freezes the table, so that requests are only queued, or thaws it and serves the queue.
    pub(super) fn freeze(&mut self, frozen: bool) {
        if std::mem::replace(&mut self.frozen, frozen) && !frozen {
            let waiting = self.objects.iter();
            let waiting: Vec<Ino> = waiting
                .filter(|(_, object)| !object.queue.is_empty())
                .map(|(&ino, _)| ino)
                .collect();
            for ino in waiting {
                self.settle(ino);
            }
        }
    }

    /// Whether requests are only queued.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Sessions that may have unflushed writes of an object.
    pub(super) fn writers(&self, ino: Ino) -> impl Iterator<Item = SessionId> + '_ {
        let held = self.objects.get(&ino).into_iter().flat_map(|it| &it.held);
        held.filter(|(_, held)| !held.write.is_empty())
            .map(|(&session, _)| session)
    }

    /// Number of waiting requests of a session, and of objects of which it holds or requests something.
    pub(super) fn load(&self, session: SessionId) -> (usize, usize) {
        let present = self.sessions.get(&session);
        present.map_or((0, 0), |it| (it.tickets.len(), it.inos.len()))
    }

    /// Whether a request with this ticket waits.
    pub(super) fn waits(&self, session: SessionId, ticket: RightTicket) -> bool {
        let present = self.sessions.get(&session);
        present.is_some_and(|it| it.tickets.contains_key(&ticket))
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<(SessionId, Event)> {
        std::mem::take(&mut self.events)
    }

    /// Grants what can be granted, in order, and recalls what blocks the next requests.
    fn settle(&mut self, ino: Ino) {
        if self.frozen {
            return;
        }
        let mut at = 0;
        while let Some(object) = self.objects.get_mut(&ino)
            && at < object.queue.len()
        {
            if object.behind(at) {
                at += 1;
                continue;
            }
            let Some((session, ask)) = object.queue.get(at) else {
                return;
            };
            let session = *session;
            let mut free = true;
            for (&holder, held) in &mut object.held {
                if holder == session || !held.against(ask.mode).overlaps(&ask.area) {
                    continue;
                }
                free = false;
                let keep = match ask.mode {
                    RightMode::Read => Some(RightMode::Read),
                    RightMode::Write => None,
                };
                push_recall(
                    &mut self.events,
                    holder,
                    ino,
                    held.serial,
                    keep,
                    &held.recall(ask.mode, &ask.area),
                );
            }
            if free {
                // The requests behind it may be next now; a cell recalled for them conflicts with this grant as well.
                self.grant(ino, at);
            } else {
                at += 1;
            }
        }
    }

    /// Grants a request that nothing conflicts with.
    fn grant(&mut self, ino: Ino, at: usize) {
        let Some(object) = self.objects.get_mut(&ino) else {
            return;
        };
        let Some((session, ask)) = object.queue.remove(at) else {
            return;
        };
        let (area, sent) = widened(&ask.area, &object.objections(session, &ask));
        let present = self.sessions.entry(session).or_default();
        present.tickets.remove(&ask.ticket);
        present.serial.0 += 1;
        let held = object.held.entry(session).or_default();
        held.add(present.serial, ask.mode, &area);
        let granted = Granted {
            ino,
            ticket: ask.ticket,
            serial: held.serial,
            mode: ask.mode,
            area: sent,
        };
        self.events.push((session, Event::Granted(granted)));
        self.watch(session, ino);
    }

    /// Limits the number of boxes that a session holds.
    fn watch(&mut self, session: SessionId, ino: Ino) {
        let Some(held) = self.held(session, ino) else {
            return;
        };
        if held.len() > TOO_MANY_BOXES {
            held.lose_track();
        }
        if held.lost {
            self.events.push((session, Event::Lost));
        } else if held.len() <= MANY_BOXES {
            held.shrinks = false;
        } else if !held.shrinks {
            held.shrinks = true;
            held.recalled = held.read.clone();
            held.recalled_write = held.write.clone();
            let serial = held.serial;
            push_recall(&mut self.events, session, ino, serial, None, &BoxSet::All);
        }
    }

    fn held(&mut self, session: SessionId, ino: Ino) -> Option<&mut Held> {
        self.objects.get_mut(&ino)?.held.get_mut(&session)
    }

    fn leave(
        &mut self,
        ino: Ino,
        which: impl Fn(SessionId, &Ask) -> bool,
    ) -> Vec<(SessionId, Ask)> {
        let Some(object) = self.objects.get_mut(&ino) else {
            return Vec::new();
        };
        let queue = std::mem::take(&mut object.queue);
        let (gone, left): (Vec<_>, Vec<_>) =
            queue.into_iter().partition(|(by, ask)| which(*by, ask));
        object.queue = left.into();
        gone
    }

    /// Drops the entry of a session at an object of which it holds and requests nothing any more.
    fn tidy(&mut self, session: SessionId, ino: Ino) {
        if let Some(object) = self.objects.get_mut(&ino) {
            if object
                .held
                .get(&session)
                .is_some_and(|held| held.read.is_empty())
            {
                object.held.remove(&session);
            }
            if object.held.contains_key(&session)
                || object.queue.iter().any(|(by, _)| *by == session)
            {
                return;
            }
        }
        if let Some(present) = self.sessions.get_mut(&session) {
            present.inos.remove(&ino);
        }
        self.drop_empty(ino);
    }

    fn drop_empty(&mut self, ino: Ino) {
        if let Some(object) = self.objects.get(&ino)
            && object.held.is_empty()
            && object.queue.is_empty()
        {
            self.objects.remove(&ino);
        }
    }
}

/// Queues the recall of an area, in as many events as its wire form takes.
fn push_recall(
    events: &mut Vec<(SessionId, Event)>,
    session: SessionId,
    ino: Ino,
    serial: RightSerial,
    keep: Option<RightMode>,
    area: &BoxSet,
) {
    for area in RightArea::of(area) {
        let recall = RightRecall {
            ino,
            serial,
            keep,
            area,
        };
        events.push((session, Event::Recall(recall)));
    }
}

#[cfg(test)]
mod tests;
