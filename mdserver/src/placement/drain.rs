//! Draining: empties a data server while its objects are read and written.
//!
//! 1. The server is marked, durably: it gets no new chunks. Sessions are notified with their heartbeats, and report
//!    when they have no write under way any more that began before the notification ([`is_ready`]).
//! 2. A mover, which is a session like any other, asks for the objects that have chunks there, a page at a time
//!    ([`holdings`]), copies the chunks and reports their new place.
//! 3. Chunks of an `aligned` object are immutable: a record is changed if it is still the same (`tilings::relocate`).
//!    Those of a grid are written in place, so they are copied under an exclusive write permit (`permits`), and then
//!    another server takes the server's place in the stripe ([`restripe`]).
//!
//! Nothing is lost if it is killed at any point: copies that were not reported are garbage, and the next mover
//! continues from the objects that remain.

use slabfs_model::{Placement, ServerId};
use std::sync::Arc;

use super::RetireKey;
use crate::api::{Entry, Holdings, Ino, MdError, Stored, op};
use crate::core::{Core, Ctx, State};
use crate::keys;
use crate::kv::{Batch, pairs};
use crate::records::{Body, Inode, Tile, decode, encode};

/// Inodes examined, and tiles, for one page.
const INODES: usize = 1000;
const TILES: usize = 4096;

/// Marks a server as draining, or clears the mark.
pub(crate) fn set_draining(core: &Core, _: &Ctx, op: op::SetDraining) -> Result<(), MdError> {
    let op::SetDraining {
        server: id,
        draining,
    } = op;
    {
        let mut state = core.state();
        let state = &mut *state;
        state.servers.named(id)?;
        let marked = state.servers.drains(id);
        let others = state.servers.by_id.iter();
        let mut others = others.filter(|(other, server)| **other != id && server.takes_chunks());
        if draining && !marked && others.next().is_none() {
            return Err(MdError::Invalid(format!(
                "there is no other data server that could take the chunks of {id}; start one, or wait until it is online"
            )));
        }
        let Some(server) = state.servers.by_id.get_mut(&id) else {
            return Err(MdError::NotFound);
        };
        if server.record.draining != draining {
            let mut record = server.record.clone();
            record.draining = draining;
            let mut batch = Batch::new();
            batch.put(keys::server(id), encode(&record)?);
            core.kv.commit(batch)?;
            server.record = record;
            state.servers.version += 1;
            server.marked = state.servers.version;
            tracing::info!(server = %id, draining, "data server");
        }
    }
    core.kv.sync()?;
    Ok(())
}

/// Whether every session knows that the server is being drained, and has no write under way that began before it
/// knew.
fn is_ready(state: &State, id: ServerId) -> bool {
    let Some(server) = state.servers.by_id.get(&id) else {
        return false;
    };
    let mut sessions = state.sessions.live.values();
    server.record.draining && sessions.all(|session| session.knows >= server.marked)
}

/// A page of the objects that have data on a server.
pub(crate) fn holdings(core: &Core, _: &Ctx, op: op::Holdings) -> Result<Holdings, MdError> {
    let op::Holdings { server: id, after } = op;
    let ready = {
        let state = core.state();
        state.servers.named(id)?;
        is_ready(&state, id)
    };
    let (_, end) = keys::inodes();
    let page = core
        .kv
        .scan(&keys::after(&keys::inode(after)), &end, INODES)?;
    let mut objects = Vec::new();
    let mut next = None;
    for (key, value) in &page {
        let inode: Inode = decode(key, value)?;
        next = Some(inode.attr.ino);
        if holds(core, &inode, id)? {
            objects.push(inode.attr.ino);
        }
    }
    if page.len() < INODES {
        next = None;
    }
    let holdings = Holdings {
        objects,
        next,
        ready,
    };
    Ok(holdings)
}

fn holds(core: &Core, inode: &Inode, id: ServerId) -> Result<bool, MdError> {
    let Body::Object(object) = &inode.body else {
        return Ok(false);
    };
    let info = &object.info;
    let by_stripe = matches!(info.placement, Placement::Object | Placement::Region);
    if (info.is_grid() || by_stripe) && info.stripe.contains(&id) {
        return Ok(true);
    }
    if info.is_grid() {
        return Ok(false);
    }
    let tiles = keys::tiles(inode.attr.ino, info.generation);
    for pair in pairs(&*core.kv, tiles, TILES) {
        let (key, value) = pair?;
        if let Stored::Chunk(chunk) = decode::<Tile>(&key, &value)?.value
            && chunk.server == id
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Replaces one server by another in the stripe of a grid object. The caller has copied the chunks, and holds the
/// exclusive write permit of the object.
pub(crate) fn restripe(core: &Core, ctx: &Ctx, op: op::Restripe) -> Result<Entry, MdError> {
    let op::Restripe {
        ino,
        generation,
        from,
        to,
    } = op;
    let mut txn = core.begin(ctx)?;
    if !txn.state.permits.is_exclusive(ino, ctx.session) {
        return Err(MdError::Stale);
    }
    txn.state.servers.named(to)?;
    let mut inode = txn.inode(ino)?;
    let info = &inode.object()?.info;
    if info.generation != generation || !info.is_grid() || !info.stripe.contains(&from) {
        return Err(MdError::Stale);
    }
    let changed = Arc::make_mut(&mut inode);
    // Data and times do not change, but clients with a cached entry have to look the object up again.
    changed.attr.change += 1;
    let object = changed.object_mut()?;
    for server in &mut object.info.stripe {
        if *server == from {
            *server = to;
        }
    }
    object.strays.retain(|id| *id != to);
    txn.retire(from, RetireKey::Generation(ino, generation + 1))?;
    txn.put_quietly(inode);
    let entry = txn.inode(ino)?.entry();
    txn.commit(entry)
}

/// Records, before chunks of an object are copied to a server, that they may be found there. Refused while the server
/// still has an order to delete such chunks.
pub(crate) fn expect_strays(core: &Core, ctx: &Ctx, ino: Ino, to: ServerId) -> Result<(), MdError> {
    let mut txn = core.begin(ctx)?;
    txn.state.servers.named(to)?;
    let mut inode = txn.inode(ino)?;
    let object = Arc::make_mut(&mut inode).object_mut()?;
    let generation = object.info.generation;
    let ordered = |below| {
        let key = RetireKey::Generation(ino, below);
        txn.state.retired.contains(to, key)
    };
    if ordered(generation + 1) || txn.state.retired.contains(to, RetireKey::Object(ino)) {
        return Err(MdError::Busy);
    }
    object.strays_on(&[to]);
    txn.put_quietly(inode);
    txn.commit(())?;
    Ok(())
}
