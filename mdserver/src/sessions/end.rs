//! The end of a session: its requests are refused from then on, and its resources are released.
//!
//! Release, in this order, each step idempotent after a crash: chunk ids that it leased and did not commit are
//! retired on all data servers (unless it detached cleanly); its opens end, and unlinked inodes that no other session
//! has open are removed; its cached replies are deleted; its record is deleted. The record of a session that did not
//! detach cleanly stays until its end is closed ([`super::fence`]): if the service restarts before that, the record
//! shows that writes may still be in flight, and what only that session could write is not granted to others.

use slabfs_model::{ServerId, SessionId};
use std::time::Instant;

use super::lease::{session_of, unused};
use crate::api::{Ino, MdError, op};
use crate::core::{Core, Ctx, State};
use crate::keys;
use crate::kv::{Batch, MetaKv};
use crate::namespace::close;
use crate::placement::{RetireKey, return_places};
use crate::records::{LeaseRecord, SessionRecord, decode, encode};

/// Keys deleted in one batch.
const BATCH: usize = 1000;

/// Ends a session at its own request. An unknown one has ended already.
pub(crate) fn detach(core: &Core, ctx: &Ctx, op: op::Detach) -> Result<(), MdError> {
    end(core, session_of(ctx)?, op.clean)?;
    Ok(())
}

/// Ends the sessions that sent no heartbeat for too long.
pub(crate) fn expire(core: &Core, now: Instant) -> Result<(), MdError> {
    let lease = core.options.lease;
    let silent: Vec<SessionId> = {
        let state = core.state();
        let live = state.sessions.live.iter();
        live.filter(|(_, session)| {
            !session.record.local && now.saturating_duration_since(session.heard) > lease
        })
        .map(|(&id, _)| id)
        .collect()
    };
    for session in silent {
        tracing::warn!(%session, "no heartbeat of the session for {lease:?}: it is lost");
        end(core, session, false)?;
    }
    Ok(())
}

fn end(core: &Core, id: SessionId, clean: bool) -> Result<(), MdError> {
    {
        let mut state = core.state();
        let Ok(session) = state.session(id) else {
            return Ok(());
        };
        let mut record = session.record.clone();
        record.ended = Some(clean);
        let mut batch = Batch::new();
        batch.put(keys::session(id), encode(&record)?);
        core.kv.commit(batch)?;
        if let Some(session) = state.sessions.live.remove(&id) {
            return_places(&mut state.servers, session.places);
            state.fences.ended(id);
            core.rights.ended(id);
            core.matchers.ended(id);
            if clean {
                // It has no writes in flight: it has waited for all of them.
                give_away(core, &mut state, id);
            }
        }
        close_fences(core, &mut state, Instant::now());
        core.count_sessions(&state);
        core.answered.notify_all();
        tracing::info!(session = %id, host = record.host, pid = record.pid, clean, "session ended");
    }
    give_up(core, id, clean)
}

/// Releases the locks, rights and write permits of a session.
fn give_away(core: &Core, state: &mut State, session: SessionId) {
    state.permits.end(session);
    core.locks.end_session(session);
    core.rights.end_session(session);
}

/// Releases what only certain ended sessions could write, once no data server accepts their writes any more.
pub(crate) fn close_fences(core: &Core, state: &mut State, now: Instant) {
    let closed = state.fences.close(&state.servers, core.options.lease, now);
    for session in closed {
        give_away(core, state, session);
        tracing::debug!(%session, "no data server accepts writes of the session any more");
    }
    if !state.fences.earlier_is_open() {
        core.rights.earlier_closed();
    }
    forget_closed(core, state);
}

/// Deletes the records of ended sessions whose release is complete and whose end is closed.
fn forget_closed(core: &Core, state: &mut State) {
    let closed = |id: &&SessionId| !state.fences.is_open(**id);
    let closed: Vec<SessionId> = state.given_up.iter().filter(closed).copied().collect();
    if closed.is_empty() {
        return;
    }
    let mut batch = Batch::new();
    for &session in &closed {
        batch.delete(keys::session(session));
    }
    match core.kv.commit(batch) {
        Ok(_) => state.given_up.retain(|id| !closed.contains(id)),
        // The next round tries again, or the next start.
        Err(error) => tracing::warn!(%error, "records of ended sessions were not deleted"),
    }
}

/// Completes the ends that a stop of the service interrupted.
pub(crate) fn finish_ended(core: &Core) -> Result<(), MdError> {
    let (from, to) = keys::sessions();
    for (key, value) in core.kv.scan(&from, &to, usize::MAX)? {
        let record: SessionRecord = decode(&key, &value)?;
        if let (Some(clean), Some([id])) = (record.ended, keys::numbers(&key, [8])) {
            give_up(core, SessionId(id), clean)?;
        }
    }
    Ok(())
}

/// Marks all sessions as ended, because their clients may rely on state that is lost; the next start releases their
/// resources.
pub(crate) fn mark_all_ended(kv: &dyn MetaKv) -> Result<(), MdError> {
    let (from, to) = keys::sessions();
    let mut batch = Batch::new();
    for (key, value) in kv.scan(&from, &to, usize::MAX)? {
        let mut record: SessionRecord = decode(&key, &value)?;
        if record.ended.is_none() {
            record.ended = Some(false);
            batch.put(key, encode(&record)?);
        }
    }
    if !batch.is_empty() {
        kv.commit(batch)?;
    }
    Ok(())
}

fn give_up(core: &Core, session: SessionId, clean: bool) -> Result<(), MdError> {
    sweep(core, session, clean)?;
    close_all(core, session)?;
    loop {
        let (from, to) = keys::replies(session);
        let replies = core.kv.scan(&from, &to, BATCH)?;
        let last = replies.len() < BATCH;
        let mut batch = Batch::new();
        for (key, _) in replies {
            batch.delete(key);
        }
        if !last {
            core.kv.commit(batch)?;
            continue;
        }
        let mut state = core.state();
        if !clean && state.fences.is_open(session) {
            core.kv.commit(batch)?;
            state.given_up.insert(session);
        } else {
            batch.delete(keys::session(session));
            core.kv.commit(batch)?;
        }
        return Ok(());
    }
}

/// Retires chunks that the session may have stored and never committed.
fn sweep(core: &Core, session: SessionId, clean: bool) -> Result<(), MdError> {
    let (from, to) = keys::leases(session);
    for (key, value) in core.kv.scan(&from, &to, usize::MAX)? {
        let part: LeaseRecord = decode(&key, &value)?;
        let mut txn = core.begin(&Ctx::SERVICE)?;
        txn.batch.delete(key.clone());
        if let (false, Some([_, first])) = (clean, keys::numbers(&key, [8, 8])) {
            let servers: Vec<ServerId> = txn.state.servers.ids();
            for chunk in unused(first, &part) {
                for &server in &servers {
                    txn.retire(server, RetireKey::Chunk(chunk))?;
                }
            }
        }
        txn.commit(())?;
    }
    Ok(())
}

/// Ends the opens of a session.
fn close_all(core: &Core, session: SessionId) -> Result<(), MdError> {
    let open: Vec<Ino> = {
        let state = core.state();
        let all = state.opens.iter();
        all.filter(|(_, holders)| holders.iter().any(|(by, _)| *by == session))
            .map(|(&ino, _)| ino)
            .collect()
    };
    for inos in open.chunks(BATCH) {
        let mut txn = core.begin(&Ctx::SERVICE)?;
        for &ino in inos {
            close(&mut txn, ino, session, u32::MAX, true)?;
        }
        txn.commit(())?;
    }
    Ok(())
}
