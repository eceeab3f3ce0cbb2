//! Commits: stored data becomes part of an object.
//!
//! The records of a commit get the next orders, so they overlay all existing records. Records that they hide
//! completely are removed in the same batch; the chunks of these wait for a settle (the new data may be in memory
//! only) before they are retired.

use slabfs_model::layout::tiling::{Record, Tiling};
use slabfs_model::{ChunkId, ServerId, SessionId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounds::Changes;
use super::validate::{Checked, check, check_servers};
use super::{Loaded, Step};
use crate::api::{ArrayInfo, Commit, CommitReply, Ino, MdError, Stored, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::namespace::check_time;
use crate::placement::RetireKey;
use crate::records::{Inode, LeaseRecord, Tile, encode};
use crate::sessions::session_of;
use crate::txn::Txn;

/// Executes a commit.
pub(crate) fn commit(
    core: &Core,
    ctx: &Ctx,
    commit: op::Commit,
) -> Result<Box<CommitReply>, MdError> {
    if let Some(time) = commit.mtime {
        check_time(time)?;
    }
    let grid = core.inode(commit.ino)?.object()?.info.is_grid();
    if grid {
        let txn = core.begin(ctx)?;
        let inode = txn_object(txn, &commit)?;
        return commit_grid(inode, &commit);
    }
    core.tilings.with(commit.ino, |loaded| {
        commit_aligned(core, ctx, commit, loaded)
    })
}

struct Opened<'a> {
    txn: Txn<'a>,
    inode: Arc<Inode>,
}

fn txn_object<'a>(mut txn: Txn<'a>, commit: &Commit) -> Result<Opened<'a>, MdError> {
    let inode = txn.inode(commit.ino)?;
    if inode.object()?.info.generation != commit.generation {
        return Err(MdError::Stale);
    }
    Ok(Opened { txn, inode })
}

/// A grid has no records: dims, size and times.
fn commit_grid(opened: Opened<'_>, commit: &Commit) -> Result<Box<CommitReply>, MdError> {
    let Opened { mut txn, mut inode } = opened;
    let object = inode.object()?;
    if !object.info.is_grid() {
        return Err(MdError::Stale);
    }
    if !commit.records.is_empty() {
        return Err(MdError::Invalid(
            "an object of a grid layout has no chunk records".to_owned(),
        ));
    }
    let first_order = object.next_order;
    let version = object.info.tiling;
    let changed = txn.own(&mut inode);
    grow(changed, commit, &txn)?;
    let object = changed.object_mut()?;
    let stored = object.stored.saturating_add_signed(commit.stored);
    object.info.holds |= commit.wrote;
    // Rewritten bytes are counted again, and freed bytes only in complete blocks. An object that holds data never
    // reports zero stored bytes: `tar -S` takes such a file for a hole.
    object.stored = stored
        .max(u64::from(object.info.holds))
        .min(object.info.size()?);
    finish(&mut txn, changed, commit)?;
    put(&mut txn, inode, commit);
    reply(txn, commit.ino, version, version, first_order, Vec::new())
}

fn commit_aligned(
    core: &Core,
    ctx: &Ctx,
    mut commit: Commit,
    loaded: &mut Loaded,
) -> Result<Box<CommitReply>, MdError> {
    let inode = core.inode(commit.ino)?;
    let object = inode.object()?;
    if object.info.generation != commit.generation || object.info.is_grid() {
        return Err(MdError::Stale);
    }
    let mut info = object.info.clone();
    grow_info(&mut info, &commit)?;
    let checked = check(std::mem::take(&mut commit.records), &info.cells()?)?;
    if checked.records.is_empty() {
        return without_records(core.begin(ctx)?, &commit);
    }
    let before = object.info.tiling;
    let first = object.next_order;
    let mut tiling = loaded.take(core, commit.ino, object)?;
    let inserted = insert(&mut tiling, checked, first)?;
    let count = inserted.count;
    let gone = inserted.dropped.iter().filter(|it| it.order < first);
    let of = (commit.ino, commit.generation, first + count);
    let boxes = Changes::of(core, of, &tiling, &inserted.added, gone)?;
    let (reply, dropped) = write(core.begin(ctx)?, &commit, inserted, boxes, first, before)?;
    loaded.put(tiling, Version(before.0 + 1));
    loaded.note(Step {
        before,
        added: first..first + count,
        dropped,
    });
    Ok(reply)
}

/// A commit that only grows the object or sets times.
fn without_records(txn: Txn<'_>, commit: &Commit) -> Result<Box<CommitReply>, MdError> {
    let Opened { mut txn, mut inode } = txn_object(txn, commit)?;
    let (version, next) = {
        let object = inode.object()?;
        (object.info.tiling, object.next_order)
    };
    let changed = txn.own(&mut inode);
    grow(changed, commit, &txn)?;
    finish(&mut txn, changed, commit)?;
    put(&mut txn, inode, commit);
    reply(txn, commit.ino, version, version, next, Vec::new())
}

/// The effect of the records on the tiling in memory.
struct Inserted {
    chunks: Vec<ChunkId>,
    count: u64,
    /// Records that stay.
    added: Vec<Record<Stored>>,
    /// Records that are removed, older ones and new ones.
    dropped: Vec<Record<Stored>>,
}

/// Inserts the records into the tiling in memory and removes the records that they hide.
fn insert(tiling: &mut Tiling<Stored>, checked: Checked, first: u64) -> Result<Inserted, MdError> {
    let count = checked.records.len() as u64;
    let mut added: BTreeMap<u64, Record<Stored>> = BTreeMap::new();
    let mut dropped = Vec::new();
    for mut record in checked.records {
        record.order += first;
        let order = record.order;
        for hidden in tiling.shadowed_by(&record) {
            added.remove(&hidden);
            dropped.extend(tiling.remove(hidden));
        }
        if shows_nothing(tiling, &record) {
            dropped.push(record);
            continue;
        }
        tiling
            .insert(record.clone())
            .map_err(|error| MdError::Invalid(error.to_string()))?;
        added.insert(order, record);
    }
    Ok(Inserted {
        chunks: checked.chunks,
        count,
        added: added.into_values().collect(),
        dropped,
    })
}

/// Whether a record has no effect: all of it was cut off, or it is a hole over a hole.
fn shows_nothing(tiling: &Tiling<Stored>, record: &Record<Stored>) -> bool {
    if record
        .clip
        .as_ref()
        .is_some_and(slabfs_model::Region::is_empty)
    {
        return true;
    }
    record.value == Stored::Fill && !tiling.shows(&record.slab)
}

/// Marks chunk ids that the session has leased as committed. Returns the changed parts of its leases, to be set when
/// the batch is stored.
pub(super) fn use_leases(
    txn: &mut Txn<'_>,
    session: SessionId,
    chunks: &[ChunkId],
) -> Result<BTreeMap<u64, LeaseRecord>, MdError> {
    let leases = txn.state.session(session)?.leases.using(chunks)?;
    for (part, record) in &leases {
        let key = keys::lease(session, *part);
        if crate::sessions::is_used_up(record) {
            txn.batch.delete(key);
        } else {
            txn.batch.put(key, encode(record)?);
        }
    }
    Ok(leases)
}

/// Writes the result of [`insert`].
fn write(
    txn: Txn<'_>,
    commit: &Commit,
    inserted: Inserted,
    boxes: Changes,
    first: u64,
    before: Version,
) -> Result<(Box<CommitReply>, Vec<u64>), MdError> {
    let session = session_of(&txn.ctx)?;
    let Opened { mut txn, mut inode } = txn_object(txn, commit)?;
    let ino = commit.ino;
    {
        let object = inode.object()?;
        if object.info.tiling != before || object.next_order != first {
            return Err(MdError::Stale);
        }
    }
    check_servers(&txn.state, &inserted.added)?;
    let leases = use_leases(&mut txn, session, &inserted.chunks)?;
    let version = Version(before.0 + 1);
    let generation = commit.generation;
    let mut stored = 0u64;
    for record in &inserted.added {
        txn.batch.put(
            keys::tile(ino, generation, record.order),
            encode(&Tile::of(record))?,
        );
        stored = stored.saturating_add(weight(record));
    }
    boxes.write(&mut txn, ino, generation)?;
    let mut gone = 0u64;
    for record in &inserted.dropped {
        if record.order < first {
            txn.batch.delete(keys::tile(ino, generation, record.order));
            gone = gone.saturating_add(weight(record));
        }
        if let Stored::Chunk(chunk) = &record.value {
            if commit.settled {
                txn.retire(chunk.server, RetireKey::Chunk(chunk.chunk))?;
            } else {
                let key = keys::waiting(ino, generation, version, chunk.chunk);
                txn.batch.put(
                    key,
                    encode::<(ServerId, SessionId)>(&(chunk.server, session))?,
                );
                txn.waits(ino);
            }
        }
    }
    let changed = txn.own(&mut inode);
    grow(changed, commit, &txn)?;
    let object = changed.object_mut()?;
    object.next_order = first + inserted.count;
    object.info.tiling = version;
    object.info.holds |= commit.wrote || !inserted.chunks.is_empty();
    object.stored = object.stored.saturating_add(stored).saturating_sub(gone);
    finish(&mut txn, changed, commit)?;
    put(&mut txn, inode, commit);
    let dropped: Vec<u64> = inserted.dropped.iter().map(|record| record.order).collect();
    let entry = txn.inode(ino)?.entry();
    let reply = commit_reply(entry, version, before, first, dropped.clone())?;
    let reply = txn.commit_then(reply, |state| {
        if let Ok(session) = state.session(session) {
            session.leases.set(leases);
        }
    })?;
    Ok((reply, dropped))
}

/// Bytes that a record occupies on a data server.
pub(super) fn weight(record: &Record<Stored>) -> u64 {
    match record.value {
        Stored::Chunk(_) => record.slab.volume(),
        Stored::Fill => 0,
    }
}

/// Grows the object as the commit requests, unless it would grow over a dead session's tail.
fn grow(inode: &mut Inode, commit: &Commit, txn: &Txn<'_>) -> Result<(), MdError> {
    let object = inode.object_mut()?;
    let size = object.info.size()?;
    grow_info(&mut object.info, commit)?;
    super::reserve::refuse_tail(commit.ino, object, size, &txn.state)
}

fn grow_info(info: &mut ArrayInfo, commit: &Commit) -> Result<(), MdError> {
    if let Some(dims) = &commit.grow_to {
        if dims.len() != info.dims.len() {
            return Err(MdError::Stale);
        }
        let mut grown = info.dims.clone();
        for (dim, &least) in grown.iter_mut().zip(dims) {
            *dim = (*dim).max(least);
        }
        info.check_dims(&grown)
            .map_err(|error| MdError::TooBig(error.to_string()))?;
        info.dims = grown;
    }
    if let Some(grown) = info.grown_to(commit.size_at_least)? {
        info.dims = grown;
    }
    Ok(())
}

/// Stores the committed object. If the commit gives the time of the write, the object changed at that time, not now.
fn put(txn: &mut Txn<'_>, inode: Arc<Inode>, commit: &Commit) {
    match commit.mtime {
        Some(at) => txn.put_written(inode, at),
        None => txn.put(inode),
    }
}

/// Sets times and sizes.
fn finish(txn: &mut Txn<'_>, inode: &mut Inode, commit: &Commit) -> Result<(), MdError> {
    let grew = inode.attr.size;
    inode.refresh()?;
    if let Some(time) = commit.mtime {
        inode.attr.mtime = time;
    } else if commit.wrote || grew != inode.attr.size {
        inode.attr.mtime = txn.now;
    }
    Ok(())
}

fn reply(
    mut txn: Txn<'_>,
    ino: Ino,
    version: Version,
    before: Version,
    first_order: u64,
    dropped: Vec<u64>,
) -> Result<Box<CommitReply>, MdError> {
    let entry = txn.inode(ino)?.entry();
    let reply = commit_reply(entry, version, before, first_order, dropped)?;
    txn.commit(reply)
}

fn commit_reply(
    entry: crate::api::Entry,
    version: Version,
    before: Version,
    first_order: u64,
    dropped: Vec<u64>,
) -> Result<Box<CommitReply>, MdError> {
    let info = entry
        .info
        .ok_or_else(|| MdError::Invalid("not an object".to_owned()))?;
    let attr = entry.attr;
    Ok(Box::new(CommitReply {
        version,
        before,
        first_order,
        attr,
        info,
        dropped,
    }))
}
