//! The operations on rights: decode a request, call the lock server, build the reply.

use std::time::Duration;

use parking_lot::MutexGuard;
use slabfs_model::SessionId;

use super::server::{Asked, State};
use super::session::Pending;
use super::sizes::merge;
use super::table::{Ask, Granted, Retained};
use crate::api::{
    Entry, Ino, Kind, Looked, MAX_RIGHT_BOXES, MdError, News, RightAsk, RightEvent, RightEventKind,
    RightGive, RightGrant, RightHeld, RightNews, RightReply, RightsBegun, RightsEpoch, op,
};
use crate::core::{self, Core, Ctx};
use crate::namespace::{check_name, named};
use crate::sessions::session_of;
use slabfs_model::BoxSet;

/// Longest time to wait for other sessions to report an object's size.
const PATIENCE: Duration = Duration::from_secs(2);

/// [`op::AskRight`].
pub(crate) fn ask(core: &Core, ctx: &Ctx, op: op::AskRight) -> Result<RightReply, MdError> {
    let op::AskRight { epoch, ref ask } = op;
    let session = session_of(ctx)?;
    // The state stays locked: the grant must describe what was committed when it was granted.
    let (mut state, mut lock_server) = enter(core, ctx)?;
    let entry = state.inode(&*core.kv, ask.ino)?.entry();
    ask_in(&mut lock_server, session, epoch, ask, entry)
}

/// [`ask`] on a given lock server. `entry`: the current state of the object.
pub(super) fn ask_in(
    lock_server: &mut State,
    session: SessionId,
    epoch: RightsEpoch,
    ask: &RightAsk,
    entry: Entry,
) -> Result<RightReply, MdError> {
    let area = ask.area.cells()?.bounded(MAX_RIGHT_BOXES);
    check_rank(&entry, &area)?;
    let ask = Ask {
        ino: ask.ino,
        mode: ask.mode,
        area,
        ticket: ask.ticket,
    };
    Ok(match lock_server.ask(session, epoch, ask)? {
        Asked::Granted(granted) => RightReply::Granted(grant(granted, entry)),
        Asked::Queued => RightReply::Queued,
        Asked::Reset => RightReply::Reset,
    })
}

/// Checks that the boxes have the object's rank; if not, the caller's information is stale.
fn check_rank(entry: &Entry, area: &BoxSet) -> Result<(), MdError> {
    let Some(info) = &entry.info else {
        return Err(match entry.attr.kind {
            Kind::Directory => MdError::IsDirectory,
            _ => MdError::NotSupported("only objects have cells".into()),
        });
    };
    let rank = info.dims.len().max(1);
    match area.rank() {
        Some(other) if other != rank => Err(MdError::Stale),
        _ => Ok(()),
    }
}

fn grant(granted: Granted, entry: Entry) -> RightGrant {
    RightGrant {
        ticket: granted.ticket,
        serial: granted.serial,
        mode: granted.mode,
        area: granted.area,
        entry,
    }
}

/// [`op::CancelRight`].
pub(crate) fn cancel(core: &Core, ctx: &Ctx, op: op::CancelRight) -> Result<(), MdError> {
    let op::CancelRight { epoch, ticket } = op;
    let session = session_of(ctx)?;
    enter(core, ctx)?.1.cancel(session, epoch, ticket);
    Ok(())
}

/// [`op::GiveRights`].
pub(crate) fn give(core: &Core, ctx: &Ctx, op: op::GiveRights) -> Result<(), MdError> {
    let op::GiveRights { epoch, gives } = op;
    let session = session_of(ctx)?;
    let gives = cells(gives)?;
    let (state, mut lock_server) = enter(core, ctx)?;
    drop(state);
    lock_server.give(session, epoch, gives);
    Ok(())
}

/// Returned rights with their cells.
pub(super) fn cells(gives: Vec<RightGive>) -> Result<Vec<(RightGive, BoxSet)>, MdError> {
    let cells = |give: RightGive| give.area.cells().map(|area| (give, area));
    gives.into_iter().map(cells).collect()
}

/// [`op::ResetRights`].
pub(crate) fn reset(core: &Core, ctx: &Ctx, op: op::ResetRights) -> Result<RightsBegun, MdError> {
    let op::ResetRights { held: retained } = op;
    let session = session_of(ctx)?;
    let (_state, mut lock_server) = enter(core, ctx)?;
    reset_in(&mut lock_server, session, ctx.seq, retained)
}

/// [`reset`] on a given lock server. `seq`: the sequence number of the request.
pub(super) fn reset_in(
    lock_server: &mut State,
    session: SessionId,
    seq: u64,
    retained: Vec<RightHeld>,
) -> Result<RightsBegun, MdError> {
    let retained = retained.into_iter().map(|it| {
        Ok(Retained {
            ino: it.ino,
            mode: it.mode,
            area: it.area.cells()?,
        })
    });
    lock_server.reset(session, seq, retained.collect::<Result<_, MdError>>()?)
}

/// [`op::RightEvents`].
pub(crate) fn events(core: &Core, ctx: &Ctx, op: op::RightEvents) -> Result<RightNews, MdError> {
    let op::RightEvents {
        epoch,
        seen,
        wait_ms,
    } = op;
    let session = session_of(ctx)?;
    let wait = Duration::from_millis(u64::from(wait_ms));
    let news = core.rights.news(session, epoch, seen, wait);
    // The session may have ended meanwhile.
    core.state().session(session)?;
    let entry = |ino| Ok(core.inode(ino)?.entry());
    to_wire(news?, entry)
}

/// Converts the result of a poll to its wire form. `entry` returns the current state of an object.
pub(super) fn to_wire(
    news: News<Pending>,
    entry: impl Fn(Ino) -> Result<Entry, MdError>,
) -> Result<RightNews, MdError> {
    let News::Events(events) = news else {
        return Ok(RightNews::Over);
    };
    let events = events.into_iter().map(|pending| {
        Ok(RightEvent {
            number: pending.number,
            kind: event(pending.kind, &entry)?,
        })
    });
    Ok(RightNews::Events(events.collect::<Result<_, MdError>>()?))
}

/// Converts an event to its wire form. A grant carries the object's current state, which includes at least what was
/// committed when it was granted.
fn event(
    what: Pending,
    entry: &impl Fn(Ino) -> Result<Entry, MdError>,
) -> Result<RightEventKind, MdError> {
    Ok(match what {
        Pending::Granted(granted) => match entry(granted.ino) {
            Ok(entry) => RightEventKind::Granted(grant(granted, entry)),
            Err(MdError::NotFound) => RightEventKind::Refused(granted.ticket),
            Err(error) => return Err(error),
        },
        Pending::Refused(ticket) => RightEventKind::Refused(ticket),
        Pending::Recall(recall) => RightEventKind::Recall(recall),
        Pending::Size { ino, question } => RightEventKind::Size { ino, question },
        Pending::Names { inos, change } => RightEventKind::Names { inos, change },
    })
}

/// [`op::Stat`].
pub(crate) fn stat(core: &Core, ctx: &Ctx, op: op::Stat) -> Result<Looked, MdError> {
    let op::Stat { ino, keep } = op;
    let session = session_of(ctx)?;
    if core.inode(ino)?.attr.kind == Kind::Directory {
        // Ask for permission before reading the attributes.
        let keep_attributes = keep && core.rights.keep_names(session, ino);
        return Ok(Looked {
            found: Some(core.inode(ino)?.entry()),
            keep_name: false,
            keep_attributes,
        });
    }
    let patience = PATIENCE.min(core.options.lease);
    let unflushed = core.rights.unflushed(session, ino, patience);
    // Read last: what a session flushed before it answered is committed.
    let mut entry = core.inode(ino)?.entry();
    merge(&mut entry, &unflushed);
    Ok(Looked {
        found: Some(entry),
        keep_name: false,
        keep_attributes: false,
    })
}

/// [`op::Look`].
pub(crate) fn look(core: &Core, ctx: &Ctx, op: op::Look) -> Result<Looked, MdError> {
    let op::Look { parent, ref name } = op;
    let session = session_of(ctx)?;
    if core.inode(parent)?.attr.kind != Kind::Directory {
        return Err(MdError::NotDirectory);
    }
    // Changes to the directory do not change `..`, and an invalid name needs no cache entry.
    let is_name = check_name(name).is_ok();
    // Ask for both permissions before reading anything that may be cached.
    let keep_name = is_name && core.rights.keep_names(session, parent);
    let found = match named(core, parent, name) {
        Ok(entry) => Some(entry),
        // The directory itself may be gone since; then it has no such name either.
        Err(MdError::NotFound) => None,
        Err(error) => return Err(error),
    };
    let directory = found
        .as_ref()
        .filter(|entry| entry.attr.kind == Kind::Directory)
        .map(|entry| entry.attr.ino)
        .filter(|&ino| core.rights.keep_names(session, ino));
    let (found, keep_attributes) = match directory {
        Some(ino) => match core.inode(ino) {
            Ok(inode) => (Some(inode.entry()), true),
            // It was just removed: this one reply is as if the lookup had come before that.
            Err(MdError::NotFound) => (found, false),
            Err(error) => return Err(error),
        },
        None => (found, false),
    };
    Ok(Looked {
        found,
        keep_name,
        keep_attributes,
    })
}

/// [`op::ReportForgotten`].
pub(crate) fn forgot(core: &Core, ctx: &Ctx, op: op::ReportForgotten) -> Result<(), MdError> {
    core.rights.forgot(session_of(ctx)?, op.epoch, op.change);
    Ok(())
}

/// [`op::ReportSize`].
pub(crate) fn report_size(core: &Core, ctx: &Ctx, op: op::ReportSize) -> Result<(), MdError> {
    core.rights
        .report_size(session_of(ctx)?, op.question, op.unflushed);
    Ok(())
}

/// Locks the state, and the lock server for a session that is alive as long as the state is locked.
fn enter<'a>(
    core: &'a Core,
    ctx: &Ctx,
) -> Result<(MutexGuard<'a, core::State>, MutexGuard<'a, State>), MdError> {
    Ok((core.enter(ctx)?, core.rights.enter()))
}
