//! The operations on locks: decode a request, call the lock server, build the reply.

use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::server::{State, check};
use crate::api::{
    LockList, LockNews, LockReply, LockRow, LocksReclaimed, MAX_LOCK_ROWS, MdError, op,
};
use crate::core::{Core, Ctx};
use crate::sessions::session_of;
use crate::tags::Paths;

/// [`op::Lock`].
pub(crate) fn lock(core: &Core, ctx: &Ctx, op: op::Lock) -> Result<LockReply, MdError> {
    check(&op.ask.span)?;
    let session = session_of(ctx)?;
    Ok(enter(core, ctx)?.ask(session, op.epoch, op.ask))
}

/// [`op::CancelLock`].
pub(crate) fn cancel(core: &Core, ctx: &Ctx, op: op::CancelLock) -> Result<bool, MdError> {
    Ok(core.locks.cancel(session_of(ctx)?, op.ticket))
}

/// [`op::LockEvents`].
pub(crate) fn events(core: &Core, ctx: &Ctx, op: op::LockEvents) -> Result<LockNews, MdError> {
    let session = session_of(ctx)?;
    let wait = Duration::from_millis(u64::from(op.wait_ms));
    let news = core.locks.news(session, op.epoch, op.seen, wait);
    // The session may have ended meanwhile.
    core.state().session(session)?;
    news
}

/// [`op::Locks`].
pub(crate) fn list(core: &Core, _: &Ctx, op: op::Locks) -> Result<LockList, MdError> {
    let (rows, left) = core.locks.list(op.ino, MAX_LOCK_ROWS / 2);
    let now = Instant::now();
    let mut paths = Paths::new(core, op.who.as_ref(), None);
    let mut locks = Vec::with_capacity(rows.len());
    for row in rows {
        let path = paths.of_ino(row.place.file.ino)?;
        let state = core.state();
        let session = state.sessions.live.get(&row.holder.session);
        locks.push(LockRow {
            path,
            file: row.place.file,
            kind: row.place.kind,
            host: session.map_or_else(String::new, |session| session.record.host.clone()),
            session: row.holder.session,
            owner: row.holder.owner,
            pid: row.pid,
            span: row.span,
            mode: row.mode,
            waits: row.waits,
            for_ms: now.saturating_duration_since(row.since).as_millis() as u64,
        });
    }
    Ok(LockList { locks, left })
}

/// [`op::ReclaimLocks`].
pub(crate) fn reclaim(
    core: &Core,
    ctx: &Ctx,
    op: op::ReclaimLocks,
) -> Result<LocksReclaimed, MdError> {
    let op::ReclaimLocks { held, first, last } = op;
    for (span, _) in held.iter().flat_map(|one| &one.spans) {
        check(span)?;
    }
    let session = session_of(ctx)?;
    enter(core, ctx)?.reclaim(session, ctx.seq, held, first, last)
}

/// Locks the lock server for a session that is alive as long as the guard exists.
fn enter<'a>(core: &'a Core, ctx: &Ctx) -> Result<MutexGuard<'a, State>, MdError> {
    let _alive = core.enter(ctx)?;
    Ok(core.locks.enter())
}
