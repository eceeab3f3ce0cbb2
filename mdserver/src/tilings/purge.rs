//! Purges older generations and removed objects: records of tilings and waiting chunks become orders to delete, a
//! batch at a time, in the background.

use slabfs_model::{ChunkId, ServerId, Version};

use crate::api::{Ino, MdError, Stored};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::placement::RetireKey;
use crate::records::{Tile, decode};

/// Records in one batch.
const BATCH: usize = 1000;

/// Does one batch; false if nothing is left to do.
pub(crate) fn purge_some(core: &Core) -> Result<bool, MdError> {
    let mut txn = core.begin(&Ctx::SERVICE)?;
    let Some((&ino, &below)) = txn.state.purges.first_key_value() else {
        return Ok(false);
    };
    let tiles = core
        .kv
        .scan(&keys::tile(ino, 0, 0), &keys::tile(ino, below, 0), BATCH)?;
    let bounds = core.kv.scan(
        &keys::bounds(ino, 0, 0, 0),
        &keys::bounds(ino, below, 0, 0),
        BATCH,
    )?;
    let waiting = core
        .kv
        .scan(&waiting_from(ino, 0), &waiting_from(ino, below), BATCH)?;
    let done = tiles.len() < BATCH && bounds.len() < BATCH && waiting.len() < BATCH;
    for (key, value) in tiles {
        if let Stored::Chunk(chunk) = decode::<Tile>(&key, &value)?.value {
            txn.retire(chunk.server, RetireKey::Chunk(chunk.chunk))?;
        }
        txn.batch.delete(key);
    }
    for (key, _) in bounds {
        txn.batch.delete(key);
    }
    for (key, value) in waiting {
        let server: ServerId = decode(&key, &value)?;
        if let Some([_, _, _, chunk]) = keys::numbers(&key, [8, 4, 8, 8]) {
            txn.retire(server, RetireKey::Chunk(ChunkId(chunk)))?;
        }
        txn.batch.delete(key);
    }
    if done {
        txn.batch.delete(keys::purge(ino));
    }
    txn.commit_then((), |state| {
        if done {
            state.purges.remove(&ino);
            if below == u32::MAX {
                state.waiting.remove(&ino);
            }
        }
    })?;
    Ok(true)
}

fn waiting_from(ino: Ino, generation: u32) -> Vec<u8> {
    keys::waiting(ino, generation, Version(0), ChunkId(0))
}
