//! What has to be done for a variable: chunks that are copied, and boxes that are assembled from several.
//!
//! Parts all of whose chunks are copied come first, one after the other, because that is how their files are read best. For
//! the others the grid of the output is gone through along its first axis, so that what is in memory is for one row of
//! chunks, and positions that are copied are known before the rest is assembled.

use std::collections::{BTreeMap, HashSet};

use super::grid;
use super::plan::Joined;
use super::region::{self, Region};
use super::source::{Entry, Part};

/// Bytes that are read or written in one step, if chunks are smaller.
const STEP: u64 = 1 << 20;
/// Bytes of a variable without chunks that are assembled at a time.
pub(super) const SLAB: u64 = 4 << 20;
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
    // Parts all of whose chunks are copied: one after the other, since their chunks follow each other in the file.
    let mut complete: Vec<usize> = Vec::new();
    let mut seen = HashSet::new();
    let mut rest: Vec<usize> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        match fits[number] && grid::is_exact_everywhere(variable, chunk, &part.region) {
            true if seen.insert(&part.region) => complete.push(number),
            // The same elements again.
            true => {}
            false => rest.push(number),
        }
    }
    for &number in &complete {
        let part = &parts[number];
        for start in
            (part.region.start[0]..part.region.end(0)).step_by(rows(chunk, &part.region) as usize)
        {
            let mut slab = part.region.clone();
            slab.start[0] = start;
            slab.count[0] = rows(chunk, &part.region).min(part.region.end(0) - start);
            let mut done = HashSet::new();
            if !copies(variable, chunk, (number, part), &slab, &mut done, sink) {
                return;
            }
        }
    }
    mixed(variable, chunk, parts, (&complete, &rest, &fits), sink);
}

/// How many indices of the first axis of a part make about as many chunks as a step has.
fn rows(chunk: &[u64], region: &Region) -> u64 {
    let row: u64 = (1..chunk.len())
        .map(|axis| region.count[axis].div_ceil(chunk[axis]))
        .product();
    let rows = (16 * MOST as u64).div_ceil(row.max(1));
    rows.saturating_mul(chunk[0])
}

/// The steps for parts some of whose chunks have to be assembled, a row of the grid after the other.
fn mixed(
    variable: &Joined,
    chunk: &[u64],
    parts: &[Part<'_>],
    (complete, rest, fits): (&[usize], &[usize], &[bool]),
    sink: &mut Sink<'_>,
) {
    if rest.is_empty() {
        return;
    }
    // A chunk of the output that a complete part has is done.
    let others: Vec<Vec<usize>> = rest
        .iter()
        .map(|&number| {
            let reaching =
                |other: &&usize| touches(chunk, &parts[**other].region, &parts[number].region);
            complete.iter().filter(reaching).copied().collect()
        })
        .collect();
    let row = chunk[0];
    // There is nothing before the first and after the last of them.
    let first = rest
        .iter()
        .map(|&number| parts[number].region.start[0] / row)
        .min();
    let last = rest.iter().map(|&number| parts[number].region.end(0)).max();
    let rows = first.unwrap_or(0) * row..last.unwrap_or(0);
    for start in rows.step_by(row as usize) {
        let end = (start + row).min(variable.shape[0]);
        let inside = |part: &Part<'_>| part.region.start[0] < end && part.region.end(0) > start;
        // Copied, or never written where a tile has all of it.
        let mut done: HashSet<Vec<u64>> = HashSet::new();
        for &number in rest
            .iter()
            .filter(|&&number| fits[number] && inside(&parts[number]))
        {
            let mut slab = parts[number].region.clone();
            slab.start[0] = slab.start[0].max(start);
            slab.count[0] = parts[number].region.end(0).min(end) - slab.start[0];
            if !copies(
                variable,
                chunk,
                (number, &parts[number]),
                &slab,
                &mut done,
                sink,
            ) {
                return;
            }
        }
        let mut assembled: BTreeMap<Vec<u64>, Vec<usize>> = BTreeMap::new();
        for (at, &number) in rest
            .iter()
            .enumerate()
            .filter(|(_, number)| inside(&parts[**number]))
        {
            let mut slab = parts[number].region.clone();
            slab.start[0] = slab.start[0].max(start);
            slab.count[0] = parts[number].region.end(0).min(end) - slab.start[0];
            positions(chunk, &slab, &mut |place| {
                let has = |&&other: &&usize| {
                    let region = &parts[other].region;
                    (0..chunk.len()).all(|axis| {
                        region.start[axis] <= place[axis] && place[axis] < region.end(axis)
                    })
                };
                if !done.contains(place) && !others[at].iter().any(|other| has(&other)) {
                    assembled.entry(place.to_vec()).or_default().push(number);
                }
            });
        }
        for (at, parts) in assembled {
            let region = Region::new(at, chunk.to_vec());
            if !sink(Job::Assemble { region, parts }) {
                return;
            }
        }
    }
}

/// Whether a chunk of the grid has elements of both.
fn touches(chunk: &[u64], one: &Region, other: &Region) -> bool {
    (0..chunk.len()).all(|axis| {
        let first = |region: &Region| region.start[axis] / chunk[axis];
        let end = |region: &Region| region.end(axis).div_ceil(chunk[axis]);
        first(one) < end(other) && first(other) < end(one)
    })
}

/// The steps that copy the chunks of a part in `slab`.
fn copies(
    variable: &Joined,
    chunk: &[u64],
    (number, part): (usize, &Part<'_>),
    slab: &Region,
    done: &mut HashSet<Vec<u64>>,
    sink: &mut Sink<'_>,
) -> bool {
    if (0..chunk.len()).any(|axis| !part.region.start[axis].is_multiple_of(chunk[axis])) {
        return true;
    }
    let mut found: Vec<(Vec<u64>, Entry)> = Vec::new();
    positions(chunk, slab, &mut |at| {
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

/// Where the chunks begin that share elements with `region`.
fn positions(chunk: &[u64], region: &Region, f: &mut dyn FnMut(&[u64])) {
    let rank = chunk.len();
    let start: Vec<u64> = (0..rank)
        .map(|axis| region.start[axis] / chunk[axis])
        .collect();
    let count = (0..rank)
        .map(|axis| region.end(axis).div_ceil(chunk[axis]) - start[axis])
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
