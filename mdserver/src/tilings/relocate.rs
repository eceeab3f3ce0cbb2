//! Updates records whose chunks were moved because a data server is being drained.

use slabfs_model::{ChunkId, ServerId, Version};
use std::sync::Arc;

use crate::api::{MAX_COMMIT_RECORDS, MdError, Relocated, Stored, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::placement::RetireKey;
use crate::records::{Tile, decode, encode};

/// Replaces chunks by copies, where the records are still the same. The copies are on their servers' disks. Servers
/// of the object's stripe that get no chunks any more are replaced. The reply names the copies that are useless.
pub(crate) fn relocate(
    core: &Core,
    ctx: &Ctx,
    op: op::Relocate,
) -> Result<Box<Relocated>, MdError> {
    let op::Relocate {
        ino,
        generation,
        ref moves,
    } = op;
    if moves.len() > MAX_COMMIT_RECORDS {
        return Err(MdError::Invalid(format!(
            "at most {MAX_COMMIT_RECORDS} chunks at a time"
        )));
    }
    core.tilings.with(ino, |loaded| {
        let mut txn = core.begin(ctx)?;
        let mut inode = txn.inode(ino)?;
        let info = &inode.object()?.info;
        if info.generation != generation || info.is_grid() {
            return Err(MdError::Stale);
        }
        let (mut taken, mut useless) = (Vec::new(), Vec::new());
        for (order, from, copy) in moves {
            txn.state.servers.named(copy.server)?;
            let key = keys::tile(ino, generation, *order);
            let tile = match core.kv.get(&key)? {
                Some(bytes) => Some(decode::<Tile>(&key, &bytes)?),
                None => None,
            };
            match tile {
                Some(mut tile) if chunk_of(&tile.value) == Some(*from) => {
                    if let Stored::Chunk(old) = &tile.value {
                        txn.retire(old.server, RetireKey::Chunk(old.chunk))?;
                    }
                    tile.value = Stored::Chunk(copy.clone());
                    txn.batch.put(key, encode(&tile)?);
                    taken.push(copy.chunk);
                }
                _ => useless.push(copy.chunk),
            }
        }
        txn.commit_chunks(&taken)?;
        let drains = |id: &ServerId| txn.state.servers.drains(*id);
        let stripe_drains = inode.object()?.info.stripe.iter().any(drains);
        let changed = Arc::make_mut(&mut inode);
        changed.attr.change += 1;
        let object = changed.object_mut()?;
        object.info.tiling = Version(object.info.tiling.0 + 1);
        if stripe_drains {
            txn.choose_stripe(ino, object)?;
        }
        txn.put_quietly(inode);
        let entry = txn.inode(ino)?.entry();
        let reply = txn.commit(Box::new(Relocated { entry, useless }))?;
        // Read again when needed: orders stay, and readers that are out of date get all of it.
        loaded.forget();
        Ok(reply)
    })
}

fn chunk_of(value: &Stored) -> Option<ChunkId> {
    match value {
        Stored::Chunk(chunk) => Some(chunk.chunk),
        Stored::Fill | Stored::Dropped => None,
    }
}
