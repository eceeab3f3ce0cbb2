//! New dims for an object that remains an array of the same rank.
//!
//! A shrink of an `aligned` object removes the records that lie outside and clips others. It is one batch, so an
//! object with several hundred thousand chunks outside has to be shrunk in steps.

use slabfs_model::layout::tiling::{Record, Tiling};
use slabfs_model::{Coords, Version};
use std::sync::Arc;

use super::Loaded;
use super::bounds::Changes;
use super::commit::weight;
use crate::api::{Ino, MdError, ResizeHow, Resized, Stored, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::placement::RetireKey;
use crate::records::{Object, Tile, encode};
use crate::txn::Txn;

/// Sets the dims.
pub(crate) fn resize(core: &Core, ctx: &Ctx, op: op::Resize) -> Result<Resized, MdError> {
    let op::Resize { ino, dims, how } = op;
    core.tilings.with(ino, |loaded| {
        resize_locked(core, ctx, ino, &dims, how, loaded)
    })
}

/// The effect of a shrink on a tiling.
#[derive(Default)]
struct Cut {
    removed: Vec<Record<Stored>>,
    clipped: Vec<Record<Stored>>,
    boxes: Option<Changes>,
    /// The tiling afterwards.
    tiling: Option<Tiling<Stored>>,
}

fn resize_locked(
    core: &Core,
    ctx: &Ctx,
    ino: Ino,
    dims: &Coords,
    how: ResizeHow,
    loaded: &mut Loaded,
) -> Result<Resized, MdError> {
    let inode = core.inode(ino)?;
    let object = inode.object()?;
    check(object, dims, how)?;
    let shrinks = dims
        .iter()
        .zip(&object.info.dims)
        .any(|(new, old)| new < old);
    let mut cut = Cut::default();
    if shrinks && !object.info.is_grid() {
        let mut info = object.info.clone();
        info.dims = dims.clone();
        let cells = info.cells()?;
        let mut tiling = loaded.take(core, ino, object)?;
        let (removed, clipped) = tiling.clip_to(&cells);
        cut.removed = removed;
        cut.clipped = clipped
            .iter()
            .filter_map(|&order| tiling.get(order).cloned())
            .collect();
        let of = (ino, object.info.generation, object.next_order);
        cut.boxes = Some(Changes::of(core, of, &tiling, [], &cut.removed)?);
        cut.tiling = Some(tiling);
    }
    let changed = !cut.removed.is_empty() || !cut.clipped.is_empty();
    let before = object.info.tiling;
    let clipped = changed || shrinks && object.info.is_grid() && object.info.holds;

    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    {
        let object = inode.object()?;
        check(object, dims, how)?;
        if object.info.tiling != before {
            return Err(MdError::Stale);
        }
    }
    let now = txn.now;
    let new = Arc::make_mut(&mut inode);
    let size = new.attr.size;
    let object = new.object_mut()?;
    object.info.dims = dims.clone();
    object.info.given.dims |= how == ResizeHow::SetDims && object.info.declared;
    super::reserve::refuse_tail(ino, object, size, &txn.state)?;
    cut_records(&mut txn, ino, object, &cut)?;
    if let Some(boxes) = cut.boxes.take() {
        boxes.write(&mut txn, ino, object.info.generation)?;
    }
    if changed {
        object.info.tiling = Version(before.0 + 1);
    }
    if object.info.size()? == 0 {
        object.info.holds = false;
        if object.info.is_grid() && size > 0 {
            txn.next_generation(ino, object)?;
        }
    }
    if object.info.is_grid() {
        object.stored = object.stored.min(object.info.size()?);
    }
    new.refresh()?;
    new.attr.mtime = now;
    txn.put(inode);
    let entry = txn.inode(ino)?.entry();
    let reply = txn.commit(Resized { entry, clipped })?;
    if changed {
        loaded.log.clear();
    }
    if let Some(tiling) = cut.tiling {
        loaded.put(tiling, Version(before.0 + u64::from(changed)));
    }
    Ok(reply)
}

fn check(object: &Object, dims: &Coords, how: ResizeHow) -> Result<(), MdError> {
    let info = &object.info;
    info.check_dims(dims)?;
    let only_rows = info.unlimited_rows() && dims.iter().skip(1).eq(info.dims.iter().skip(1));
    if how == ResizeHow::Truncate && *dims != info.dims && !only_rows {
        let text = "only the slowest axis, if it is unlimited, changes by truncation";
        return Err(MdError::Invalid(text.to_owned()));
    }
    Ok(())
}

fn cut_records(txn: &mut Txn<'_>, ino: Ino, object: &mut Object, cut: &Cut) -> Result<(), MdError> {
    let generation = object.info.generation;
    for record in &cut.removed {
        txn.batch.delete(keys::tile(ino, generation, record.order));
        if let Stored::Chunk(chunk) = &record.value {
            txn.retire(chunk.server, RetireKey::Chunk(chunk.chunk))?;
        }
        object.stored = object.stored.saturating_sub(weight(record));
    }
    for record in &cut.clipped {
        txn.batch.put(
            keys::tile(ino, generation, record.order),
            encode(&Tile::of(record))?,
        );
    }
    Ok(())
}

impl Txn<'_> {
    /// Gives an object its next generation: grid chunks and tilings of older ones are garbage.
    pub(super) fn next_generation(&mut self, ino: Ino, object: &mut Object) -> Result<(), MdError> {
        let generation = object.spare.max(object.info.generation).checked_add(1);
        let generation = generation
            .ok_or_else(|| MdError::Invalid("emptied too often; copy the object".to_owned()))?;
        self.set_generation(ino, object, generation)
    }

    /// Gives an object a generation that was reserved for it.
    pub(super) fn set_generation(
        &mut self,
        ino: Ino,
        object: &mut Object,
        generation: u32,
    ) -> Result<(), MdError> {
        self.retire_grid(object, RetireKey::Generation(ino, generation))?;
        if object.next_order > 0 {
            self.purge(ino, generation)?;
        }
        // No data of this generation exists yet, so dead sessions left no tail in it.
        let live = &self.state.sessions.live;
        object
            .reserves
            .retain(|(session, _)| live.contains_key(session));
        object.clearing = None;
        object.info.generation = generation;
        object.spare = object.spare.max(generation);
        object.stored = 0;
        Ok(())
    }
}
