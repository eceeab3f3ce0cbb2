//! Who has a coupled object open: whether data may still come.
//!
//! A mount tells all that it has open, as a list that takes the place of its earlier one; lists are numbered, and a late older one is
//! dropped. Pure.

use std::collections::{BTreeSet, HashMap};

use slabfs_model::SessionId;

use crate::api::{CoupledOpen, Ino};

/// Whether data may still come to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// It has writers.
    Open,
    /// It had writers, and all have closed it.
    Closed,
    /// Nothing is known of any writer.
    Unknown,
}

/// The opens of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    sessions: HashMap<SessionId, Opens>,
    objects: HashMap<Ino, Object>,
}

#[derive(Debug, Default)]
struct Opens {
    number: u64,
    list: Vec<CoupledOpen>,
}

#[derive(Debug, Default)]
struct Object {
    /// It was ended by request.
    ended: bool,
    /// It had a writer since it was created or emptied.
    written: bool,
    /// The mount of a writer has ended without closing it, and no other writer has come since.
    broken: bool,
    writers: BTreeSet<SessionId>,
    readers: BTreeSet<SessionId>,
    /// The rows in front of this one were left behind by all readers that it had at some time.
    left: u64,
}

impl Streams {
    /// Takes the list of a session. Returns the objects whose writers have changed.
    pub(crate) fn opens(
        &mut self,
        session: SessionId,
        number: u64,
        list: Vec<CoupledOpen>,
    ) -> BTreeSet<Ino> {
        let opens = self.sessions.entry(session).or_default();
        if number <= opens.number {
            return BTreeSet::new();
        }
        let old = std::mem::replace(opens, Opens { number, list });
        self.renew(session, &old.list)
    }

    /// Forgets a session. Returns the objects that it had open for writing.
    pub(crate) fn ended(&mut self, session: SessionId) -> BTreeSet<Ino> {
        let Some(old) = self.sessions.remove(&session) else {
            return BTreeSet::new();
        };
        let changed = self.renew(session, &old.list);
        for ino in &changed {
            if let Some(object) = self.objects.get_mut(ino) {
                object.broken = true;
            }
        }
        changed
    }

    fn renew(&mut self, session: SessionId, old: &[CoupledOpen]) -> BTreeSet<Ino> {
        let mut changed = BTreeSet::new();
        let none = Vec::new();
        let new = self.sessions.get(&session).map_or(&none, |one| &one.list);
        for open in old {
            let Some(object) = self.objects.get_mut(&open.ino) else {
                continue;
            };
            let now = new.iter().find(|one| one.ino == open.ino);
            if now.is_none_or(|now| now.writers.is_empty()) && object.writers.remove(&session) {
                changed.insert(open.ino);
            }
            if now.is_none_or(|now| now.readers == 0) {
                object.readers.remove(&session);
            }
        }
        for open in new {
            let object = self.objects.entry(open.ino).or_default();
            if !open.writers.is_empty() {
                object.written = true;
                if object.writers.insert(session) {
                    object.broken = false;
                    changed.insert(open.ino);
                }
            }
            if open.readers > 0 {
                object.readers.insert(session);
            }
        }
        // Also of those that it has closed: the others may have read on further.
        let touched = old.iter().chain(new).map(|open| open.ino);
        for ino in touched.collect::<BTreeSet<_>>() {
            let left = self.first_read(ino);
            if let (Some(object), Some(left)) = (self.objects.get_mut(&ino), left) {
                object.left = object.left.max(left);
            }
        }
        changed
    }

    /// Whether data may still come.
    pub(crate) fn writers(&self, ino: Ino) -> Writers {
        match self.objects.get(&ino) {
            Some(object) if !object.writers.is_empty() => Writers::Open,
            Some(object) if object.written => Writers::Closed,
            _ => Writers::Unknown,
        }
    }

    /// Whether a writer has gone without closing the object, and may have taken data with it.
    pub(crate) fn is_broken(&self, ino: Ino) -> bool {
        self.objects.get(&ino).is_some_and(|object| object.broken)
    }

    /// A writer closes an object, and data that it had written is lost.
    pub(crate) fn set_broken(&mut self, ino: Ino) {
        self.objects.entry(ino).or_default().broken = true;
    }

    /// Whether the stream was ended by request.
    pub(crate) fn is_ended(&self, ino: Ino) -> bool {
        self.objects.get(&ino).is_some_and(|object| object.ended)
    }

    /// The first row that a reader may still read; without a reader, the first one that none has left behind.
    pub(crate) fn left(&self, ino: Ino) -> u64 {
        let without = || self.objects.get(&ino).map_or(0, |object| object.left);
        self.first_read(ino).unwrap_or_else(without)
    }

    fn first_read(&self, ino: Ino) -> Option<u64> {
        let readers = self.objects.get(&ino)?.readers.iter();
        let opens = readers.filter_map(|session| self.sessions.get(session));
        let its = opens.filter_map(|opens| opens.list.iter().find(|open| open.ino == ino));
        its.map(|open| open.from).min()
    }

    /// Ends the stream of an object by request.
    pub(crate) fn end(&mut self, ino: Ino) {
        self.objects.entry(ino).or_default().ended = true;
    }

    /// The object was emptied or removed: its stream begins again with the writers that it has.
    pub(crate) fn restart(&mut self, ino: Ino) {
        if let Some(object) = self.objects.get_mut(&ino) {
            object.ended = false;
            object.broken = false;
            object.left = 0;
            object.written = !object.writers.is_empty();
            if object.writers.is_empty() && object.readers.is_empty() {
                self.objects.remove(&ino);
            }
        }
    }

    /// The threads that have an object open for writing.
    pub(crate) fn writing(&self, ino: Ino) -> Vec<(SessionId, u32)> {
        let Some(object) = self.objects.get(&ino) else {
            return Vec::new();
        };
        let opens = object.writers.iter().filter_map(|session| {
            let opens = self.sessions.get(session)?;
            let open = opens.list.iter().find(|open| open.ino == ino)?;
            Some(open.writers.iter().map(|thread| (*session, *thread)))
        });
        opens.flatten().collect()
    }

    /// The opens of an object, by session.
    pub(crate) fn of(&self, ino: Ino) -> Vec<(SessionId, CoupledOpen)> {
        let mut found: Vec<(SessionId, CoupledOpen)> = self
            .sessions
            .iter()
            .flat_map(|(session, opens)| {
                let its = opens.list.iter().filter(|open| open.ino == ino);
                its.map(|open| (*session, open.clone()))
            })
            .collect();
        found.sort_by_key(|(session, _)| *session);
        found
    }
}

#[cfg(test)]
mod tests {
    use slabfs_model::ObjectId;

    use super::*;

    fn open(ino: u64, writers: &[u32], readers: u32) -> CoupledOpen {
        CoupledOpen {
            ino: ObjectId(ino),
            writers: writers.to_vec(),
            readers,
            from: 0,
        }
    }

    #[test]
    fn the_slowest_reader_counts() {
        let (one, two) = (SessionId(1), SessionId(2));
        let reads = |from| CoupledOpen {
            from,
            ..open(7, &[], 2)
        };
        let mut streams = Streams::default();
        assert_eq!(streams.left(ObjectId(7)), 0);
        streams.opens(one, 1, vec![reads(5)]);
        assert_eq!(streams.left(ObjectId(7)), 5);
        streams.opens(two, 1, vec![reads(3)]);
        assert_eq!(streams.left(ObjectId(7)), 3);
        streams.opens(two, 2, vec![reads(9)]);
        assert_eq!(streams.left(ObjectId(7)), 5);
        streams.opens(one, 2, vec![]);
        assert_eq!(streams.left(ObjectId(7)), 9);
        // One that writes does not count.
        streams.opens(one, 3, vec![open(7, &[1], 0)]);
        assert_eq!(streams.left(ObjectId(7)), 9);
        streams.ended(two);
        assert_eq!(streams.left(ObjectId(7)), 9);
        streams.restart(ObjectId(7));
        assert_eq!(streams.left(ObjectId(7)), 0);
    }

    #[test]
    fn the_last_writer_closes_the_stream() {
        let (one, two) = (SessionId(1), SessionId(2));
        let mut streams = Streams::default();
        assert_eq!(streams.writers(ObjectId(7)), Writers::Unknown);
        streams.opens(two, 1, vec![open(7, &[], 1)]);
        assert_eq!(streams.writers(ObjectId(7)), Writers::Unknown);
        assert_eq!(
            streams.opens(one, 1, vec![open(7, &[10, 11], 0)]),
            [ObjectId(7)].into()
        );
        streams.opens(two, 2, vec![open(7, &[20], 1)]);
        assert_eq!(streams.writers(ObjectId(7)), Writers::Open);
        assert!(streams.opens(one, 2, vec![open(7, &[11], 0)]).is_empty());
        streams.opens(one, 3, vec![]);
        // A late copy of an older list.
        assert!(streams.opens(one, 2, vec![open(7, &[11], 0)]).is_empty());
        assert_eq!(streams.writers(ObjectId(7)), Writers::Open);
        assert_eq!(streams.ended(two), [ObjectId(7)].into());
        assert_eq!(streams.writers(ObjectId(7)), Writers::Closed);
        assert!(streams.is_broken(ObjectId(7)));
        assert!(!streams.is_ended(ObjectId(7)));
        streams.end(ObjectId(7));
        assert!(streams.is_ended(ObjectId(7)));
        streams.restart(ObjectId(7));
        assert_eq!(streams.writers(ObjectId(7)), Writers::Unknown);
    }
}
