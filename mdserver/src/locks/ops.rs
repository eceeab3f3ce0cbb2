//! The operations on locks: decode a request, call the lock server, build the reply.

use std::time::Duration;

use slabfs_model::SessionId;

use super::server::{Inside, Number, check};
use crate::api::{LockNews, LockReply, LocksReclaimed, MdError, op};
use crate::core::{Core, Ctx};
use crate::sessions::session_of;

/// [`op::Lock`].
pub(crate) fn lock(core: &Core, ctx: &Ctx, op: op::Lock) -> Result<LockReply, MdError> {
    check(&op.ask.span)?;
    let session = session_of(ctx)?;
    let reply = enter(core, session)?.ask(session, number(ctx), op.epoch, op.ask)?;
    reply.try_into()
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
    Ok(news)
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
    let reply = enter(core, session)?.reclaim(session, number(ctx), held, first, last)?;
    reply.try_into()
}

fn number(ctx: &Ctx) -> Number {
    Number {
        seq: ctx.seq,
        done_below: ctx.done_below,
    }
}

/// Locks the lock server for a session that is alive as long as the guard exists.
fn enter(core: &Core, session: SessionId) -> Result<Inside<'_>, MdError> {
    let mut state = core.state();
    state.session(session)?;
    Ok(core.locks.enter())
}
