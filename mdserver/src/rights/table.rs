//! Who has which rights, who waits for which, and what has to be given back for it; pure.
//!
//! What holds, of each object:
//!
//! - No two sessions have rights that go against each other: of what one has for writing, another has nothing.
//! - An ask that collides with an earlier one of another session that waits is not granted before it, so all
//!   that collide are served in their order. The others wait for holders alone.
//! - Of each ask that waits for holders alone, every cell in its way was recalled from who has it. A cell is
//!   recalled once, and again only if more of it has to go (all, where reading might stay before).
//! - What a session has here is what it believes to have, and what it is about to hear that it has, and what it
//!   is about to give. Less would be given twice. So holdings are exact, and a giving takes nothing that came with
//!   a grant which its sender did not know yet. One that takes very many
//!   boxes is recalled as a whole; one that cannot be kept exactly (far too many, or boxes of two ranks) counts
//!   as all of the object, and its session has to begin anew ([`Event::Lost`]).
//! - An object of which nobody has or wants anything is not here.
//!
//! A session's asks do not collide with what it has itself, nor with each other.
//!
//! As long as the table is *frozen* asks only queue: there are sessions of which nobody knows what they have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slabfs_model::SessionId;

use super::area::Area;
use super::held::Held;
use crate::api::{Ino, RightArea, RightMode, RightRecall, RightSerial, RightTicket};

/// Boxes above which what a session has of an object is recalled.
const MANY_BOXES: usize = 256;
/// Boxes above which it is lost track of.
const TOO_MANY_BOXES: usize = 1024;

/// An ask, its area [`Area::bounded`].
#[derive(Debug, Clone, Hash)]
pub(super) struct Ask {
    pub(super) ino: Ino,
    pub(super) mode: RightMode,
    pub(super) area: Area,
    pub(super) ticket: RightTicket,
}

/// A right that a session takes along when it begins anew.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) ino: Ino,
    pub(super) mode: RightMode,
    pub(super) area: Area,
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

/// What a session has to hear.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// An ask that waited is granted.
    Granted(Granted),
    /// An ask that waited is not to be granted any more.
    Refused(RightTicket),
    /// It is to give something back.
    Recall(RightRecall),
    /// What it has is not known any more.
    Lost,
}

/// All rights; see the module's head.
#[derive(Debug, Default, Clone, Hash)]
pub(super) struct Table {
    frozen: bool,
    objects: BTreeMap<Ino, Object>,
    sessions: BTreeMap<SessionId, Present>,
    events: Vec<(SessionId, Event)>,
}

/// Where a session has or wants something.
#[derive(Debug, Default, Clone, Hash)]
struct Present {
    /// Of its last grant.
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
    /// Whether an ask waits for an earlier one.
    fn behind(&self, at: usize) -> bool {
        let Some(asked) = self.queue.get(at) else {
            return false;
        };
        let ahead = self.queue.iter().take(at);
        ahead.into_iter().any(|other| collide(other, asked))
    }

    /// What others have or want that an ask must not touch beyond what it asks for.
    fn objections(&self, session: SessionId, ask: &Ask) -> Vec<&Area> {
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
    /// Asks for a right; nothing comes back when it has to wait.
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

    /// Takes in what a session gives back.
    pub(super) fn give(
        &mut self,
        session: SessionId,
        ino: Ino,
        serial: RightSerial,
        keep: Option<RightMode>,
        area: &Area,
    ) {
        let Some(held) = self
            .objects
            .get_mut(&ino)
            .and_then(|object| object.held.get_mut(&session))
        else {
            return;
        };
        held.give(serial, keep, area);
        self.watch(session, ino);
        self.tidy(session, ino);
        self.settle(ino);
    }

    /// Takes an ask out of its queue; says whether it waited.
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

    /// Takes everything of a session on an object away; its asks are refused.
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

    /// Forgets an object that is gone; those who wait for it hear so.
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

    /// Lets a session wait for nothing any more.
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

    /// Takes everything of a session away; its grants count from 1 again.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.begin_anew(session, Vec::new());
    }

    /// Whether nothing that a session says that it keeps goes against what others have.
    pub(super) fn may_keep(&self, session: SessionId, kept: &[Kept]) -> bool {
        let collides = |kept: &Kept| {
            let held = self
                .objects
                .get(&kept.ino)
                .into_iter()
                .flat_map(|it| &it.held);
            let mut others = held.filter(|(by, _)| **by != session);
            others.any(|(_, held)| held.against(kept.mode).overlaps(&kept.area))
        };
        !kept.iter().any(collides)
    }

    /// A session has `kept` and nothing else; its grants count from 1 again. Those that wait are served when that is
    /// known, and not before: they may wait for just what it keeps.
    pub(super) fn begin_anew(&mut self, session: SessionId, kept: Vec<Kept>) {
        let present = self.sessions.remove(&session).unwrap_or_default();
        self.events.retain(|(by, _)| *by != session);
        let mut inos = present.inos;
        for ino in &inos {
            if let Some(object) = self.objects.get_mut(ino) {
                object.queue.retain(|(by, _)| *by != session);
                object.held.remove(&session);
            }
        }
        for Kept { ino, mode, area } in kept {
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

    /// Lets asks only queue, or serves those that did.
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

    /// Whether asks only queue.
    pub(super) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Who may have unflushed writes of an object.
    pub(super) fn writers(&self, ino: Ino) -> impl Iterator<Item = SessionId> + '_ {
        let held = self.objects.get(&ino).into_iter().flat_map(|it| &it.held);
        held.filter(|(_, held)| !held.write.is_empty())
            .map(|(&session, _)| session)
    }

    /// Asks of a session that wait, and objects of which it has or wants something.
    pub(super) fn load(&self, session: SessionId) -> (usize, usize) {
        let present = self.sessions.get(&session);
        present.map_or((0, 0), |it| (it.tickets.len(), it.inos.len()))
    }

    /// Whether an ask with this number waits.
    pub(super) fn waits(&self, session: SessionId, ticket: RightTicket) -> bool {
        let present = self.sessions.get(&session);
        present.is_some_and(|it| it.tickets.contains_key(&ticket))
    }

    /// What is to be told since the last time.
    pub(super) fn take_events(&mut self) -> Vec<(SessionId, Event)> {
        std::mem::take(&mut self.events)
    }

    /// Grants what can be granted, in order, and recalls what is in the way of those that are next.
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
                tell_recall(
                    &mut self.events,
                    holder,
                    ino,
                    held.serial,
                    keep,
                    &held.recall(ask.mode, &ask.area),
                );
            }
            if free {
                // Those behind it may be next now; what is recalled for them is against it as well.
                self.grant(ino, at);
            } else {
                at += 1;
            }
        }
    }

    /// Grants an ask that nothing is in the way of.
    fn grant(&mut self, ino: Ino, at: usize) {
        let Some(object) = self.objects.get_mut(&ino) else {
            return;
        };
        let Some((session, ask)) = object.queue.remove(at) else {
            return;
        };
        let (area, sent) = ask.area.widened(&object.objections(session, &ask));
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

    /// Sees to it that what a session has stays small.
    fn watch(&mut self, session: SessionId, ino: Ino) {
        let Some(held) = self
            .objects
            .get_mut(&ino)
            .and_then(|object| object.held.get_mut(&session))
        else {
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
            tell_recall(&mut self.events, session, ino, serial, None, &Area::All);
        }
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

    /// Forgets that a session is at an object of which it has and wants nothing any more.
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

/// Tells a session to give something back, in as many recalls as it takes.
fn tell_recall(
    events: &mut Vec<(SessionId, Event)>,
    session: SessionId,
    ino: Ino,
    serial: RightSerial,
    keep: Option<RightMode>,
    area: &Area,
) {
    for area in area.to_wire() {
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
