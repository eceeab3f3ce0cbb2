//! Chunks of an array that become chunks of an HDF5 dataset as they are encoded.
//!
//! The dataset gets the shape that most encoded chunks of the array have. A cell of its grid is copied if one chunk is
//! exactly this cell, and nothing newer lies over it; a cell that nothing was written to stays empty; the others are read
//! and encoded.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use slabfs_formats::boxes::Block;
use slabfs_formats::hdf5::Filter;
use slabfs_formats::tree::Variable;
use slabfs_model::Codec;
use slabfs_model::chunk_stream::ChunkHead;

use crate::encoded::open_chunks;
use crate::mount::Mount;

/// More chunks than this are read as elements: their list would take much memory.
const MOST: u64 = 200_000;
/// Bytes that are read at a time.
const AT_ONCE: usize = 1 << 20;

/// The list of an array's chunks in `.slabfs/layout`.
#[derive(Debug, Deserialize)]
struct Layout {
    layout: String,
    elem: u64,
    chunks: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    offset: Vec<u64>,
    shape: Vec<u64>,
    clip: Option<(Vec<u64>, Vec<u64>)>,
    step: Option<Vec<u64>>,
    order: Option<u64>,
    codec: Option<String>,
}

/// What becomes of a cell of the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    /// The chunk with this number is copied.
    Copy(u64),
    /// Its elements are read.
    Read,
}

/// The cells of an array's grid.
#[derive(Debug)]
pub(crate) struct Cells {
    /// The shape of a cell.
    pub(crate) shape: Vec<u64>,
    dims: Vec<u64>,
    /// Those that something was written to, by their first elements.
    cells: HashMap<Vec<u64>, Cell>,
}

/// A chunk, or the box of one that is to be read.
#[derive(Debug)]
pub(crate) enum Next {
    /// Its number, and the box of it that lies in the array.
    Copy(u64, Block),
    /// A box.
    Read(Block),
}

impl Cells {
    /// The cells of an array, if most of its chunks are encoded and of one shape; `chunks` is their number.
    pub(crate) fn of(
        mount: &Mount,
        place: &Path,
        variable: &Variable,
        chunks: u64,
    ) -> anyhow::Result<Option<Cells>> {
        let dims = variable.shape();
        if chunks == 0 || chunks > MOST || variable.deflate.is_none() || dims.is_empty() {
            return Ok(None);
        }
        let text = mount.hidden(&format!("layout/{}", mount.inside(place)?))?;
        let layout: Layout = serde_json::from_slice(&text)
            .with_context(|| format!("the layout of {}", place.display()))?;
        Ok(cells(&layout, dims, &variable.max_shape()))
    }

    /// What has to be done, in row-major order.
    pub(crate) fn steps(&self) -> Vec<Next> {
        let mut all: Vec<(&Vec<u64>, &Cell)> = self.cells.iter().collect();
        all.sort_unstable_by(|one, other| one.0.cmp(other.0));
        let step = |(start, cell): (&Vec<u64>, &Cell)| {
            let axes = start.iter().zip(&self.shape).zip(&self.dims);
            let count = axes.map(|((at, len), dim)| (dim - at).min(*len)).collect();
            let block = Block {
                start: start.clone(),
                count,
            };
            match cell {
                Cell::Copy(order) => Next::Copy(*order, block),
                Cell::Read => Next::Read(block),
            }
        };
        all.into_iter().map(step).collect()
    }
}

fn cells(layout: &Layout, dims: Vec<u64>, max: &[Option<u64>]) -> Option<Cells> {
    if layout.layout != "aligned"
        || layout
            .chunks
            .iter()
            .any(|one| one.shape.len() != dims.len())
    {
        return None;
    }
    let shape = shape(layout)?;
    let too_long = |(len, max): (&u64, &Option<u64>)| max.is_some_and(|max| *len > max);
    if shape.contains(&0) || shape.iter().zip(max).any(too_long) {
        return None;
    }
    let mut cells = HashMap::new();
    let mut steps = 0_u64;
    // Oldest first.
    for one in &layout.chunks {
        let (from, to) = shown(one, layout.elem, &dims);
        let first: Vec<u64> = from
            .iter()
            .zip(&shape)
            .map(|(at, len)| at / len * len)
            .collect();
        if from.iter().zip(&to).any(|(from, to)| from >= to) {
            continue;
        }
        let exact = is_cell(one, layout.elem, &shape, &dims, (&from, &to));
        let mut at = first.clone();
        loop {
            steps += 1;
            if steps > 16 * MOST {
                return None;
            }
            let cell = match (exact, one.order) {
                (true, Some(order)) => Cell::Copy(order),
                _ => Cell::Read,
            };
            cells.insert(at.clone(), cell);
            let Some(axis) = (0..at.len()).rev().find(|&axis| {
                at[axis] += shape[axis];
                let more = at[axis] < to[axis];
                if !more {
                    at[axis] = first[axis];
                }
                more
            }) else {
                break;
            };
            debug_assert!(axis < at.len());
        }
    }
    Some(Cells { shape, dims, cells })
}

/// The most usual shape of encoded chunks, in elements.
fn shape(layout: &Layout) -> Option<Vec<u64>> {
    let mut shapes: HashMap<Vec<u64>, usize> = HashMap::new();
    for one in &layout.chunks {
        let complete = one.shape.last().is_none_or(|len| len % layout.elem == 0);
        if one.codec.is_some() && one.step.is_none() && complete {
            *shapes
                .entry(in_elements(&one.shape, layout.elem))
                .or_default() += 1;
        }
    }
    let most = shapes
        .into_iter()
        .max_by(|one, other| (one.1, &other.0).cmp(&(other.1, &one.0)));
    most.map(|(shape, _)| shape)
}

fn in_elements(cells: &[u64], elem: u64) -> Vec<u64> {
    let mut list = cells.to_vec();
    if let Some(last) = list.last_mut() {
        *last /= elem;
    }
    list
}

/// The elements that a chunk has a part in: the first one, and the one after the last, on each axis.
fn shown(one: &Listed, elem: u64, dims: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (offset, shape) = match &one.clip {
        Some((offset, shape)) => (offset, shape),
        None => (&one.offset, &one.shape),
    };
    let end = |(at, len): (&u64, &u64)| at.saturating_add(*len);
    let mut to: Vec<u64> = offset.iter().zip(shape).map(end).collect();
    if let Some(last) = to.last_mut() {
        *last = last.div_ceil(elem);
    }
    for (to, dim) in to.iter_mut().zip(dims) {
        *to = (*to).min(*dim);
    }
    (in_elements(offset, elem), to)
}

/// Whether a chunk is exactly a cell, of which all that lies in the array is shown.
fn is_cell(
    one: &Listed,
    elem: u64,
    shape: &[u64],
    dims: &[u64],
    (from, to): (&[u64], &[u64]),
) -> bool {
    let complete = [one.offset.last(), one.shape.last()];
    let complete = complete.iter().flatten().all(|at| *at % elem == 0);
    let start = in_elements(&one.offset, elem);
    let axes = start.iter().zip(shape).zip(dims);
    let ends = axes.map(|((at, len), dim)| (at + len).min(*dim));
    one.codec.is_some()
        && one.step.is_none()
        && complete
        && in_elements(&one.shape, elem) == shape
        && start.iter().zip(shape).all(|(at, len)| at % len == 0)
        && start == from
        && ends.eq(to.iter().copied())
}

/// The filters that a chunk of this codec did not go through, in a dataset with these filters; `None` if it cannot be a chunk
/// of it.
pub(crate) fn mask(codec: Codec, filters: &[Filter]) -> Option<u32> {
    let ids: Vec<u32> = filters.iter().map(|filter| filter.id).collect();
    match (codec, ids.as_slice()) {
        (Codec::ShuffleDeflate(_), [Filter::SHUFFLE, Filter::DEFLATE])
        | (Codec::Deflate(_), [Filter::DEFLATE]) => Some(0),
        // The first one was skipped.
        (Codec::Deflate(_), [Filter::SHUFFLE, Filter::DEFLATE]) => Some(1),
        _ => None,
    }
}

/// Reads chunks of an array as they are stored.
#[derive(Debug)]
pub(crate) struct ChunkReader {
    file: File,
    /// What a read brings first: a head and bytes.
    begin: Vec<u8>,
}

impl ChunkReader {
    pub(crate) fn open(place: &Path) -> anyhow::Result<ChunkReader> {
        Ok(ChunkReader {
            file: open_chunks(place, false)?,
            begin: vec![0; AT_ONCE],
        })
    }

    /// A chunk by its number; `None` if it is not there any more.
    pub(crate) fn read(&mut self, order: u64) -> anyhow::Result<Option<(ChunkHead, Vec<u8>)>> {
        let at = order << 32;
        let read = self.file.read_at(&mut self.begin, at)?;
        let Some((head, begin)) = ChunkHead::read(&self.begin[..read]).context("a chunk")? else {
            return Ok(None);
        };
        let mut bytes = Vec::with_capacity(head.bytes as usize);
        bytes.extend_from_slice(&self.begin[begin..read]);
        let mut len = bytes.len();
        bytes.resize(head.bytes as usize, 0);
        while len < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[len..], at + (begin + len) as u64)?
            {
                0 => return Ok(None),
                more => len += more,
            }
        }
        Ok(Some((head, bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(order: u64, offset: [u64; 2], shape: [u64; 2], codec: bool) -> Listed {
        let cells = |[y, x]: [u64; 2]| vec![y, x * 4];
        Listed {
            offset: cells(offset),
            shape: cells(shape),
            clip: None,
            step: None,
            order: Some(order),
            codec: codec.then(|| "deflate:1".to_owned()),
        }
    }

    #[test]
    fn cells_are_copied_if_one_chunk_is_what_they_have() {
        let mut edge = listed(2, [4, 0], [4, 5], true);
        edge.clip = Some((vec![4, 0], vec![3, 20]));
        let mut part = listed(5, [4, 5], [4, 5], true);
        part.clip = Some((vec![4, 20], vec![2, 20]));
        let layout = Layout {
            layout: "aligned".to_owned(),
            elem: 4,
            chunks: vec![
                listed(0, [0, 0], [4, 5], true),
                listed(1, [0, 5], [4, 5], true),
                edge,
                // Two elements over the second one.
                listed(3, [3, 6], [1, 2], false),
                // All of the first one again.
                listed(4, [0, 0], [4, 5], true),
                part,
            ],
        };
        let max = [Some(7), Some(15)];
        let found = cells(&layout, vec![7, 15], &max).expect("cells");
        assert_eq!(found.shape, [4, 5]);
        let at = |y, x| found.cells.get(&vec![y, x]).copied();
        assert_eq!(at(0, 0), Some(Cell::Copy(4)));
        assert_eq!(at(0, 5), Some(Cell::Read));
        assert_eq!(at(4, 0), Some(Cell::Copy(2)));
        assert_eq!(at(4, 5), Some(Cell::Read), "a part of it is shown");
        assert_eq!(at(0, 10), None);
        assert!(cells(&layout, vec![7, 15], &[Some(3), None]).is_none());
    }
}
