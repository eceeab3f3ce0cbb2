//! Write permits: keep in-place writes to a grid chunk and the copy made by `drain` apart.
//!
//! Writers take a shared permit for the duration of a write, the mover an exclusive one while it copies. A waiting
//! mover keeps new writers off for a moment, so that it is not starved. Permits are in memory: after a restart of the
//! service there are none. A client that then returns one is notified and redoes its work; an exclusive permit is
//! verified when the object's servers change. The permits of a session that ended are dropped as soon as no data
//! server accepts its writes any more.

use slabfs_model::SessionId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::drain::expect_strays;
use crate::api::{Ino, MdError, Permit, Permitted, op};
use crate::core::{Core, Ctx};
use crate::records::Inode;
use crate::sessions::session_of;

/// How long a refused mover keeps new writers off.
const PATIENCE: Duration = Duration::from_secs(2);

/// All permits in use.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    by_ino: HashMap<Ino, Out>,
}

#[derive(Debug, Default)]
struct Out {
    /// Writers, each by its session and a number that the session chose.
    shared: Vec<(SessionId, u64)>,
    exclusive: Option<(SessionId, u64)>,
    wanted: Option<Instant>,
}

impl Permits {
    /// Takes a write permit; a repeated request returns the same one.
    fn take(
        &mut self,
        ino: Ino,
        who: (SessionId, u64),
        exclusive: bool,
        now: Instant,
    ) -> Result<(), MdError> {
        let out = self.by_ino.entry(ino).or_default();
        if out.exclusive == Some(who) || out.shared.contains(&who) {
            return Ok(());
        }
        if out.exclusive.is_some() {
            return Err(MdError::Busy);
        }
        if !exclusive {
            let held_off = out
                .wanted
                .is_some_and(|since| now.saturating_duration_since(since) < PATIENCE);
            if held_off {
                return Err(MdError::Busy);
            }
            out.shared.push(who);
            return Ok(());
        }
        if !out.shared.is_empty() {
            out.wanted = Some(now);
            return Err(MdError::Busy);
        }
        out.wanted = None;
        out.exclusive = Some(who);
        Ok(())
    }

    /// Returns a write permit; false if it was not in use.
    fn give(&mut self, ino: Ino, who: (SessionId, u64)) -> bool {
        let Some(out) = self.by_ino.get_mut(&ino) else {
            return false;
        };
        let had = out.exclusive == Some(who) || out.shared.contains(&who);
        out.shared.retain(|other| *other != who);
        out.exclusive.take_if(|other| *other == who);
        if out.shared.is_empty() && out.exclusive.is_none() && out.wanted.is_none() {
            self.by_ino.remove(&ino);
        }
        had
    }

    /// Whether the session holds the exclusive permit of an object.
    pub(super) fn is_exclusive(&self, ino: Ino, session: Option<SessionId>) -> bool {
        let out = self.by_ino.get(&ino).and_then(|out| out.exclusive);
        out.is_some_and(|(of, _)| Some(of) == session)
    }

    /// A session has ended.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.by_ino.retain(|_, out| {
            out.shared.retain(|(of, _)| *of != session);
            out.exclusive.take_if(|(of, _)| *of == session);
            !out.shared.is_empty() || out.exclusive.is_some()
        });
    }
}

/// Takes or returns a write permit.
pub(crate) fn permit(
    core: &Core,
    ctx: &Ctx,
    op: op::Permit,
) -> Result<Option<Box<Permitted>>, MdError> {
    let op::Permit { ino, permit } = op;
    let session = session_of(ctx)?;
    let now = Instant::now();
    match permit {
        Permit::Write(number) => {
            let mut state = core.state();
            // A permit granted after the end of its session would never be returned.
            state.session(session)?;
            state.permits.take(ino, (session, number), false, now)?;
            let entry = state.inode(&*core.kv, ino);
            let entry = entry.and_then(|inode| permitted(&inode));
            if entry.is_err() {
                // A refused caller will not return it.
                state.permits.give(ino, (session, number));
            }
            entry
        }
        Permit::Move(number, to) => {
            {
                let mut state = core.state();
                state.session(session)?;
                // A mover's permit that was lost with the last stop of the service is not recorded, and its copies
                // may still arrive.
                if state.fences.earlier_is_open() {
                    return Err(MdError::Busy);
                }
                state.permits.take(ino, (session, number), true, now)?;
            }
            let entry = expect_strays(core, ctx, ino, to)
                .and_then(|()| core.inode(ino))
                .and_then(|inode| permitted(&inode));
            if entry.is_err() {
                core.state().permits.give(ino, (session, number));
            }
            entry
        }
        Permit::Back(number) => {
            if core.state().permits.give(ino, (session, number)) {
                Ok(None)
            } else {
                Err(MdError::Stale)
            }
        }
    }
}

fn permitted(inode: &Inode) -> Result<Option<Box<Permitted>>, MdError> {
    let reserved = inode.object()?.reserves.iter().map(|(_, upto)| *upto);
    Ok(Some(Box::new(Permitted {
        entry: inode.entry(),
        reach: reserved.fold(inode.attr.size, u64::max),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use slabfs_model::ObjectId;

    #[test]
    fn one_mover_or_many_writers() {
        let (ino, now) = (ObjectId(5), Instant::now());
        let (a, b, mover) = ((SessionId(1), 1), (SessionId(2), 1), (SessionId(3), 1));
        let mut permits = Permits::default();
        permits.take(ino, a, false, now).unwrap();
        permits.take(ino, a, false, now).unwrap();
        assert_eq!(permits.take(ino, mover, true, now), Err(MdError::Busy));
        // The mover is next; after a while writers may take it again, if the mover does not return.
        assert_eq!(permits.take(ino, b, false, now), Err(MdError::Busy));
        permits.take(ino, b, false, now + PATIENCE).unwrap();
        assert!(permits.give(ino, a) && !permits.give(ino, a));
        permits.end(SessionId(2));
        permits.take(ino, mover, true, now).unwrap();
        assert!(permits.is_exclusive(ino, Some(SessionId(3))));
        assert!(!permits.is_exclusive(ino, Some(SessionId(1))));
        assert_eq!(permits.take(ino, a, false, now), Err(MdError::Busy));
        permits.end(SessionId(3));
        assert!(permits.by_ino.is_empty());
    }
}
