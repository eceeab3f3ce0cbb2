//! Declarations: dtype, dims and so on, by the rules of [`SpecChange::resolve`].

use slabfs_model::layout::tiling::Tiling;
use slabfs_model::{Placement, Version};
use std::sync::Arc;

use super::commit::weight;
use super::validate::{check, check_servers};
use crate::api::{
    ArrayInfo, Entry, Ino, MdError, Resolved, Rewrite, Spare, SpecChange, SpecPlan, inherit, op,
};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::namespace::byte_layout;
use crate::records::{Inode, Object, Tile, encode};
use crate::txn::Txn;

/// Sets the array declaration of an object.
pub(crate) fn declare(core: &Core, ctx: &Ctx, op: op::Declare) -> Result<Entry, MdError> {
    let op::Declare {
        ino,
        ref change,
        rewrite,
    } = op;
    core.tilings.with(ino, |loaded| {
        let mut txn = core.begin(ctx)?;
        let mut inode = txn.inode(ino)?;
        let (resolved, waits) = resolve(core, inode.object()?, change)?;
        // A grid with data keeps its servers, and would fail only when it is emptied.
        if let Placement::Server(id) = resolved.info.placement
            && inode.object()?.info.placement != resolved.info.placement
        {
            txn.state.servers.named(id)?;
        }
        if let Some(rewrite) = &rewrite
            && rewrite.if_change != inode.attr.change
        {
            return Err(MdError::Busy);
        }
        let new = Arc::make_mut(&mut inode);
        match resolved.plan {
            SpecPlan::Nothing if waits == new.object()?.inherited => {
                return txn.commit(new.entry());
            }
            SpecPlan::Nothing | SpecPlan::InPlace => in_place(&mut txn, ino, new, resolved.info)?,
            SpecPlan::Rewrite => {
                let rewrite = rewrite.ok_or(MdError::NeedsRewrite)?;
                rewritten(&mut txn, ino, new, resolved.info, rewrite)?;
            }
        }
        new.object_mut()?.inherited = waits;
        new.refresh()?;
        txn.put(inode);
        let entry = txn.inode(ino)?.entry();
        let reply = txn.commit(entry)?;
        loaded.forget();
        core.matchers.wake(ino);
        Ok(reply)
    })
}

/// The result of a change on an object, and which defaults of its container remain pending.
fn resolve(
    core: &Core,
    object: &Object,
    change: &SpecChange,
) -> Result<(Resolved, Option<Box<SpecChange>>), MdError> {
    let info = &object.info;
    match &object.inherited {
        Some(inherited) if !info.declared && info.is_empty() => {
            let layout = byte_layout(&core.options);
            let (resolved, waits) = inherit(inherited, change, info, &layout)?;
            Ok((resolved, waits.map(Box::new)))
        }
        inherited => {
            let resolved = change.resolve(info)?;
            let waits = inherited.clone().filter(|_| !resolved.info.declared);
            Ok((resolved, waits))
        }
    }
}

/// Declares without rewriting data. An empty object whose cells or chunks change gets a new generation, so that
/// writes under way for the old one are refused.
fn in_place(
    txn: &mut Txn<'_>,
    ino: Ino,
    inode: &mut Inode,
    info: ArrayInfo,
) -> Result<(), MdError> {
    let object = inode.object_mut()?;
    let old = &object.info;
    let same_cells = old.dims == info.dims
        && old.dtype.size() == info.dtype.size()
        && old.layout == info.layout
        && old.fill == info.fill;
    let other_place = old.placement != info.placement;
    // Chunks of a grid with data stay where they are until it is emptied.
    let empty = old.is_empty();
    let keeps_place = same_cells && (!other_place || old.is_grid() && !empty);
    if !same_cells || other_place && old.is_grid() && empty {
        // The old layout is still set: its chunks, if any are under way, are garbage.
        txn.next_generation(ino, object)?;
    }
    take_info(object, info);
    if !keeps_place || object.info.stripe.is_empty() {
        txn.choose_stripe(ino, object)?;
    }
    Ok(())
}

/// Sets the new declaration, except for the fields that are not part of it.
fn take_info(object: &mut Object, mut info: ArrayInfo) {
    info.generation = object.info.generation;
    info.tiling = Version(object.info.tiling.0 + 1);
    info.stripe = std::mem::take(&mut object.info.stripe);
    info.blocks = object.info.blocks.take();
    object.info = info.into();
}

/// The same bytes, rewritten: the old chunks are garbage.
fn rewritten(
    txn: &mut Txn<'_>,
    ino: Ino,
    inode: &mut Inode,
    info: ArrayInfo,
    rewrite: Rewrite,
) -> Result<(), MdError> {
    let size = inode.attr.size;
    let object = inode.object_mut()?;
    let checked = check(rewrite.records, Vec::new(), &info.cells()?)?;
    let mut stripe = None;
    match (info.is_grid(), rewrite.spare) {
        (true, Some(spare)) if checked.records.is_empty() => {
            let generation = spare.generation;
            if generation <= object.info.generation || generation > object.spare {
                return Err(MdError::Stale);
            }
            let known = &txn.state.servers.by_id;
            if spare.stripe.is_empty() || spare.stripe.iter().any(|id| !known.contains_key(id)) {
                return Err(MdError::Stale);
            }
            txn.set_generation(ino, object, generation)?;
            object.stored = size;
            stripe = Some(spare.stripe);
        }
        (false, None) => txn.next_generation(ino, object)?,
        _ => {
            let text = "chunks of a grid need a generation, those of layout aligned records";
            return Err(MdError::Invalid(text.to_owned()));
        }
    }
    take_info(object, info);
    match stripe {
        Some(stripe) => object.take_stripe(stripe),
        None => txn.choose_stripe(ino, object)?,
    }
    object.info.holds = true;
    check_servers(&txn.state, &checked.records)?;
    txn.commit_chunks(&checked.chunks)?;
    let first = object.next_order;
    object.next_order += checked.records.len() as u64;
    // If the geometry of all of them together is invalid, it is refused here rather than at the next load.
    let records = checked.records.into_iter().map(|mut record| {
        record.order += first;
        record
    });
    let rank = object.info.cells()?.len();
    let tiling = Tiling::bulk(rank, records.collect())
        .map_err(|error| MdError::Invalid(error.to_string()))?;
    for record in tiling.iter() {
        let key = keys::tile(ino, object.info.generation, record.order);
        txn.batch.put(key, encode(&Tile::of(record))?);
        object.stored = object.stored.saturating_add(weight(record));
    }
    Ok(())
}

/// Reserves a generation and servers for grid chunks that are written before a [`Rewrite`].
pub(crate) fn spare_generation(
    core: &Core,
    ctx: &Ctx,
    op: op::SpareGeneration,
) -> Result<Spare, MdError> {
    let op::SpareGeneration { ino, placement } = op;
    let mut txn = core.begin(ctx)?;
    let mut inode = txn.inode(ino)?;
    let object = Arc::make_mut(&mut inode).object_mut()?;
    let spare = object.spare.checked_add(1);
    object.spare =
        spare.ok_or_else(|| MdError::Invalid("rewritten too often; copy it".to_owned()))?;
    let stripe = txn.stripe_for(ino, placement)?;
    object.strays_on(&stripe);
    let spare = Spare {
        generation: object.spare,
        stripe,
    };
    txn.put_quietly(inode);
    txn.commit(spare)
}
