//! Heartbeats of data servers: assigns a number to a UUID, sends orders, processes acknowledgements, and sends the
//! list of live sessions (`sessions/fence.rs`).

use slabfs_model::{ServerId, SessionId, ShardId};
use slabfs_objstore::server::{ServerOrders, ServerReport};
use std::time::Instant;

use super::{RetireKey, Server};
use crate::api::{MdError, op};
use crate::core::{Core, Ctx, State};
use crate::keys;
use crate::kv::Batch;
use crate::records::{ServerRecord, encode};
use crate::sessions::close_fences;

/// Most deletions ordered in one reply.
const MAX_ORDERS: usize = 8192;
/// Longest address or host name of a server, in bytes.
const MAX_ADDR: usize = 4096;
/// The most counters of a server's engine.
const MAX_COUNTS: usize = 64;

/// Processes a report and returns orders.
pub(crate) fn register(
    core: &Core,
    _: &Ctx,
    op: op::RegisterServer,
) -> Result<ServerOrders, MdError> {
    let (orders, new) = enter(core, op.report)?;
    if new {
        // The number must never be assigned to another server, not even after a power loss.
        core.kv.sync()?;
    }
    Ok(orders)
}

/// Marks a server in the memory of a mount as ended.
pub(crate) fn end_memory(core: &Core, _: &Ctx, op: op::EndMemory) -> Result<(), MdError> {
    let mut state = core.state();
    let state = &mut *state;
    let Some(server) = state.servers.by_id.get_mut(&op.server) else {
        return Ok(());
    };
    if !server.record.memory {
        return Err(MdError::Invalid(format!(
            "the data server {} is not one in memory",
            op.server
        )));
    }
    server.online = false;
    state.servers.version += 1;
    Ok(())
}

/// Whether an unknown server holds data that belongs to other metadata: objects and chunks are numbered from 1 in
/// each store, so new ones here would collide with the old ones there. A server is recorded durably before it gets a
/// chunk. Metadata loaded from a dump may have known it after the dump, and its numbers continue far beyond those
/// used before; metadata that lost commits may have lost the record of it.
fn is_of_others(core: &Core, report: &ServerReport) -> Result<bool, MdError> {
    let holds = match core.options.shard.has_names() {
        true => report.chunks > 0 || report.id.is_some(),
        // It has chunks of other shards; the list of sessions that it has is of this one.
        false => report.obeys > 0,
    };
    Ok(holds && core.kv.get(keys::LATER)?.is_none() && core.kv.get(keys::LOSSY)?.is_none())
}

/// The number of a server that is not known here: a new one, or that which it has from the shard of names.
fn new_id(core: &Core, state: &State, report: &ServerReport) -> Result<ServerId, MdError> {
    if core.options.shard.has_names() || report.memory {
        return Ok(ServerId(state.ids.server));
    }
    match report.id {
        Some(id) if id.shard() == ShardId::NAMES && !state.servers.by_id.contains_key(&id) => {
            Ok(id)
        }
        Some(id) => Err(MdError::Invalid(format!(
            "the data server says that its number is {id}, which another one has: do these metadata services belong together?"
        ))),
        None => Err(MdError::Invalid(
            "a data server has to be registered with the first shard before others".to_owned(),
        )),
    }
}

fn enter(core: &Core, report: ServerReport) -> Result<(ServerOrders, bool), MdError> {
    let long = |text: &String| text.len() > MAX_ADDR;
    if report.addr.as_ref().is_some_and(long) || long(&report.host) {
        return Err(MdError::Invalid(
            "the address or host name of the data server is too long".to_owned(),
        ));
    }
    if report.engine.len() > MAX_COUNTS || report.engine.iter().any(|(name, _)| long(name)) {
        return Err(MdError::Invalid(
            "the data server reports too many counters".to_owned(),
        ));
    }
    let mut state = core.state();
    let state = &mut *state;
    let mut batch = Batch::new();
    let id = match state.servers.by_uuid.get(&report.uuid) {
        Some(&id) => id,
        None => new_id(core, state, &report)?,
    };
    let known = state.servers.by_id.get(&id);
    if known.is_none() && is_of_others(core, &report)? {
        return Err(MdError::Invalid(format!(
            "the data server {} is one of other metadata: chunks and objects in it ({} chunks) may have numbers that mean \
             something else here (is it the right --data of the metadata service?); start it with the metadata that it \
             belongs to, or on an empty directory",
            match &report.addr {
                Some(addr) => format!("at {addr}"),
                None => "in this process".to_owned(),
            },
            report.chunks
        )));
    }
    let record = ServerRecord {
        uuid: report.uuid,
        addr: report.addr,
        host: report.host,
        draining: known.is_some_and(|server| server.record.draining),
        memory: report.memory,
    };
    let next = state.ids.server.max(id.0 + 1);
    if known.is_none() {
        batch.put(keys::NEXT_SERVER, encode(&next)?);
    }
    if known.is_none_or(|server| server.record != record) {
        batch.put(keys::server(id), encode(&record)?);
    }
    let acknowledged: Vec<_> = report
        .deleted
        .iter()
        .flat_map(RetireKey::of_order)
        .filter(|what| state.retired.contains(id, *what))
        .collect();
    for what in &acknowledged {
        batch.delete(what.key(id));
    }
    let new = known.is_none();
    if !batch.is_empty() {
        core.kv.commit(batch)?;
    }
    for what in acknowledged {
        state.retired.remove(id, what);
    }

    state.ids.server = next;
    state.servers.by_uuid.insert(record.uuid, id);
    let server = state
        .servers
        .by_id
        .entry(id)
        .or_insert_with(|| Server::silent(record.clone()));
    if server.online && server.record.addr != record.addr {
        tracing::warn!(
            server = %id,
            "data server moved from {:?} to {:?}; if both are running, one uses a copy of the other's directory",
            server.record.addr,
            record.addr
        );
    }
    if !server.online || server.record != record {
        let addr = record.addr.as_deref().unwrap_or("this process");
        tracing::info!(server = %id, addr, "data server is online");
        state.servers.version += 1;
    }
    server.record = record;
    server.online = true;
    let now = Instant::now();
    server.heard = Some(now);
    server.total = report.space.total;
    server.free = report.space.free;
    server.used = report.space.used;
    server.disk = report.space.disk;
    server.chunks = report.chunks;
    server.engine = report.engine;
    server.load.report(report.stored, now);
    let full = server.is_short();
    if full != server.full {
        server.full = full;
        state.servers.version += 1;
        let free = report.space.free;
        if full {
            tracing::warn!(server = %id, free, "data server is nearly full: new chunks go elsewhere");
        } else {
            tracing::info!(server = %id, free, "data server has room again");
        }
    }
    let next = SessionId(state.ids.session);
    let sessions = state.fences.heard(id, report.obeys, &state.sessions, next);
    close_fences(core, state, now);
    let orders = ServerOrders {
        id,
        delete: state.retired.ready(id, core.kv.synced(), MAX_ORDERS),
        sessions,
        lease_ms: core.options.lease.as_millis() as u64,
    };
    Ok((orders, new))
}
