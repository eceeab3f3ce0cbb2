//! Reading a tiling in the background that is read in parts.
//!
//! After a start of the service, and where tilings were forgotten, readers get parts that are read from disk by their boxes
//! (`bounds`). That is quick once, and slower than from memory each time: so the tiling that parts were read of last is
//! read as a whole in the background, without holding anybody up, and is in memory from then on.

use slabfs_model::layout::tiling::Tiling;

use super::records;
use crate::api::{Ino, MdError};
use crate::core::Core;

/// Of what was written over very often many orders are gone: so many times the records that may be kept are looked through.
const SPARSE: u64 = 4;

/// Reads the tiling that parts were read of last, if it may be kept.
pub(crate) fn warm(core: &Core) -> Result<(), MdError> {
    let Some(ino) = core.tilings.wanted.lock().take() else {
        return Ok(());
    };
    let Some(before) = look(core, ino)? else {
        return Ok(());
    };
    let most = core.tilings.limit as u64;
    if before.next_order > most.saturating_mul(SPARSE) {
        return Ok(());
    }
    // Without the lock: of one version they are if that is still the newest afterwards.
    let records = records(core, ino, before.generation)?;
    if records.len() as u64 > most {
        return Ok(());
    }
    let tiling = Tiling::bulk(before.rank, records)
        .map_err(|error| MdError::Io(format!("tiling of object {ino}: {error}")))?;
    core.tilings.with(ino, |loaded| {
        let inode = match core.inode(ino) {
            // It was removed meanwhile.
            Err(MdError::NotFound) => return Ok(()),
            inode => inode?,
        };
        let info = &inode.object()?.info;
        let is_same = info.generation == before.generation && info.tiling == before.version;
        if is_same && !loaded.has(inode.object()?) {
            loaded.forget();
            loaded.generation = before.generation;
            loaded.put(tiling, before.version);
        }
        Ok(())
    })
}

/// What a tiling is that is to be read.
struct Wanted {
    generation: u32,
    version: slabfs_model::Version,
    next_order: u64,
    rank: usize,
}

/// What it is now; nothing where it is in memory, or gone.
fn look(core: &Core, ino: Ino) -> Result<Option<Wanted>, MdError> {
    core.tilings.with(ino, |loaded| {
        let inode = match core.inode(ino) {
            Err(MdError::NotFound) => return Ok(None),
            inode => inode?,
        };
        let object = inode.object()?;
        if object.info.is_grid() || loaded.has(object) {
            return Ok(None);
        }
        Ok(Some(Wanted {
            generation: object.info.generation,
            version: object.info.tiling,
            next_order: object.next_order,
            rank: object.info.cells()?.len(),
        }))
    })
}
