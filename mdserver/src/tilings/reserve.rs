//! Reservations: how far data of a grid object may extend beyond its recorded size.
//!
//! Grid chunks are written before the size is committed. If the writer dies in between, bytes beyond the size stay on
//! the data servers, and would become visible if the object grew over them. So a writer announces how far it writes
//! beyond the size. What a dead session had reserved beyond everything that is recorded or reserved by live sessions
//! is cleared before the object grows over it. The caller clears it, and asks again; meanwhile other sessions have to
//! wait, and so does the caller while writes of the dead session may still be in flight to a data server.
//!
//! One case is not covered: two sessions write beyond the end of one object at the same time, and one of them dies.
//! Its bytes below the other's reservation cannot be distinguished, and stay.

use std::sync::Arc;

use crate::api::{Ino, MdError, ReserveReply, op};
use crate::core::{Core, Ctx, State};
use crate::records::Object;
use crate::sessions::session_of;
use slabfs_model::MAX_BYTES;

/// How far the reservations of live and dead sessions extend.
fn reach(ino: Ino, object: &Object, state: &State) -> (u64, u64) {
    let (mut live, mut dead) = (0, 0);
    for &(session, upto) in &object.reserves {
        if state.closed.is(ino, session) {
            continue;
        }
        let end = if state.sessions.live.contains_key(&session) {
            &mut live
        } else {
            &mut dead
        };
        *end = upto.max(*end);
    }
    (live, dead)
}

/// Refuses to grow an object over a dead session's tail. `old`: its size before.
pub(super) fn refuse_tail(
    ino: Ino,
    object: &Object,
    old: u64,
    state: &State,
) -> Result<(), MdError> {
    let size = object.info.size()?;
    if size <= old || !object.info.is_grid() || object.reserves.is_empty() {
        return Ok(());
    }
    let (live, dead) = reach(ino, object, state);
    let safe = old.max(live);
    if dead > safe && size > safe {
        Err(MdError::NeedsClear)
    } else {
        Ok(())
    }
}

/// Reserves up to `upto` bytes for the caller, or returns what has to be cleared first.
pub(crate) fn reserve(core: &Core, ctx: &Ctx, op: op::Reserve) -> Result<ReserveReply, MdError> {
    let op::Reserve { ino, upto } = op;
    if upto > MAX_BYTES {
        return Err(MdError::TooBig(
            "an object has less than 2^63 bytes".to_owned(),
        ));
    }
    let me = session_of(ctx)?;
    let mut txn = core.begin(ctx)?;
    txn.state.closed.reopen(ino, me);
    let mut inode = txn.inode(ino)?;
    let object = inode.object()?;
    if !object.info.is_grid() {
        return txn.commit(ReserveReply { upto, clear: None });
    }
    let alive = |session: &slabfs_model::SessionId| txn.state.sessions.live.contains_key(session);
    let late =
        |session: &slabfs_model::SessionId| !alive(session) && txn.state.fences.is_open(*session);
    let cleared = match object.clearing {
        Some((who, upto)) if who == me => Some(upto),
        Some((who, _)) if alive(&who) || late(&who) => return Err(MdError::Busy),
        _ => None,
    };
    let size = object.info.size()?;
    let mut changed = object.clone();
    changed.clearing = None;
    changed
        .reserves
        .retain(|(session, upto)| alive(session) || cleared.is_none_or(|cleared| *upto > cleared));
    let (live, dead) = reach(ino, &changed, &txn.state);
    let safe = size.max(live);
    let reply = if dead > safe {
        if changed.reserves.iter().any(|(session, _)| late(session)) {
            return Err(MdError::Busy);
        }
        changed.clearing = Some((me, dead));
        ReserveReply {
            upto: safe,
            clear: Some((safe, dead)),
        }
    } else {
        let granted = upto;
        match changed
            .reserves
            .iter_mut()
            .find(|(session, _)| *session == me)
        {
            Some((_, present)) => *present = granted.max(*present),
            None => changed.reserves.push((me, granted)),
        }
        // What dead sessions reserved below what is reserved or recorded now is irrelevant.
        if dead <= safe {
            changed.reserves.retain(|(session, _)| alive(session));
        }
        ReserveReply {
            upto: granted,
            clear: None,
        }
    };
    if changed.info.stripe.is_empty() {
        txn.choose_stripe(ino, &mut changed)?;
    }
    *Arc::make_mut(&mut inode).object_mut()? = changed;
    txn.put_quietly(inode);
    txn.commit(reply)
}
