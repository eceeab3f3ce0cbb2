//! Checks tilings: records are of the current generation or are to be purged; and replaced chunks that wait for a
//! settle.

use slabfs_model::layout::tiling::Tiling;
use slabfs_model::{ChunkId, Coords, ObjectId, Region, ServerId, SessionId};

use super::chunks::{Claim, Use};
use super::{CheckError, Class, Facts, PAGE, Walk, counters};
use crate::api::Stored;
use crate::keys;
use crate::records::{Object, Tile};

/// The object whose rows are being read.
#[derive(Default)]
struct Here {
    ino: Option<u64>,
    object: Option<Box<Object>>,
    cells: Option<Coords>,
    /// Generations below this are being purged.
    purged: u32,
}

impl Here {
    fn enter(&mut self, walk: &Walk<'_>, facts: &Facts, ino: u64) -> Result<(), CheckError> {
        if self.ino == Some(ino) {
            return Ok(());
        }
        let inode = walk.inode(ObjectId(ino))?;
        self.ino = Some(ino);
        self.object = inode.and_then(|inode| match inode.body {
            crate::records::Body::Object(object) => Some(object),
            _ => None,
        });
        self.cells = self
            .object
            .as_ref()
            .and_then(|object| object.info.cells().ok());
        self.purged = facts.purges.get(&ino).copied().unwrap_or(0);
        Ok(())
    }

    /// Returns why a row of this generation would never be removed; `None` if it is current or being purged.
    fn stray(&self, generation: u32) -> Option<String> {
        match &self.object {
            _ if generation < self.purged => None,
            None => Some("belongs to no object, and has no purge record".to_owned()),
            Some(object) if generation < object.info.generation => Some(format!(
                "belongs to generation {generation} of an object of generation {}, and has no purge record",
                object.info.generation
            )),
            Some(object) if generation > object.info.generation => Some(format!(
                "belongs to generation {generation}, and the object is at {}",
                object.info.generation
            )),
            Some(_) => None,
        }
    }
}

/// Returns the level at which a record is outside the box of its block, if there are boxes.
fn unboxed(walk: &Walk<'_>, here: &Here, object: &Object, order: u64, tile: &Tile) -> Option<u8> {
    let of = (ObjectId(here.ino?), object.info.generation);
    let record = tile.clone().record(order);
    crate::tilings::unboxed(walk.kv, of, &record)
}

/// Reads all purge records, all records of tilings and all waiting chunks.
pub(super) fn check(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(keys::purges(), PAGE, |walk, key, value| {
        let ino = walk.numbers(key, [8]);
        let below = walk.record::<u32>(key, value);
        if let (Some([ino]), Some(below)) = (ino, below) {
            facts.purges.insert(ino, below);
            if let Some(row) = walk.inode(ObjectId(ino))?
                && let Ok(object) = row.object()
                && below > object.info.generation
            {
                walk.report(
                    Class::Order,
                    format!("object {ino}"),
                    format!(
                        "is at generation {}, and everything below {below} is to be purged",
                        object.info.generation
                    ),
                );
            }
        }
        Ok(())
    })?;
    let mut here = Here::default();
    walk.each(keys::table(b't'), PAGE, |walk, key, value| {
        facts.census.tiles += 1;
        let numbers = walk.numbers(key, [8, 4, 8]);
        let tile = walk.record::<Tile>(key, value);
        let (Some([ino, generation, order]), Some(tile)) = (numbers, tile) else {
            return Ok(());
        };
        here.enter(walk, facts, ino)?;
        record(walk, facts, &here, (key, generation as u32, order), tile);
        Ok(())
    })?;
    let mut here = Here::default();
    walk.each(keys::table(b'b'), PAGE, |walk, key, value| {
        let Some([ino, generation, level, _]) = walk.numbers(key, [8, 4, 1, 8]) else {
            return Ok(());
        };
        if level > 0 {
            walk.record::<Region>(key, value);
        }
        here.enter(walk, facts, ino)?;
        if let Some(why) = here.stray(generation as u32) {
            walk.report_key(Class::Tile, key, why);
        }
        Ok(())
    })?;
    let mut here = Here::default();
    walk.each(keys::all_waiting(), PAGE, |walk, key, value| {
        let numbers = walk.numbers(key, [8, 4, 8, 8]);
        let by = walk.record::<(ServerId, SessionId)>(key, value);
        let (Some([ino, generation, version, chunk]), Some((server, _))) = (numbers, by) else {
            return Ok(());
        };
        here.enter(walk, facts, ino)?;
        if let Some(why) = here.stray(generation as u32) {
            walk.report_key(Class::Tile, key, why);
        }
        if let Some(object) = &here.object
            && version > object.info.tiling.0
        {
            walk.report_key(
                Class::Tile,
                key,
                format!(
                    "was replaced in version {version}, and the object is at {}",
                    object.info.tiling
                ),
            );
        }
        claim(
            walk,
            facts,
            key,
            Claim {
                server,
                chunk: ChunkId(chunk),
                ino: ObjectId(ino),
                generation: generation as u32,
                order: 0,
                used: Use::Waiting,
            },
        );
        Ok(())
    })
}

fn record(
    walk: &mut Walk<'_>,
    facts: &mut Facts,
    here: &Here,
    (key, generation, order): (&[u8], u32, u64),
    tile: Tile,
) {
    let subject = || keys::describe(key);
    let mut shown = false;
    match (here.stray(generation), &here.object) {
        (Some(why), _) => walk.report(Class::Tile, subject(), why),
        (None, Some(object)) if generation == object.info.generation => {
            shown = true;
            current(walk, here, object, subject, order, &tile);
        }
        (None, _) => {}
    }
    let ino = here.ino.unwrap_or_default();
    if let Stored::Chunk(chunk) = &tile.value {
        if shown && let Some(row) = facts.row(ino) {
            row.left = row.left.saturating_sub(tile.slab.volume() as i64);
        }
        let claimed = Claim {
            server: chunk.server,
            chunk: chunk.chunk,
            ino: ObjectId(ino),
            generation,
            order,
            used: if shown { Use::Shown } else { Use::Purged },
        };
        claim(walk, facts, key, claimed);
    }
}

/// Checks a record of the object's current generation.
fn current(
    walk: &mut Walk<'_>,
    here: &Here,
    object: &Object,
    subject: impl Fn() -> String,
    order: u64,
    tile: &Tile,
) {
    let mut wrong = |detail: String| walk.report(Class::Tile, subject(), detail);
    if object.info.is_grid() {
        wrong("belongs to an object of a grid layout, which has no such records".to_owned());
        return;
    }
    if order >= object.next_order {
        wrong(format!(
            "the next order of the object is {}: it would be allocated a second time",
            object.next_order
        ));
    }
    let Some(cells) = &here.cells else {
        return;
    };
    if tile.slab.rank() != cells.len() {
        wrong(format!(
            "has {} axes, and the object {}",
            tile.slab.rank(),
            cells.len()
        ));
        return;
    }
    if let Some(level) = unboxed(walk, here, object, order, tile) {
        let detail =
            format!("is outside the box of its block on level {level}: readers may not find it");
        walk.report(Class::Tile, subject(), detail);
    }
    let mut wrong = |detail: String| walk.report(Class::Tile, subject(), detail);
    let alone = vec![tile.clone().record(order)];
    if let Err(error) = Tiling::bulk(cells.len(), alone) {
        wrong(error.to_string());
        return;
    }
    let extent = Region::all(cells);
    let outside = match &tile.clip {
        Some(clip) => !clip.is_empty() && !extent.contains(clip),
        None => tile
            .slab
            .bounds()
            .is_some_and(|bounds| !extent.contains(&bounds)),
    };
    if outside {
        wrong("shows cells beyond the object's dims".to_owned());
    }
}

/// Records the use of a chunk.
fn claim(walk: &mut Walk<'_>, facts: &mut Facts, key: &[u8], claim: Claim) {
    match facts.servers.get_mut(&claim.server) {
        Some(server) => server.named = true,
        None => walk.report_key(
            Class::Server,
            key,
            format!(
                "its chunk is on data server {}, which is not known",
                claim.server
            ),
        ),
    }
    let (limit, chunk) = (facts.limits.chunk, claim.chunk.0);
    counters::below(walk, limit, chunk, || format!("chunk {chunk}"));
    facts.claims.push(claim);
}
