//! Reads the data of tiles: stored chunks as they are, and boxes of elements.
//!
//! Files are opened when they are needed, and at most [`OPEN_FILES`] at a time. Data is read by `pread` at the places that the
//! description has, without the HDF5 library, so that many threads can read; only filters that are not known here, and layouts
//! that are rare, go through it. A file that is not the one that was described is refused.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::cache::Cache;
use super::codec::{self, Codec};
use super::inspect::{failed, identity, refused};
use super::plan::{Joined, Piece, same_place};
use super::region::{self, Region};
use super::tile::{Element, Format, Storage, Tile, TileVariable};
use crate::Result;
use crate::hdf5::{self, stored_chunks};

/// The most files that are open at a time.
const OPEN_FILES: usize = 400;
/// How many chunks a variable of a tile may have for each that is stored, or if fewer are stored: all of them are looked at.
const SPARSE: u128 = 1 << 12;
const MOST_EMPTY: u128 = 1 << 24;
/// The number of the error EMFILE: the process may not open more files.
const TOO_MANY: i32 = 24;
/// The most bytes of decoded chunks that are in memory for parts that are still to come.
const DECODED: usize = 48 << 20;

/// The tiles, for reading.
#[derive(Debug)]
pub struct Source<'a> {
    tiles: &'a [Tile],
    files: Cache<usize, File>,
    decoded: Cache<Key, Vec<u8>>,
}

/// A decoded chunk is known by the address of the variable's description and its number in the tile.
type Key = (usize, u64);

/// The part of a variable that is in a tile, for reading.
#[derive(Debug)]
pub struct Part<'a> {
    /// The tile's number.
    pub tile: usize,
    /// The variable as the tile has it.
    pub own: &'a TileVariable,
    /// Where it is in the joined variable.
    pub region: Region,
    /// Its stored chunks.
    pub index: Index,
    /// The type that is wanted.
    element: Element,
    /// An element that was never written, in the wanted byte order.
    fill: Vec<u8>,
}

/// The stored chunks of a variable of a tile, in the order of their places.
#[derive(Debug, Default)]
pub struct Index {
    /// The shape of a chunk; none if there are no chunks.
    pub chunk: Vec<u64>,
    /// How many chunks there are along each axis.
    pub counts: Vec<u64>,
    entries: Vec<Entry>,
}

/// A stored chunk.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its number in row-major order.
    pub at: u64,
    /// Where it is in the file.
    pub address: u64,
    /// Its bytes there.
    pub size: u32,
    /// Filters that it did not go through.
    pub mask: u32,
}

impl Index {
    /// The stored chunk with this number.
    pub fn get(&self, at: u64) -> Option<&Entry> {
        let found = self.entries.binary_search_by_key(&at, |entry| entry.at);
        found.ok().map(|found| &self.entries[found])
    }

    /// All stored chunks, in row-major order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first element of a chunk in the tile.
    pub fn offset(&self, entry: &Entry) -> Vec<u64> {
        let mut rest = entry.at;
        let mut offset = vec![0; self.counts.len()];
        for axis in (0..offset.len()).rev() {
            let count = self.counts[axis].max(1);
            offset[axis] = rest % count * self.chunk[axis];
            rest /= count;
        }
        offset
    }

    /// The number of stored chunks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no chunk is stored.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Part<'_> {
    /// Whether elements that were never written are this one.
    pub fn has_fill(&self, fill: &[u8]) -> bool {
        self.fill == fill
    }
}

impl<'a> Source<'a> {
    /// Of these tiles.
    pub fn new(tiles: &'a [Tile]) -> Source<'a> {
        Source {
            tiles,
            files: Cache::new(OPEN_FILES),
            decoded: Cache::new(DECODED),
        }
    }

    /// The tile with this number.
    pub fn tile(&self, tile: usize) -> &'a Tile {
        &self.tiles[tile]
    }

    fn file(&self, tile: usize) -> Result<Arc<File>> {
        if let Some(file) = self.files.get(tile) {
            return Ok(file);
        }
        let described = &self.tiles[tile];
        let failed = |error: std::io::Error| failed(&described.path, "opening it", &error);
        let file = File::open(&described.path).or_else(|error| {
            if error.raw_os_error() == Some(TOO_MANY) {
                self.files.clear();
                return File::open(&described.path);
            }
            Err(error)
        });
        let file = Arc::new(file.map_err(failed)?);
        if identity(&file).map_err(failed)? != described.identity {
            return Err(refused(
                &described.path,
                "the file",
                "was changed while it was read",
            ));
        }
        self.files.add(tile, &file, 1);
        Ok(file)
    }

    /// Reads bytes of a tile's file.
    ///
    /// # Errors
    /// The file is gone, was changed, or is cut off.
    pub fn bytes(&self, tile: usize, address: u64, out: &mut [u8]) -> Result<()> {
        let file = self.file(tile)?;
        let read = file.read_exact_at(out, address);
        read.map_err(|error| failed(&self.tiles[tile].path, "reading it", &error))
    }

    /// Prepares reading a piece of a variable, whose number in the first tile is `at`.
    ///
    /// # Errors
    /// The file is damaged, gone, or was changed.
    pub fn part(&self, variable: &Joined, at: usize, piece: &Piece) -> Result<Part<'a>> {
        let tile = &self.tiles[piece.tile];
        let Some(own) = same_place(tile, at, &variable.path) else {
            return Err(refused(&tile.path, &variable.path, "is missing"));
        };
        let mut fill = own
            .fill
            .clone()
            .unwrap_or_else(|| vec![0; own.element.size]);
        if own.element.big_endian != variable.element.big_endian {
            codec::swap(&mut fill, own.element.size);
        }
        Ok(Part {
            tile: piece.tile,
            own,
            region: piece.region.clone(),
            index: self.index(piece.tile, own)?,
            element: variable.element.clone(),
            fill,
        })
    }

    fn index(&self, number: usize, own: &TileVariable) -> Result<Index> {
        let Storage::Chunked { shape, header } = &own.storage else {
            return Ok(Index::default());
        };
        let tile = &self.tiles[number];
        let base = match tile.format {
            Format::Hdf5(base) => base,
            Format::Classic => None,
        };
        let file = self.file(number)?;
        let read = match base {
            Some(base) => stored_chunks((&file, &tile.path), base, *header, shape)?,
            None => None,
        };
        let chunks = match read {
            Some(chunks) => chunks,
            None => hdf5::File::open(&tile.path)?
                .root()?
                .dataset(&own.path)?
                .chunks(base)?,
        };
        let counts: Vec<u64> = own
            .shape
            .iter()
            .zip(shape)
            .map(|(len, chunk)| len.div_ceil((*chunk).max(1)))
            .collect();
        let all = counts
            .iter()
            .fold(1_u128, |all, &len| all.saturating_mul(u128::from(len)));
        if all > (chunks.len() as u128 * SPARSE).max(MOST_EMPTY) {
            let why = format!(
                "has {all} chunks, of which {} are stored; the file is damaged",
                chunks.len()
            );
            return Err(refused(&tile.path, &own.path, why));
        }
        let raw = shape
            .iter()
            .try_fold(own.element.size as u64, |all, &len| all.checked_mul(len));
        // What filters add is little; a chunk that claims to be much longer is not read into memory.
        let most = raw.map_or(0, |raw| raw.saturating_mul(2).saturating_add(1 << 16));
        let mut entries = Vec::with_capacity(chunks.len());
        for chunk in &chunks {
            let places: Vec<u64> = chunk
                .offset
                .iter()
                .zip(shape)
                .map(|(at, len)| at / (*len).max(1))
                .collect();
            if places.iter().zip(&counts).any(|(at, len)| at >= len) {
                continue;
            }
            if chunk.size > most || u32::try_from(chunk.size).is_err() {
                let why = format!(
                    "has a stored chunk of {} bytes; the file is damaged",
                    chunk.size
                );
                return Err(refused(&tile.path, &own.path, why));
            }
            entries.push(Entry {
                at: places
                    .iter()
                    .zip(&counts)
                    .fold(0, |all, (at, len)| all * len + at),
                address: chunk.address,
                size: chunk.size as u32,
                mask: chunk.mask,
            });
        }
        entries.sort_unstable_by_key(|entry| entry.at);
        entries.dedup_by_key(|entry| entry.at);
        Ok(Index {
            chunk: shape.clone(),
            counts,
            entries,
        })
    }

    /// Reads what `part` and the box `to` share into a buffer that holds `to`, in the wanted byte order. Returns whether any of
    /// it was ever written.
    ///
    /// # Errors
    /// The file is damaged, gone, or was changed.
    pub fn read(
        &self,
        part: &Part<'_>,
        (out, to): (&mut [u8], &Region),
        codec: &mut Codec,
    ) -> Result<bool> {
        let Some(shared) = part.region.intersection(to) else {
            return Ok(false);
        };
        match &part.own.storage {
            Storage::Chunked { .. } if codec::is_native(&part.own.filters) => {
                self.chunks(part, &shared, (out, to), codec)
            }
            Storage::Plain { offset: None, .. } => {
                fill(&part.fill, &shared, (out, to));
                Ok(false)
            }
            Storage::Plain {
                offset: Some(offset),
                stride,
            } => {
                let elem = part.own.element.size;
                let mut bytes = vec![0; shared.elements() as usize * elem];
                self.plain(part, *offset, *stride, &shared, &mut bytes)?;
                self.place(part, &mut bytes, &shared, (out, to));
                Ok(true)
            }
            _ => {
                let mut bytes = vec![0; shared.elements() as usize * part.own.element.size];
                self.by_library(part, &shared, &mut bytes)?;
                self.place(part, &mut bytes, &shared, (out, to));
                Ok(true)
            }
        }
    }

    /// Puts elements of the box `shared` in the tile's byte order into the output.
    fn place(
        &self,
        part: &Part<'_>,
        bytes: &mut [u8],
        shared: &Region,
        (out, to): (&mut [u8], &Region),
    ) {
        if part.own.element.big_endian != part.element.big_endian {
            codec::swap(bytes, part.element.size);
        }
        region::copy(shared, part.element.size, (bytes, shared), (out, to));
    }

    /// Elements that lie one after the other in the file.
    fn plain(
        &self,
        part: &Part<'_>,
        offset: u64,
        stride: Option<u64>,
        shared: &Region,
        bytes: &mut [u8],
    ) -> Result<()> {
        let (elem, from) = (part.own.element.size as u64, &part.region);
        let rank = shared.count.len();
        // As many of the last axes as are read in one run; not over the first if other variables are between its indices.
        let (mut axis, mut run) = (rank, elem);
        let least = usize::from(stride.is_some());
        while axis > least {
            axis -= 1;
            run *= shared.count[axis];
            if shared.count[axis] != from.count[axis] {
                break;
            }
        }
        let mut steps = vec![elem; rank];
        for axis in (0..rank.saturating_sub(1)).rev() {
            steps[axis] = steps[axis + 1] * from.count[axis + 1];
        }
        if let (Some(stride), Some(first)) = (stride, steps.first_mut()) {
            *first = stride;
        }
        let mut at = shared.start[..axis].to_vec();
        for run in bytes.chunks_exact_mut(run as usize) {
            let place: u64 = (0..rank)
                .map(|i| (at.get(i).copied().unwrap_or(shared.start[i]) - from.start[i]) * steps[i])
                .sum();
            self.bytes(part.tile, offset + place, run)?;
            region::advance(&mut at, shared);
        }
        Ok(())
    }

    /// Elements that only the library can read.
    fn by_library(&self, part: &Part<'_>, shared: &Region, bytes: &mut [u8]) -> Result<()> {
        let tile = &self.tiles[part.tile];
        // As it was described.
        drop(self.file(part.tile)?);
        let dataset = hdf5::File::open(&tile.path)?
            .root()?
            .dataset(&part.own.path)?;
        let own = shared.from_origin(&part.region.start);
        dataset.read(&dataset.datatype()?, &own.start, &own.count, bytes)
    }

    /// Elements in chunks, which are decoded here.
    fn chunks(
        &self,
        part: &Part<'_>,
        shared: &Region,
        (out, to): (&mut [u8], &Region),
        codec: &mut Codec,
    ) -> Result<bool> {
        let (index, origin) = (&part.index, &part.region.start);
        let own = shared.from_origin(origin);
        let rank = own.start.len();
        let start: Vec<u64> = (0..rank)
            .map(|axis| own.start[axis] / index.chunk[axis])
            .collect();
        let count = (0..rank)
            .map(|axis| own.end(axis).div_ceil(index.chunk[axis]) - start[axis])
            .collect();
        let places = Region::new(start, count);
        let mut at = places.start.clone();
        let mut written = false;
        loop {
            let number = at
                .iter()
                .zip(&index.counts)
                .fold(0, |all, (at, len)| all * len + at);
            let first = (0..rank)
                .map(|axis| at[axis] * index.chunk[axis] + origin[axis])
                .collect();
            let chunk = Region::new(first, index.chunk.clone());
            if let Some(here) = chunk.intersection(shared) {
                match index.get(number) {
                    Some(entry) => {
                        let elements = self.decoded(part, entry, codec)?;
                        region::copy(&here, part.element.size, (&elements, &chunk), (out, to));
                        written = true;
                    }
                    None => fill(&part.fill, &here, (out, to)),
                }
            }
            if !region::advance(&mut at, &places) {
                return Ok(written);
            }
        }
    }

    fn decoded(&self, part: &Part<'_>, entry: &Entry, codec: &mut Codec) -> Result<Arc<Vec<u8>>> {
        let key = (std::ptr::from_ref(part.own).addr(), entry.at);
        if let Some(chunk) = self.decoded.get(key) {
            return Ok(chunk);
        }
        let mut stored = vec![0; entry.size as usize];
        self.bytes(part.tile, entry.address, &mut stored)?;
        let elem = part.element.size;
        let size = part.index.chunk.iter().product::<u64>() as usize * elem;
        let decoded = codec.decode(&stored, &part.own.filters, entry.mask, (elem, size));
        let mut decoded = decoded.map_err(|error| {
            let why = format!("has a damaged chunk: {error}");
            refused(&self.tiles[part.tile].path, &part.own.path, why)
        })?;
        if part.own.element.big_endian != part.element.big_endian {
            codec::swap(&mut decoded, elem);
        }
        let decoded = Arc::new(decoded);
        self.decoded.add(key, &decoded, decoded.len());
        Ok(decoded)
    }
}

/// Repeats an element over a buffer.
pub(super) fn repeat(element: &[u8], out: &mut [u8]) {
    if let Some((&first, rest)) = element.split_first()
        && rest.iter().all(|&byte| byte == first)
    {
        return out.fill(first);
    }
    for place in out.chunks_exact_mut(element.len().max(1)) {
        place.copy_from_slice(element);
    }
}

/// Repeats an element over a box of a buffer that holds the box `to`.
fn fill(element: &[u8], part: &Region, (out, to): (&mut [u8], &Region)) {
    let mut filled = vec![0; part.elements() as usize * element.len()];
    repeat(element, &mut filled);
    region::copy(part, element.len(), (&filled, part), (out, to));
}
