//! The output as a container: every tile becomes chunks of its own.
//!
//! 1. What the joined file has besides joined data is written to a file in the hidden directory ([`collate::skeleton`]) and
//!    imported, as `slabfs import` does: containers, arrays, tags, and variables that are not decomposed.
//! 2. The chunks of the tiles are written into the arrays as they are encoded, with the part of each that lies in its tile: a
//!    chunk may have any shape and any place, so tiles need not fit a grid. Nothing is decoded where the filters are shuffle
//!    and deflate, with or without fletcher32, whose sum is compared; other chunks are decoded.
//!
//! Threads take one tile of one variable after the other.

use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::anyhow;
use slabfs_formats::collate::codec::{self, Codec};
use slabfs_formats::collate::{self, Entry, Joined, Part, Plan, Region, Source, Storage};
use slabfs_formats::source;
use slabfs_model::chunk_stream::{ChunkHead, MAX_ENCODED};

use super::message::Message;
use super::{SKELETON, UNFINISHED, worker};
use crate::encoded::{self, ChunkWriter, How};
use crate::import;
use crate::mount::Mount;
use slabfs_datamodel::mapping;

/// Bytes of elements that are read at a time.
const PART: u64 = 4 << 20;

/// How much was done.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Chunks that are stored as they are.
    copied: AtomicU64,
    /// Boxes of elements.
    decoded: AtomicU64,
}

impl std::fmt::Display for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [copied, decoded] =
            [&self.copied, &self.decoded].map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{copied} chunks stored as they are, {decoded} boxes as elements"
        )
    }
}

/// Says what would be done.
pub(super) fn show(plan: &Plan) -> anyhow::Result<()> {
    worker::show_dims(plan)?;
    for variable in plan.variables.iter().filter(|one| one.decomposed) {
        Message::Said(format!(
            "{} {:?} from {} files",
            collate::shown(&variable.path),
            variable.shape,
            variable.pieces.len()
        ))
        .send()?;
    }
    worker::show_others(plan)
}

/// Joins the tiles to a container in `dir`; `named` is the name that it will get.
pub(super) fn write(
    plan: &Plan,
    dir: &Path,
    named: &Path,
    threads: usize,
    progress: &mut collate::Watch<'_>,
) -> anyhow::Result<Stored> {
    let skeleton = dir.join(SKELETON);
    collate::skeleton(plan, (&skeleton, named), progress)?;
    let from = source::open(&skeleton)?;
    let planned = mapping::plan(named, from.tree())?;
    let place = dir.join(UNFINISHED);
    let mount = Mount::of(dir)?;
    import::make(&mount, &place, &planned)?;
    let joined = |array: &mapping::Planned<'_>| {
        let path = format!("/{}", mapping::joined(&array.group, &array.variable.name));
        // NetCDF-4 gives variables that are no coordinates, and have the name of a dimension, another name in the file.
        let is_it = |one: &Joined| one.path.replace("/_nc4_non_coord_", "/") == path;
        let joined = plan.variables.iter().position(is_it);
        joined.filter(|&at| collate::is_joined(plan, &plan.variables[at]))
    };
    let mut work = Vec::new();
    for array in &planned.arrays {
        match joined(array) {
            None => import::copy(&*from, array, &place)?,
            Some(at) => {
                let pieces = 0..plan.variables[at].pieces.len();
                let deflate = array.variable.deflate;
                let path = place.join(&array.group).join(&array.variable.name);
                work.extend(pieces.map(|piece| Work {
                    variable: at,
                    piece,
                    path: path.clone(),
                    level: deflate.map_or(1, |deflate| deflate.level.max(1)),
                }));
            }
        }
    }
    let source = Source::new(&plan.tiles);
    let stored = Stored::default();
    tiles(plan, &source, work, (threads, &stored))?;
    Ok(stored)
}

/// A tile of a variable.
struct Work {
    /// The number of the variable.
    variable: usize,
    /// The number of the piece.
    piece: usize,
    /// The array.
    path: std::path::PathBuf,
    /// The level that the array has for its codec.
    level: u32,
}

/// Writes all tiles.
fn tiles(
    plan: &Plan,
    source: &Source<'_>,
    work: Vec<Work>,
    (threads, stored): (usize, &Stored),
) -> anyhow::Result<()> {
    let queue = Mutex::new(work.into_iter());
    let stop = AtomicBool::new(false);
    let take = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let thread = || {
        let mut codec = Codec::default();
        let mut open: Option<(usize, ChunkWriter)> = None;
        while !stop.load(Ordering::Relaxed) {
            let Some(work) = take() else { break };
            let mut writer = match open.take() {
                Some((variable, writer)) if variable == work.variable => writer,
                other => {
                    if let Some((_, writer)) = other {
                        writer.finish()?;
                    }
                    ChunkWriter::open(&work.path)?
                }
            };
            let variable = &plan.variables[work.variable];
            let part = source.part(variable, work.variable, &variable.pieces[work.piece])?;
            let mut tile = Tile {
                source,
                variable,
                part: &part,
                level: work.level,
                stored,
                codec: &mut codec,
                writer: &mut writer,
            };
            tile.write()?;
            open = Some((work.variable, writer));
        }
        open.map_or(Ok(()), |(_, writer)| writer.finish())
    };
    let guarded = || {
        let done: anyhow::Result<()> = thread();
        // The others need not go on.
        stop.fetch_or(done.is_err(), Ordering::Relaxed);
        done
    };
    let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(guarded)).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
            handle
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a thread has failed")))
        };
        handles.into_iter().map(join).collect()
    });
    results.into_iter().collect()
}

/// A tile of a variable that is being written.
struct Tile<'a> {
    source: &'a Source<'a>,
    variable: &'a Joined,
    part: &'a Part<'a>,
    level: u32,
    stored: &'a Stored,
    codec: &'a mut Codec,
    writer: &'a mut ChunkWriter,
}

impl Tile<'_> {
    fn write(&mut self) -> anyhow::Result<()> {
        let (own, chunk) = (self.part.own, &self.part.index.chunk);
        let never_written = Storage::Plain {
            offset: None,
            stride: None,
        };
        if own.storage == never_written && self.part.has_fill(&self.variable.fill) {
            return Ok(());
        }
        if chunk.is_empty() || !codec::is_native(&own.filters) {
            return self.elements(&self.part.region.clone());
        }
        if !self.part.has_fill(&self.variable.fill) {
            // Chunks that the tile has not are another element than those that are in no tile.
            for at in 0..self.part.index.counts.iter().product() {
                if self.part.index.get(at).is_none()
                    && let Some(shown) = self.chunk(at).intersection(&self.part.region)
                {
                    self.elements(&shown)?;
                }
            }
        }
        let mut entries: Vec<Entry> = self.part.index.entries().to_vec();
        entries.sort_unstable_by_key(|entry| entry.address);
        for entry in entries {
            let chunk = self.chunk(entry.at);
            let Some(shown) = chunk.intersection(&self.part.region) else {
                continue;
            };
            match self.how(&entry) {
                How::Copy(codec) => self.copy(&entry, (&chunk, &shown), codec, 0)?,
                How::Summed(codec) => self.copy(&entry, (&chunk, &shown), codec, 4)?,
                How::Decode => self.elements(&shown)?,
            }
        }
        Ok(())
    }

    /// The box of a chunk, by its number in the tile.
    fn chunk(&self, at: u64) -> Region {
        let index = &self.part.index;
        let mut start = self.part.region.start.clone();
        let mut rest = at;
        for axis in (0..start.len()).rev() {
            start[axis] += rest % index.counts[axis] * index.chunk[axis];
            rest /= index.counts[axis];
        }
        Region::new(start, index.chunk.clone())
    }

    fn how(&self, entry: &Entry) -> How {
        let own = self.part.own;
        let turned = own.element.big_endian != self.variable.element.big_endian;
        let chunk = self.part.index.chunk.iter();
        let raw = chunk.fold(own.element.size as u64, |all, &len| all.saturating_mul(len));
        if turned || entry.size as usize > MAX_ENCODED || raw > MAX_ENCODED as u64 {
            return How::Decode;
        }
        How::of(
            &own.filters,
            entry.mask,
            own.element.size as u64,
            self.level,
        )
    }

    fn copy(
        &mut self,
        entry: &Entry,
        (chunk, shown): (&Region, &Region),
        codec: slabfs_model::Codec,
        behind: usize,
    ) -> anyhow::Result<()> {
        let (source, part) = (self.source, self.part);
        self.stored.copied.fetch_add(1, Ordering::Relaxed);
        let Some(bytes) = entry.size.checked_sub(behind as u32) else {
            return Err(self.damaged("it is shorter than its checksum"));
        };
        let head = head((chunk, shown), codec, bytes);
        if codec.is_none() && u64::from(bytes) != chunk.elements() * part.own.element.size as u64 {
            return Err(self.damaged("it has another size than its shape says"));
        }
        if behind == 0 {
            let mut read =
                |at: u64, out: &mut [u8]| Ok(source.bytes(part.tile, entry.address + at, out)?);
            if bytes as usize <= encoded::SMALL {
                return self.writer.push_read(&head, &mut read);
            }
            return match self.writer.try_large(&head, &mut read)? {
                true => Ok(()),
                // The mount has no memory for it: it takes parts of elements.
                false => self.elements(shown),
            };
        }
        let mut stored = vec![0; entry.size as usize];
        source.bytes(part.tile, entry.address, &mut stored)?;
        codec::check(&mut stored).map_err(|error| self.damaged(&error.to_string()))?;
        self.writer.push(&head, &stored)
    }

    /// Writes elements of a box, which is read and decoded.
    fn elements(&mut self, region: &Region) -> anyhow::Result<()> {
        let elem = self.variable.element.size;
        for region in region.parts((PART / elem.max(1) as u64).max(1)) {
            self.stored.decoded.fetch_add(1, Ordering::Relaxed);
            let mut bytes = vec![0; region.elements() as usize * elem];
            self.source
                .read(self.part, (&mut bytes, &region), self.codec)?;
            let head = head(
                (&region, &region),
                slabfs_model::Codec::None,
                bytes.len() as u32,
            );
            self.writer.push(&head, &bytes)?;
        }
        Ok(())
    }

    fn damaged(&self, why: &str) -> anyhow::Error {
        let tile = self.source.tile(self.part.tile).path.display();
        anyhow!(
            "{tile}: {} has a damaged chunk: {why}",
            collate::shown(&self.variable.path)
        )
    }
}

fn head((chunk, shown): (&Region, &Region), codec: slabfs_model::Codec, bytes: u32) -> ChunkHead {
    let [chunk, shown] = [chunk, shown].map(|region| (&region.start[..], &region.count[..]));
    encoded::head(chunk, shown, codec, bytes)
}
