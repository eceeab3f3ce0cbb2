//! The tiling for a reader: nothing, what changed, or all of it in pages.

use slabfs_model::Version;
use slabfs_model::layout::tiling::{Record, Tiling};

use super::Loaded;
use crate::api::{Ino, MdError, Reply, Stored, TilingReply};
use crate::core::Core;
use crate::records::Object;

/// Bytes of records in one page, far enough below the limit of a frame's control part.
const PAGE_BYTES: usize = 8 << 20;

/// The tiling of an object since `known`; from the record after order `after` if that is given.
pub(crate) fn tiling(
    core: &Core,
    ino: Ino,
    known: Version,
    after: Option<u64>,
) -> Result<Reply, MdError> {
    core.tilings.with(ino, |loaded| {
        // Read under the tiling's lock: versions change only under it.
        let inode = core.inode(ino)?;
        let object = inode.object()?;
        let version = object.info.tiling;
        if after.is_none() && known == version {
            return Ok(Reply::Tiling(TilingReply::Unchanged { version }));
        }
        let tiling = loaded.take(core, ino, object)?;
        let changes = match after {
            None => changes(loaded, &tiling, known, version),
            Some(_) => None,
        };
        let reply = match changes {
            Some(changes) => changes,
            None => whole(object, &tiling, version, after)?,
        };
        loaded.put(tiling, version);
        Ok(Reply::Tiling(reply))
    })
}

fn whole(
    object: &Object,
    tiling: &Tiling<Stored>,
    version: Version,
    after: Option<u64>,
) -> Result<TilingReply, MdError> {
    let cells = object.info.cells()?;
    // A record in postcard: at most 4 numbers an axis of the slab and 2 of the clip.
    let page = (PAGE_BYTES / (64 + 60 * cells.len())).max(1);
    let later = |record: &&Record<Stored>| after.is_none_or(|after| record.order > after);
    let mut records: Vec<_> = tiling
        .iter()
        .filter(later)
        .take(page + 1)
        .cloned()
        .collect();
    let more = records.len() > page;
    records.truncate(page);
    let generation = object.info.generation;
    Ok(TilingReply::Whole {
        version,
        generation,
        cells,
        records,
        more,
    })
}

/// What happened since `known`, if that is remembered.
fn changes(
    loaded: &Loaded,
    tiling: &Tiling<Stored>,
    known: Version,
    version: Version,
) -> Option<TilingReply> {
    let start = loaded.log.iter().position(|step| step.before == known)?;
    let steps = loaded.log.range(start..);
    let first = loaded.log.get(start)?.added.start;
    let dropped = steps
        .clone()
        .flat_map(|step| step.dropped.iter().copied())
        .filter(|&order| order < first)
        .collect();
    let added = steps
        .flat_map(|step| step.added.clone())
        .filter_map(|order| tiling.get(order).cloned())
        .collect::<Vec<_>>();
    let rank = tiling.rank();
    let small = added.len() <= PAGE_BYTES / (64 + 60 * rank);
    small.then_some(TilingReply::Changes {
        version,
        added,
        dropped,
    })
}
