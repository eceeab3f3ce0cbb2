//! What has to be done for a variable: chunks that are copied, and boxes that are assembled from several.
//!
//! The grid of the output is gone through along its first axis, so that what is in memory is for one row of chunks, and
//! positions that are copied are known before the rest is assembled.

use std::collections::{BTreeMap, HashSet};

use super::grid;
use super::plan::Joined;
use super::region::{self, Region};
use super::source::{Entry, Part};

/// Bytes that are read or written in one step, if chunks are smaller.
const STEP: u64 = 1 << 20;
/// Bytes of a variable without chunks that are assembled at a time.
const SLAB: u64 = 4 << 20;
/// The most chunks of one step.
const MOST: usize = 1 << 10;

/// A step.
#[derive(Debug)]
pub enum Job {
    /// Chunks of a part are copied: where they begin in the output, and where they are stored.
    Copy {
        /// The number of the part.
        part: usize,
        /// The chunks.
        chunks: Vec<(Vec<u64>, Entry)>,
    },
    /// A box of the output is made of parts; for a chunk, including what exceeds the shape.
    Assemble {
        /// The box.
        region: Region,
        /// The numbers of the parts.
        parts: Vec<usize>,
    },
}

/// Takes steps; false stops.
type Sink<'a> = dyn FnMut(Job) -> bool + 'a;

/// Calls `sink` with all steps for a variable, until it returns false.
pub(super) fn each(variable: &Joined, parts: &[Part<'_>], sink: &mut Sink<'_>) {
    match &variable.chunk {
        Some(chunk) => chunked(variable, chunk, parts, sink),
        None => slabs(variable, parts, sink),
    }
}

/// The steps for a variable without chunks.
fn slabs(variable: &Joined, parts: &[Part<'_>], sink: &mut Sink<'_>) {
    let all = Region::new(vec![0; variable.shape.len()], variable.shape.clone());
    let most = SLAB / variable.element.size.max(1) as u64;
    for region in all.parts(most) {
        let inside = |part: &&usize| parts[**part].region.intersection(&region).is_some();
        let numbers: Vec<usize> = (0..parts.len()).collect();
        let parts: Vec<usize> = numbers.iter().filter(inside).copied().collect();
        if !parts.is_empty() && !sink(Job::Assemble { region, parts }) {
            return;
        }
    }
}

fn chunked(variable: &Joined, chunk: &[u64], parts: &[Part<'_>], sink: &mut Sink<'_>) {
    let fits: Vec<bool> = parts
        .iter()
        .map(|part| grid::fits(variable, part.own).is_some())
        .collect();
    let row = chunk[0];
    for start in (0..variable.shape[0]).step_by(row as usize) {
        let end = (start + row).min(variable.shape[0]);
        let inside = |part: &Part<'_>| part.region.start[0] < end && part.region.end(0) > start;
        // Copied, or never written where a tile has all of it.
        let mut done: HashSet<Vec<u64>> = HashSet::new();
        for (number, part) in parts.iter().enumerate().filter(|(_, part)| inside(part)) {
            if fits[number] && !copies(variable, chunk, (number, part), start, &mut done, sink) {
                return;
            }
        }
        let mut rest: BTreeMap<Vec<u64>, Vec<usize>> = BTreeMap::new();
        for (number, part) in parts.iter().enumerate().filter(|(_, part)| inside(part)) {
            positions(chunk, &part.region, start, &mut |at| {
                if !done.contains(at) {
                    rest.entry(at.to_vec()).or_default().push(number);
                }
            });
        }
        for (at, parts) in rest {
            let region = Region::new(at, chunk.to_vec());
            if !sink(Job::Assemble { region, parts }) {
                return;
            }
        }
    }
}

/// The steps that copy the chunks of a part in the row of the grid that begins at `row`.
fn copies(
    variable: &Joined,
    chunk: &[u64],
    (number, part): (usize, &Part<'_>),
    row: u64,
    done: &mut HashSet<Vec<u64>>,
    sink: &mut Sink<'_>,
) -> bool {
    if (0..chunk.len()).any(|axis| !part.region.start[axis].is_multiple_of(chunk[axis])) {
        return true;
    }
    let mut found: Vec<(Vec<u64>, Entry)> = Vec::new();
    positions(chunk, &part.region, row, &mut |at| {
        if !grid::is_exact(variable, chunk, &part.region, at) || !done.insert(at.to_vec()) {
            return;
        }
        let own = (0..chunk.len()).map(|axis| (at[axis] - part.region.start[axis]) / chunk[axis]);
        let number = own
            .zip(&part.index.counts)
            .fold(0, |all, (at, len)| all * len + at);
        if let Some(entry) = part.index.get(number) {
            found.push((at.to_vec(), *entry));
        }
    });
    // Chunks that follow each other in the file are read at once.
    found.sort_by_key(|(_, entry)| entry.address);
    let mut chunks = Vec::new();
    let mut bytes = 0;
    for one in found {
        bytes += u64::from(one.1.size);
        chunks.push(one);
        if bytes >= STEP || chunks.len() >= MOST {
            let chunks = std::mem::take(&mut chunks);
            if !sink(Job::Copy {
                part: number,
                chunks,
            }) {
                return false;
            }
            bytes = 0;
        }
    }
    chunks.is_empty()
        || sink(Job::Copy {
            part: number,
            chunks,
        })
}

/// Where the chunks begin that share elements with `region`, in the row of the grid that begins at `row`.
fn positions(chunk: &[u64], region: &Region, row: u64, f: &mut dyn FnMut(&[u64])) {
    let rank = chunk.len();
    let start: Vec<u64> = (0..rank)
        .map(|axis| {
            if axis == 0 {
                row / chunk[0]
            } else {
                region.start[axis] / chunk[axis]
            }
        })
        .collect();
    let count = (0..rank)
        .map(|axis| {
            if axis == 0 {
                1
            } else {
                region.end(axis).div_ceil(chunk[axis]) - start[axis]
            }
        })
        .collect();
    let places = Region::new(start, count);
    let mut at = places.start.clone();
    let mut first = vec![0; rank];
    loop {
        for axis in 0..rank {
            first[axis] = at[axis] * chunk[axis];
        }
        f(&first);
        if !region::advance(&mut at, &places) {
            return;
        }
    }
}
