//! The operations on coupled objects: decode a request, look at the tiling, wait, build the reply.

use std::time::{Duration, Instant};

use slabfs_model::layout::tiling::Tiling;
use slabfs_model::{Couple, Coupling, End, Full, Hyperslab, Keep, Region, ServerId, SessionId};

use super::Begun;
use super::division::Division;
use super::streams::Writers;
use crate::api::{
    CoupleStatus, CoupledSession, Entry, Ino, MAX_MATCH_BOXES, Matched, MdError, NameWait, Outcome,
    Room, Stored, WaitingRead, Watched, Watching, check_boxes, op,
};
use crate::core::{Core, Ctx, if_any};
use crate::namespace;
use crate::records::Body;
use crate::sessions::session_of;
use crate::tilings;

/// Longest wait of a match.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A write is announced that long after it at the latest, if nothing is wrong.
const ANNOUNCED: Duration = Duration::from_millis(1500);
/// Parts of chunks in a match, at most.
const MOST_PARTS: usize = 1 << 20;

/// [`op::CoupledOpens`].
pub(crate) fn opens(core: &Core, ctx: &Ctx, op: op::CoupledOpens) -> Result<(), MdError> {
    let session = session_of(ctx)?;
    let changed = {
        // A list of a session that ends meanwhile must not stay.
        let mut state = core.state();
        state.session(session)?;
        let mut streams = core.matchers.streams.lock();
        streams.opens(session, op.number, op.opens)
    };
    changed.into_iter().for_each(|ino| core.matchers.wake(ino));
    core.matchers.has_report();
    Ok(())
}

/// [`op::EndStream`].
pub(crate) fn end(core: &Core, _: &Ctx, op: op::EndStream) -> Result<(), MdError> {
    let inode = core.inode(op.ino)?;
    if inode.object()?.info.couple.on().is_none() {
        return Err(MdError::Invalid("the object is not coupled".to_owned()));
    }
    core.matchers.streams.lock().end(op.ino);
    core.matchers.wake(op.ino);
    core.matchers.has_report();
    Ok(())
}

/// [`op::BreakStream`].
pub(crate) fn broken(core: &Core, _: &Ctx, op: op::BreakStream) -> Result<(), MdError> {
    core.matchers.streams.lock().set_broken(op.ino);
    core.matchers.wake(op.ino);
    Ok(())
}

/// [`op::Match`].
pub(crate) fn matched(core: &Core, ctx: &Ctx, op: op::Match) -> Result<Box<Matched>, MdError> {
    let session = session_of(ctx)?;
    check_boxes(&op.cells)?;
    let wait = Duration::from_millis(u64::from(op.wait_ms)).min(LONGEST_WAIT);
    let until = Instant::now() + wait;
    loop {
        match look(core, session, &op, until)? {
            Look::Reply(reply) => return Ok(reply),
            Look::Wait(begun) => {
                begun.read.wait(until);
                if Instant::now() >= until
                    && core.matchers.is_deadlocked(begun.read.ticket, ANNOUNCED)
                {
                    let entry = core.inode(op.ino)?.entry();
                    return Ok(Box::new(Matched {
                        outcome: Outcome::Deadlock,
                        entry,
                        tiling: None,
                    }));
                }
            }
        }
        // The session may have ended meanwhile.
        core.state().session(session)?;
    }
}

enum Look<'a> {
    Reply(Box<Matched>),
    Wait(Begun<'a>),
}

fn look<'a>(
    core: &'a Core,
    session: SessionId,
    op: &op::Match,
    until: Instant,
) -> Result<Look<'a>, MdError> {
    let gone = {
        let (since, lease) = (core.matchers.since, core.options.lease);
        core.state().servers.gone(since, lease)
    };
    core.tilings.with(op.ino, |loaded| {
        let inode = core.inode(op.ino)?;
        let object = inode.object()?;
        let info = &object.info;
        let entry = inode.entry();
        let reply = |outcome, tiling| {
            Ok(Look::Reply(Box::new(Matched {
                outcome,
                entry: entry.clone(),
                tiling,
            })))
        };
        let Some(couple) = info.couple.on() else {
            return reply(Outcome::NotCoupled, None);
        };
        if op
            .cells
            .first()
            .is_some_and(|one| one.rank() != info.dims.len().max(1))
        {
            return Err(MdError::Stale);
        }
        let ended = is_ended(core, op.ino, couple, info.holds);
        if info.is_grid() {
            return match (ended, Instant::now() >= until) {
                (true, _) => reply(Outcome::Ended, None),
                (false, true) => reply(Outcome::Waits(Vec::new()), None),
                (false, false) => begin(core, op, session, &entry, &op.cells).map(Look::Wait),
            };
        }
        let tiling = loaded.take(core, op.ino, object)?;
        let found = missing(&tiling, &op.cells, &gone);
        let changes = match &found {
            Ok(found) if found.cells.is_empty() || ended => {
                tilings::changes_since(loaded, &tiling, object, op.known)
            }
            _ => None,
        };
        loaded.put(tiling, info.tiling);
        let found = found?;
        if found.cells.is_empty() && couple.keep == Keep::Memory && !op.cells.is_empty() {
            return reply(Outcome::Covered, changes);
        }
        let broken = || core.matchers.streams.lock().is_broken(op.ino);
        if ended && !found.cells.is_empty() && (!found.lost.is_empty() || broken()) {
            return reply(Outcome::Lost(found.lost), None);
        }
        if ended {
            return reply(Outcome::Ended, changes);
        }
        if Instant::now() >= until || core.matchers.is_ending() {
            let mut cells = found.cells;
            cells.truncate(MAX_MATCH_BOXES);
            return reply(Outcome::Waits(cells), None);
        }
        begin(core, op, session, &entry, &found.cells).map(Look::Wait)
    })
}

fn begin<'a>(
    core: &'a Core,
    op: &op::Match,
    session: SessionId,
    entry: &Entry,
    missing: &[Region],
) -> Result<Begun<'a>, MdError> {
    let info = entry.info.as_ref().ok_or(MdError::Stale)?;
    let waited = Duration::from_millis(op.waited_ms);
    core.matchers
        .begin(op.ino, info, (session, op.pid, waited), missing, &op.cells)
}

/// Whether no more data comes.
fn is_ended(core: &Core, ino: Ino, couple: &Couple, holds: bool) -> bool {
    let streams = core.matchers.streams.lock();
    if streams.is_ended(ino) {
        return true;
    }
    // Before anything is written, writers are still to come. `touch` is none of them; one whose data is lost is.
    let has_begun = holds || streams.is_broken(ino);
    if !has_begun || couple.end == End::Never {
        return false;
    }
    match streams.writers(ino) {
        Writers::Open => false,
        Writers::Closed => true,
        // It was written before the service started, if its writers would have been reported by now.
        Writers::Unknown => core.matchers.since.elapsed() > core.options.lease,
    }
}

/// The cells of a match that are not there.
struct Missing {
    cells: Vec<Region>,
    /// Servers that are gone, and that had some of them.
    lost: Vec<ServerId>,
}

fn missing(
    tiling: &Tiling<Stored>,
    cells: &[Region],
    gone: &[ServerId],
) -> Result<Missing, MdError> {
    let mut missing = Missing {
        cells: Vec::new(),
        lost: Vec::new(),
    };
    let (mut parts, mut holes) = (Vec::new(), Vec::new());
    for region in cells {
        parts.clear();
        holes.clear();
        let want = Hyperslab::from_region(region);
        tiling
            .plan_within(&want, MOST_PARTS, &mut parts, &mut holes)
            .map_err(|_| {
                MdError::Invalid("a match lies in too many chunks; ask for less".to_owned())
            })?;
        for part in &parts {
            if let Stored::Chunk(chunk) = &part.record.value
                && gone.contains(&chunk.server)
            {
                missing.lost.push(chunk.server);
                holes.extend(part.want.bounds());
            }
        }
        // They are relative to the box.
        missing.cells.extend(holes.drain(..).map(|mut hole| {
            for (at, base) in hole.offset.iter_mut().zip(&region.offset) {
                *at += base;
            }
            hole
        }));
    }
    missing.lost.sort_unstable();
    missing.lost.dedup();
    Ok(missing)
}

/// [`op::Watch`].
pub(crate) fn watch(core: &Core, ctx: &Ctx, op: op::Watch) -> Result<Vec<Watched>, MdError> {
    let session = session_of(ctx)?;
    let wait = Duration::from_millis(u64::from(op.wait_ms)).min(LONGEST_WAIT);
    let until = Instant::now() + wait;
    let watches = &core.matchers.watches;
    {
        // The watch of a session that ends meanwhile must not stay.
        let mut state = core.state();
        state.session(session)?;
        watches.poll(session, op.objects.iter().map(|one| (one.ino, one.known)));
    }
    loop {
        watches.look(session);
        let mut changed = Vec::new();
        for one in &op.objects {
            changed.extend(if_any(news(core, one))?.flatten());
        }
        if !changed.is_empty()
            || op.objects.is_empty()
            || Instant::now() >= until
            || core.matchers.is_ending()
        {
            return Ok(changed);
        }
        watches.wait(session, until);
        core.state().session(session)?;
    }
}

/// What is new of a watched object.
fn news(core: &Core, seen: &Watching) -> Result<Option<Watched>, MdError> {
    core.tilings.with(seen.ino, |loaded| {
        let inode = core.inode(seen.ino)?;
        let object = inode.object()?;
        let info = &object.info;
        let ended = match info.couple.on() {
            Some(couple) => is_ended(core, seen.ino, couple, info.holds),
            None => true,
        };
        if info.is_grid() || (info.tiling, ended) == (seen.known, seen.ended) {
            return Ok(None);
        }
        let tiling = loaded.take(core, seen.ino, object)?;
        let changes = tilings::changes_since(loaded, &tiling, object, seen.known);
        loaded.put(tiling, info.tiling);
        Ok(Some(Watched {
            ended,
            entry: inode.entry(),
            tiling: changes,
        }))
    })
}

/// [`op::AwaitName`].
pub(crate) fn await_name(core: &Core, ctx: &Ctx, op: op::AwaitName) -> Result<NameWait, MdError> {
    let session = session_of(ctx)?;
    let wait = Duration::from_millis(u64::from(op.wait_ms)).min(LONGEST_WAIT);
    let until = Instant::now() + wait;
    let op::AwaitName { parent, name, .. } = op;
    loop {
        let count = core.matchers.names.lock().count;
        let lookup = op::Lookup {
            parent,
            name: name.clone(),
        };
        if if_any(namespace::lookup(core, ctx, lookup))?.is_some() {
            return Ok(NameWait::Found);
        }
        let directory = core.inode(parent)?;
        let Body::Directory { defaults, .. } = &directory.body else {
            return Err(MdError::NotDirectory);
        };
        let couple = defaults.as_ref().and_then(|all| all.spec.couple.as_ref());
        let Some(couple) = couple
            .and_then(Coupling::on)
            .filter(|couple| couple.takes(&name))
        else {
            return Ok(NameWait::NotCoupled);
        };
        if Instant::now() >= until || core.matchers.is_ending() {
            let timeout_ms = couple.timeout_ms;
            return Ok(NameWait::Missing { timeout_ms });
        }
        let mut names = core.matchers.names.lock();
        names.waiting += 1;
        while names.count == count
            && !core.matchers.is_ending()
            && !core
                .matchers
                .named
                .wait_until(&mut names, until)
                .timed_out()
        {}
        names.waiting -= 1;
        drop(names);
        core.state().session(session)?;
    }
}

/// [`op::AwaitRoom`].
pub(crate) fn await_room(core: &Core, ctx: &Ctx, op: op::AwaitRoom) -> Result<Room, MdError> {
    let session = session_of(ctx)?;
    let wait = Duration::from_millis(u64::from(op.wait_ms)).min(LONGEST_WAIT);
    let until = Instant::now() + wait;
    let matchers = &core.matchers;
    loop {
        let seen = *matchers.reports.lock();
        let inode = core.inode(op.ino)?;
        let couple = inode.object()?.info.couple.on().cloned();
        let Some(couple) = couple.filter(|couple| couple.queue > 0) else {
            return Ok(Room {
                granted: true,
                first: 0,
            });
        };
        let first = op.rows.saturating_sub(u64::from(couple.queue));
        let first = first.min(op.from);
        let granted = {
            let streams = matchers.streams.lock();
            couple.full == Full::Discard
                || streams.is_ended(op.ino)
                || streams.left(op.ino) >= first
        };
        if granted || Instant::now() >= until || matchers.is_ending() {
            return Ok(Room { granted, first });
        }
        let mut reports = matchers.reports.lock();
        while *reports == seen
            && !matchers
                .reported
                .wait_until(&mut reports, until)
                .timed_out()
        {}
        drop(reports);
        core.state().session(session)?;
    }
}

/// [`op::CoupleStatus`].
pub(crate) fn status(
    core: &Core,
    _: &Ctx,
    op: op::CoupleStatus,
) -> Result<Box<CoupleStatus>, MdError> {
    let inode = core.inode(op.ino)?;
    let entry = inode.entry();
    let info = &inode.object()?.info;
    let Some(couple) = info.couple.on() else {
        return Err(MdError::Invalid("the object is not coupled".to_owned()));
    };
    let matchers = usize::from(couple.matchers.max(1));
    let opens = core.matchers.opens_of(op.ino);
    let opens = {
        let state = core.state();
        let host = |id: &SessionId| {
            let session = state.sessions.live.get(id);
            session.map_or_else(String::new, |session| session.record.host.clone())
        };
        opens
            .into_iter()
            .map(|(session, open)| CoupledSession {
                host: host(&session),
                session,
                open,
            })
            .collect()
    };
    Ok(Box::new(CoupleStatus {
        ended: is_ended(core, op.ino, couple, info.holds),
        matchers: Division::new(info, matchers).matchers() as u32,
        opens,
        reads: core.matchers.reads_of(op.ino),
        entry,
    }))
}

impl super::Matchers {
    fn is_ending(&self) -> bool {
        self.ending.load(std::sync::atomic::Ordering::SeqCst)
    }

    fn reads_of(&self, ino: Ino) -> Vec<WaitingRead> {
        let waiting = self.objects.lock().get(&ino).cloned();
        let Some(waiting) = waiting else {
            return Vec::new();
        };
        let reads: Vec<_> = waiting.reads.lock().values().cloned().collect();
        reads
            .into_iter()
            .map(|read| WaitingRead {
                session: read.session,
                pid: read.pid,
                cells: read.cells.clone(),
                missing: waiting.missing(read.ticket),
                for_ms: read.since.elapsed().as_millis() as u64,
            })
            .collect()
    }
}
