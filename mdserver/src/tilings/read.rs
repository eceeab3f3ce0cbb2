//! Returns the tiling to a reader: nothing, the changes, or all of it in pages; of a large one, the part that is
//! read.

use slabfs_model::layout::tiling::{Record, Tiling};
use slabfs_model::{Coords, MAX_RANK, Region, Version};

use super::Loaded;
use super::bounds::{self, Found};
use crate::api::{Ino, MdError, Stored, TilingReply, WantedPart, op};
use crate::core::{Core, Ctx};
use crate::records::Object;

/// Bytes of records in one page, far enough below the limit of a frame's control part.
const PAGE_BYTES: usize = 8 << 20;
/// A tiling of at most this many records is sent completely, whatever part is wanted.
const FEW: usize = bounds::FEW as usize;
/// The most additional records sent with those that were requested.
const MOST_ALONG: u32 = 16 << 10;

/// The tiling of an object since `known`; from the record after order `after` if that is given. Of an unknown tiling
/// with many records, the part that is `wanted`.
pub(crate) fn tiling(core: &Core, _: &Ctx, op: op::Tiling) -> Result<TilingReply, MdError> {
    let op::Tiling {
        ino,
        known,
        after,
        ref wanted,
    } = op;
    let wanted = wanted.as_ref();
    if let Some(wanted) = wanted {
        check(&wanted.region)?;
    }
    core.tilings.with(ino, |loaded| {
        // Read under the tiling's lock: versions change only under it.
        let inode = core.inode(ino)?;
        let object = inode.object()?;
        let version = object.info.tiling;
        if after.is_none() && known == version {
            return Ok(TilingReply::Unchanged { version });
        }
        if let Some(wanted) = wanted
            && !loaded.has(object)
            && object.next_order > bounds::FEW
            && let Some(reply) = part_on_disk(core, loaded, ino, object, wanted, after)?
        {
            return Ok(reply);
        }
        let tiling = loaded.take(core, ino, object)?;
        let changes = match after {
            None => changes(loaded, &tiling, known, version),
            Some(_) => None,
        };
        let reply = match changes {
            Some(changes) => changes,
            None => {
                let cells = object.info.cells()?;
                match wanted.filter(|wanted| is_part(&tiling, &cells, wanted, after)) {
                    Some(wanted) => part(object, &tiling, cells, wanted, after),
                    None => complete(object, &tiling, cells, after),
                }
            }
        };
        loaded.put(tiling, version);
        Ok(reply)
    })
}

fn check(region: &Region) -> Result<(), MdError> {
    let rank = region.rank();
    if rank > MAX_RANK || region.shape.len() != rank {
        return Err(MdError::Invalid(format!(
            "a box of {rank} offsets and {} lengths is none; both have one an axis, at most {MAX_RANK}",
            region.shape.len()
        )));
    }
    Ok(())
}

/// Records in one page. In postcard a record has at most 4 numbers per axis of the slab and 2 of the clip.
fn page(rank: usize) -> usize {
    (PAGE_BYTES / (64 + 60 * rank)).max(1)
}

/// Whether to send a part instead of all: not for a tiling of few records, nor if most of them are wanted.
fn is_part(
    tiling: &Tiling<Stored>,
    cells: &[u64],
    wanted: &WantedPart,
    after: Option<u64>,
) -> bool {
    let few = || tiling.len() > FEW && tiling.has_at_most(tiling.len() / 2, &wanted.region);
    wanted.region.rank() == cells.len() && (after.is_some() || few())
}

fn complete(
    object: &Object,
    tiling: &Tiling<Stored>,
    cells: Coords,
    after: Option<u64>,
) -> TilingReply {
    let page = page(cells.len());
    let mut records: Vec<_> = match after {
        None => tiling.iter().take(page + 1).cloned().collect(),
        Some(after) => tiling.after(after).take(page + 1).cloned().collect(),
    };
    let more = records.len() > page;
    records.truncate(page);
    TilingReply::All {
        version: object.info.tiling,
        generation: object.info.generation,
        cells,
        records,
        more,
    }
}

/// The part of a tiling that is not in memory, read by its boxes; `None` if all of it is to be read.
fn part_on_disk(
    core: &Core,
    loaded: &mut Loaded,
    ino: Ino,
    object: &Object,
    wanted: &WantedPart,
    after: Option<u64>,
) -> Result<Option<TilingReply>, MdError> {
    let (cells, version) = (object.info.cells()?, object.info.tiling);
    let of = (ino, object.info.generation);
    if wanted.region.rank() != cells.len() {
        return Ok(None);
    }
    let known = loaded.found.take();
    let found = match known.filter(|(read, found)| *read == version && found.of() == of) {
        Some((_, found)) => Some(found),
        None => Found::begin(core, of, (object.next_order, cells.len()))?,
    };
    let Some(mut found) = found else {
        return Ok(None);
    };
    if !found.has_read(core, &wanted.region)? {
        return Ok(None);
    }
    let region = match after {
        None => found.window(core, wanted, &cells, wanted.most.min(MOST_ALONG) as usize)?,
        Some(_) => wanted.region.clone(),
    };
    let reply = within(object, &found.tiling, cells, region, after);
    loaded.found = Some((version, found));
    *core.tilings.wanted.lock() = Some(ino);
    Ok(Some(reply))
}

/// The records in a box, which is enlarged while few records are in it. A later page uses the box of the first.
fn part(
    object: &Object,
    tiling: &Tiling<Stored>,
    cells: Coords,
    wanted: &WantedPart,
    after: Option<u64>,
) -> TilingReply {
    let region = match after {
        None => {
            let most = wanted.most.min(MOST_ALONG) as usize;
            tiling.window(&wanted.region, &cells, most)
        }
        Some(_) => wanted.region.clone(),
    };
    within(object, tiling, cells, region, after)
}

/// The records in a box, after the order `after`.
fn within(
    object: &Object,
    tiling: &Tiling<Stored>,
    cells: Coords,
    region: Region,
    after: Option<u64>,
) -> TilingReply {
    let orders = tiling.orders_within(&region);
    let first = after.map_or(0, |after| orders.partition_point(|order| *order <= after));
    let wanted = &orders[first..];
    let page = page(cells.len());
    let records: Vec<Record<Stored>> = wanted
        .iter()
        .take(page)
        .filter_map(|&order| tiling.get(order).cloned())
        .collect();
    TilingReply::Part {
        version: object.info.tiling,
        generation: object.info.generation,
        cells,
        region,
        records,
        more: wanted.len() > page,
    }
}

/// The tiling since `known`, if it fits into one page.
pub(crate) fn changes_since(
    loaded: &Loaded,
    tiling: &Tiling<Stored>,
    object: &Object,
    known: Version,
) -> Option<TilingReply> {
    let version = object.info.tiling;
    if known == version {
        return Some(TilingReply::Unchanged { version });
    }
    if let Some(changes) = changes(loaded, tiling, known, version) {
        return Some(changes);
    }
    let cells = object.info.cells().ok()?;
    (tiling.len() <= page(cells.len())).then(|| complete(object, tiling, cells, None))
}

/// The changes since `known`, if they are remembered.
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
