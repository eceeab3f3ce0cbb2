//! The operations on locks: decode a request, call the lock server, build the reply.

use std::time::Duration;

use parking_lot::MutexGuard;

use super::server::{State, check};
use crate::api::{HeldLocks, LockAsk, LockEpoch, LockTicket, MdError, Reply};
use crate::core::{Core, Ctx};
use crate::sessions::session_of;

/// [`crate::api::Op::Lock`].
pub(crate) fn lock(
    core: &Core,
    ctx: &Ctx,
    epoch: LockEpoch,
    ask: LockAsk,
) -> Result<Reply, MdError> {
    check(&ask.span)?;
    let session = session_of(ctx)?;
    let reply = enter(core, ctx)?.ask(session, epoch, ask);
    Ok(Reply::Lock(reply))
}

/// [`crate::api::Op::CancelLock`].
pub(crate) fn cancel(core: &Core, ctx: &Ctx, ticket: LockTicket) -> Result<Reply, MdError> {
    let cancelled = core.locks.cancel(session_of(ctx)?, ticket);
    Ok(Reply::LockCancelled(cancelled))
}

/// [`crate::api::Op::LockEvents`].
pub(crate) fn events(
    core: &Core,
    ctx: &Ctx,
    epoch: LockEpoch,
    seen: u64,
    wait_ms: u32,
) -> Result<Reply, MdError> {
    let session = session_of(ctx)?;
    let wait = Duration::from_millis(u64::from(wait_ms));
    let news = core.locks.news(session, epoch, seen, wait);
    // The session may have ended meanwhile.
    core.state().session(session)?;
    Ok(Reply::LockNews(news?))
}

/// [`crate::api::Op::ReclaimLocks`].
pub(crate) fn reclaim(
    core: &Core,
    ctx: &Ctx,
    held: Vec<HeldLocks>,
    first: bool,
    last: bool,
) -> Result<Reply, MdError> {
    for (span, _) in held.iter().flat_map(|one| &one.spans) {
        check(span)?;
    }
    let session = session_of(ctx)?;
    let mut lock_server = enter(core, ctx)?;
    let (lost, epoch) = lock_server.reclaim(session, ctx.seq, held, first, last)?;
    Ok(Reply::LocksReclaimed { lost, epoch })
}

/// Locks the lock server for a session that is alive as long as the guard exists.
fn enter<'a>(core: &'a Core, ctx: &Ctx) -> Result<MutexGuard<'a, State>, MdError> {
    let _alive = core.enter(ctx)?;
    Ok(core.locks.enter())
}
