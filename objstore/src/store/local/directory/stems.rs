//! The file names of chunks, without `.chunk`.

use std::path::Path;

use slabfs_model::{ChunkId, Coords, ObjectId};

use crate::name::ChunkName;

/// Longer names are hashed: a file name has at most 255 bytes.
const STEM_MAX: usize = 200;

pub(super) fn grid_stem(object: ObjectId, generation: u32, at: &Coords) -> String {
    let places: Vec<String> = at.iter().map(|x| format!("{x:x}")).collect();
    let stem = format!("{:016x}-{generation:x}-{}", object.0, places.join("."));
    if stem.len() <= STEM_MAX {
        return stem;
    }
    format!(
        "{:016x}-{generation:x}-h{:032x}",
        object.0,
        xxhash_rust::xxh3::xxh3_128(stem.as_bytes())
    )
}

pub(super) fn parse_stem(path: &Path) -> Option<ChunkName> {
    let stem = path.file_stem()?.to_str()?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let Some((object, rest)) = stem.split_once('-') else {
        return hex(stem).map(|id| ChunkName::Free(ChunkId(id)));
    };
    let (generation, places) = rest.split_once('-')?;
    if places.starts_with('h') {
        return None;
    }
    let at: Option<Coords> = match places {
        "" => Some(Coords::new()),
        _ => places.split('.').map(hex).collect(),
    };
    Some(ChunkName::Grid {
        object: ObjectId(hex(object)?),
        generation: hex(generation)?.try_into().ok()?,
        at: at?,
    })
}
