//! Validation of records that come from clients.

use slabfs_model::layout::tiling::Record;
use slabfs_model::{ChunkId, Coords, Hyperslab, MAX_BYTES, Region};

use crate::api::{MAX_COMMIT_RECORDS, MdError, Stored};
use crate::core::State;

/// Records as they will be in the tiling, before they get their orders.
pub(super) struct Checked {
    /// In order of arrival; orders count from 0.
    pub(super) records: Vec<Record<Stored>>,
    /// The chunks among them.
    pub(super) chunks: Vec<ChunkId>,
}

/// Checks records and their clips against the object's cells. Parts beyond them (the object was shrunk meanwhile) are
/// cut off.
pub(super) fn check(
    records: Vec<(Hyperslab, Stored)>,
    clips: Vec<Option<Region>>,
    cells: &Coords,
) -> Result<Checked, MdError> {
    if records.len() > MAX_COMMIT_RECORDS {
        return Err(MdError::Invalid(format!(
            "at most {MAX_COMMIT_RECORDS} records in a commit"
        )));
    }
    if !clips.is_empty() && clips.len() != records.len() {
        return Err(MdError::Invalid(format!(
            "{} clips for {} records",
            clips.len(),
            records.len()
        )));
    }
    let limits = Coords::from_elem(MAX_BYTES, cells.len());
    let all = Region::all(cells);
    let mut chunks = Vec::new();
    let mut out = Vec::with_capacity(records.len());
    let mut clips = clips.into_iter();
    for (order, (slab, value)) in records.into_iter().enumerate() {
        slab.validate(&limits)
            .map_err(|error| MdError::Invalid(error.to_string()))?;
        let slab = slab.normal();
        let Some(bounds) = slab.bounds() else {
            return Err(MdError::Invalid("a record of no cells".to_owned()));
        };
        if slab.volume() > MAX_BYTES {
            return Err(MdError::Invalid(
                "a record of more than 2^63 bytes".to_owned(),
            ));
        }
        if let Stored::Chunk(chunk) = &value {
            if !chunk.codec.is_valid() {
                return Err(MdError::Invalid("a chunk of an unknown codec".to_owned()));
            }
            chunks.push(chunk.chunk);
        }
        let given = clips.next().flatten();
        if let Some(clip) = &given {
            clip.validate(&limits)
                .map_err(|error| MdError::Invalid(error.to_string()))?;
        }
        let clip = if given.is_none() && all.contains(&bounds) {
            None
        } else {
            // Nothing is left of it: an empty clip, which shows nothing.
            let nothing = || {
                Region::new(
                    &Coords::from_elem(0, cells.len()),
                    &Coords::from_elem(0, cells.len()),
                )
            };
            let bounds = given.map_or(Some(bounds.clone()), |clip| bounds.intersect(&clip));
            let shown = bounds.and_then(|bounds| bounds.intersect(&all));
            Some(shown.unwrap_or_else(nothing))
        };
        out.push(Record {
            slab,
            clip,
            order: order as u64,
            value,
        });
    }
    Ok(Checked {
        records: out,
        chunks,
    })
}

/// Refuses chunks on unknown servers.
pub(super) fn check_servers(state: &State, records: &[Record<Stored>]) -> Result<(), MdError> {
    for record in records {
        if let Stored::Chunk(chunk) = &record.value
            && !state.servers.by_id.contains_key(&chunk.server)
        {
            let server = chunk.server;
            return Err(MdError::Invalid(format!(
                "data server {server} is not known"
            )));
        }
    }
    Ok(())
}
