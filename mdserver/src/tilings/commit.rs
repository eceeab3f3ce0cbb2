//! Commits: stored data becomes part of an object.
//!
//! The records of a commit get the next orders, so they overlay all existing records. Records that they hide
//! completely are removed in the same batch; the chunks of these wait for a settle (the new data may be in memory
//! only) before they are retired.

use slabfs_model::layout::tiling::{Record, Tiling};
use slabfs_model::{ChunkId, Hyperslab, ServerId, SessionId, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::bounds::Changes;
use super::validate::{Checked, check, check_servers};
use super::{Loaded, Step};
use crate::api::{ArrayInfo, Commit, CommitReply, Entry, Ino, MdError, Stored, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::namespace::check_time;
use crate::placement::RetireKey;
use crate::records::{Inode, Tile, encode};
use crate::sessions::session_of;
use crate::txn::Txn;

/// Executes a commit. One that hides cells of a coupled object is answered when all that watch it know.
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
        return without_records(core.begin(ctx)?, &commit, grid);
    }
    let ino = commit.ino;
    let (reply, hides) = core
        .tilings
        .with(ino, |loaded| commit_aligned(core, ctx, commit, loaded))?;
    if let (true, Some(session)) = (hides, ctx.session) {
        core.matchers.settle(ino, reply.version, session);
    }
    Ok(reply)
}

fn object_of(txn: &mut Txn<'_>, commit: &Commit) -> Result<Arc<Inode>, MdError> {
    let inode = txn.inode(commit.ino)?;
    match inode.object()?.info.generation == commit.generation {
        true => Ok(inode),
        false => Err(MdError::Stale),
    }
}

fn commit_aligned(
    core: &Core,
    ctx: &Ctx,
    mut commit: Commit,
    loaded: &mut Loaded,
) -> Result<(Box<CommitReply>, bool), MdError> {
    let inode = core.inode(commit.ino)?;
    let object = inode.object()?;
    if object.info.generation != commit.generation || object.info.is_grid() {
        return Err(MdError::Stale);
    }
    let mut info = object.info.clone();
    grow_info(&mut info, &commit)?;
    let records = std::mem::take(&mut commit.records);
    let checked = check(records, std::mem::take(&mut commit.clips), &info.cells()?)?;
    if checked.records.is_empty() {
        let reply = without_records(core.begin(ctx)?, &commit, false)?;
        return Ok((reply, false));
    }
    let before = object.info.tiling;
    let first = object.next_order;
    let mut tiling = loaded.take(core, commit.ino, object)?;
    // Sessions that watch the object may have read cells that these records hide.
    let hides = object.info.couple.on().is_some()
        && checked
            .records
            .iter()
            .any(|record| tiling.shows(&record.slab));
    let inserted = insert(&mut tiling, checked, first)?;
    let count = inserted.count;
    let gone = inserted.dropped.iter().filter(|it| it.order < first);
    let of = (commit.ino, commit.generation, first + count);
    let boxes = Changes::of(core, of, &tiling, &inserted.added, gone)?;
    let is_coupled = object.info.couple.on().is_some();
    let announced: Vec<_> = match is_coupled {
        true => inserted.added.iter().filter_map(shown).collect(),
        false => Vec::new(),
    };
    let (reply, dropped) = write(core.begin(ctx)?, &commit, inserted, boxes, first, before)?;
    loaded.put(tiling, Version(before.0 + 1));
    loaded.note(Step {
        before,
        added: first..first + count,
        dropped,
    });
    core.matchers.announce(commit.ino, announced.iter());
    Ok((reply, hides))
}

/// The cells that a record shows.
fn shown(record: &Record<Stored>) -> Option<Hyperslab> {
    let Some(clip) = &record.clip else {
        return Some(record.slab.clone());
    };
    let region = record.slab.as_region()?.intersect(clip)?;
    Some(Hyperslab::from_region(&region))
}

/// A commit without records: dims, size and times. A `grid` has no others.
fn without_records(
    mut txn: Txn<'_>,
    commit: &Commit,
    grid: bool,
) -> Result<Box<CommitReply>, MdError> {
    let mut inode = object_of(&mut txn, commit)?;
    let object = inode.object()?;
    if object.info.is_grid() != grid {
        return Err(MdError::Stale);
    }
    if !commit.records.is_empty() {
        return Err(MdError::Invalid(
            "an object of a grid layout has no chunk records".to_owned(),
        ));
    }
    let (version, next) = (object.info.tiling, object.next_order);
    let changed = txn.own(&mut inode);
    grow(changed, commit, &txn)?;
    if grid {
        let object = changed.object_mut()?;
        let stored = object.stored.saturating_add_signed(commit.stored);
        object.info.holds |= commit.wrote;
        // Rewritten bytes are counted again, and freed bytes only in complete blocks. An object that holds data never
        // reports zero stored bytes: `tar -S` takes such a file for a hole.
        object.stored = stored
            .max(u64::from(object.info.holds))
            .min(object.info.size()?);
    }
    finish(&mut txn, inode, commit)?;
    let reply = reply(&mut txn, commit.ino, (version, version), next, Vec::new())?;
    txn.commit(reply)
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

/// Writes the result of [`insert`].
fn write(
    mut txn: Txn<'_>,
    commit: &Commit,
    inserted: Inserted,
    boxes: Changes,
    first: u64,
    before: Version,
) -> Result<(Box<CommitReply>, Vec<u64>), MdError> {
    let session = session_of(&txn.ctx)?;
    let mut inode = object_of(&mut txn, commit)?;
    let ino = commit.ino;
    let object = inode.object()?;
    if object.info.tiling != before || object.next_order != first {
        return Err(MdError::Stale);
    }
    check_servers(&txn.state, &inserted.added)?;
    txn.commit_chunks(&inserted.chunks)?;
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
    finish(&mut txn, inode, commit)?;
    let dropped: Vec<u64> = inserted.dropped.iter().map(|record| record.order).collect();
    let reply = reply(&mut txn, ino, (before, version), first, dropped.clone())?;
    Ok((txn.commit(reply)?, dropped))
}

/// Bytes that a record occupies on a data server.
pub(super) fn weight(record: &Record<Stored>) -> u64 {
    match record.value {
        Stored::Chunk(_) => record.slab.volume(),
        Stored::Fill | Stored::Dropped => 0,
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

/// Sets times and sizes, and stores the object. If the commit gives the time of the write, the object changed at that
/// time, not now.
fn finish(txn: &mut Txn<'_>, mut inode: Arc<Inode>, commit: &Commit) -> Result<(), MdError> {
    let changed = Arc::make_mut(&mut inode);
    let grew = changed.attr.size;
    changed.refresh()?;
    match commit.mtime {
        Some(at) => {
            changed.attr.mtime = at;
            txn.put_written(inode, at);
        }
        None => {
            if commit.wrote || grew != changed.attr.size {
                changed.attr.mtime = txn.now;
            }
            txn.put(inode);
        }
    }
    Ok(())
}

fn reply(
    txn: &mut Txn<'_>,
    ino: Ino,
    (before, version): (Version, Version),
    first_order: u64,
    dropped: Vec<u64>,
) -> Result<Box<CommitReply>, MdError> {
    let Entry { attr, info } = txn.inode(ino)?.entry();
    let info = info.ok_or_else(|| MdError::Invalid("not an object".to_owned()))?;
    Ok(Box::new(CommitReply {
        version,
        before,
        first_order,
        attr,
        info,
        dropped,
    }))
}
