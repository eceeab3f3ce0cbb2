//! Loads a tiling in the background if it is being read in parts.
//!
//! After a start of the service, and after evictions, readers get parts that are read from disk by their boxes
//! (`bounds`). That is quick once, but slower than memory each time. So the tiling of which parts were read last is
//! read completely in the background, without blocking any request, and is in memory from then on.

use slabfs_model::layout::tiling::Tiling;

use super::records;
use crate::api::{Ino, MdError};
use crate::core::{Core, if_any};

/// Frequently overwritten tilings have many unused orders: at most this many times the cacheable records are scanned.
const SPARSE: u64 = 4;

/// Reads the tiling of which parts were read last, if it may be cached.
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
    // Read without the lock: all are of one version if that is still the latest afterwards.
    let records = records(core, ino, before.generation)?;
    if records.len() as u64 > most {
        return Ok(());
    }
    let tiling = Tiling::bulk(before.rank, records)
        .map_err(|error| MdError::Io(format!("tiling of object {ino}: {error}")))?;
    core.tilings.with(ino, |loaded| {
        let Some(inode) = if_any(core.inode(ino))? else {
            // It was removed meanwhile.
            return Ok(());
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

/// The tiling to be read.
struct Wanted {
    generation: u32,
    version: slabfs_model::Version,
    next_order: u64,
    rank: usize,
}

/// Its current version; `None` if it is in memory, or gone.
fn look(core: &Core, ino: Ino) -> Result<Option<Wanted>, MdError> {
    core.tilings.with(ino, |loaded| {
        let Some(inode) = if_any(core.inode(ino))? else {
            return Ok(None);
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
