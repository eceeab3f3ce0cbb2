//! Opening of sessions, and their heartbeats.

use slabfs_model::SessionId;
use std::time::Instant;

use super::{Session, session_of};
use crate::api::{Attached, Beat, MdError, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::kv::Batch;
use crate::records::{SessionRecord, encode};

/// Most sessions at the same time.
const MAX_SESSIONS: usize = 65_536;
/// Longest name of a machine, in bytes.
const MAX_HOST: usize = 255;

/// Opens a session.
pub(crate) fn attach(core: &Core, ctx: &Ctx, op: op::Attach) -> Result<Attached, MdError> {
    if op.host.len() > MAX_HOST {
        return Err(MdError::NameTooLong);
    }
    let record = SessionRecord {
        host: op.host,
        pid: op.pid,
        read_only: op.read_only,
        // It belongs to the service's own process.
        local: !ctx.remote,
        ended: None,
    };
    let attached = enter(core, record, op.strict)?;
    // The number must never be assigned again, not even after a power loss.
    core.kv.sync()?;
    Ok(attached)
}

fn enter(core: &Core, record: SessionRecord, strict: bool) -> Result<Attached, MdError> {
    let mut state = core.state();
    if state.sessions.live.len() >= MAX_SESSIONS {
        return Err(MdError::Busy);
    }
    let session = SessionId(state.ids.session);
    let mut batch = Batch::new();
    batch.put(keys::NEXT_SESSION, encode(&(session.0 + 1))?);
    batch.put(keys::session(session), encode(&record)?);
    core.kv.commit(batch)?;
    state.ids.session += 1;
    let SessionRecord {
        host,
        pid,
        read_only,
        ..
    } = &record;
    tracing::info!(%session, host, pid, read_only, "session attached");
    let mut begun = Session::new(record);
    begun.knows = state.servers.version;
    let local = begun.record.local;
    state.sessions.live.insert(session, begun);
    let rights = strict.then(|| core.rights.attach(session));
    state.fences.attached();
    core.count_sessions(&state);
    Ok(Attached {
        session,
        servers: state.servers.list(),
        servers_version: state.servers.version,
        lease_ms: if local {
            0
        } else {
            core.options.lease.as_millis() as u64
        },
        locks: core.locks.epoch(),
        rights,
        shard: core.options.shard,
    })
}

/// Processes a heartbeat; reports to an unknown session that it is lost.
///
/// Replies below `floor` are dropped.
pub(crate) fn heartbeat(core: &Core, ctx: &Ctx, op: op::Heartbeat) -> Result<Beat, MdError> {
    let op::Heartbeat {
        floor,
        servers_version,
        knows,
        strict,
    } = op;
    let id = session_of(ctx)?;
    let mut state = core.state();
    let lost = match state.session(id) {
        Ok(session) => {
            session.heard = Instant::now();
            session.knows = knows;
            let forgotten = session.forgettable(floor);
            if !forgotten.is_empty() {
                let mut batch = Batch::new();
                for &seq in &forgotten {
                    batch.delete(keys::reply(id, seq));
                }
                core.kv.commit(batch)?;
                session.forget(&forgotten);
            }
            session.answers.arrived_below(floor);
            core.rights.heard(id, strict);
            false
        }
        Err(_) => true,
    };
    let servers = (servers_version != state.servers.version).then(|| state.servers.list());
    Ok(Beat {
        sessions: state.sessions.live.len() as u32,
        servers,
        servers_version: state.servers.version,
        lost,
        locks: core.locks.epoch(),
    })
}
