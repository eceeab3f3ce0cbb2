//! Writes the data of the joined file.
//!
//! One thread lists steps ([`super::jobs`]), workers read, decode and encode, and the calling thread writes, because the HDF5
//! library does one thing at a time. Channels are bounded, so that memory does not grow with the data. The first error stops
//! all of them.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

use super::codec::{self, Codec};
use super::jobs::{self, Job};
use super::plan::{Joined, Plan};
use super::region::Region;
use super::source::{Part, Source, repeat};
use crate::hdf5::{self, Dataset};
use crate::{FormatError, Result};

/// Chunks closer to each other in a file than this are read with what is between them.
const GAP: u64 = 16 << 10;
/// Bytes that the buffers of all workers may have: fewer workers assemble larger chunks.
const BUFFERS: u64 = 96 << 20;

/// The most results that wait for the writer.
const QUEUE: usize = 16;

/// How much was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    /// Chunks that were copied as they are.
    pub copied: u64,
    /// Chunks that were assembled and encoded.
    pub encoded: u64,
    /// Bytes of chunks as they are stored, and of boxes of variables without chunks.
    pub bytes: u64,
}

/// What happens while the joined file is written.
#[derive(Debug, Clone, Copy)]
pub enum Progress<'a> {
    /// The HDF5 library reads from this file.
    Reading(&'a Path),
    /// This much is done.
    Done(Done),
}

/// Takes what happens, and can stop it by an error.
pub type Watch<'a> = dyn FnMut(Progress<'_>) -> Result<()> + 'a;

/// What a worker has for the writer.
enum Output {
    /// Stored chunks: where they begin, their masks, and where they are in the buffer.
    Chunks(Vec<(Vec<u64>, u32, std::ops::Range<usize>)>, Vec<u8>, bool),
    /// Elements of a box.
    Elements(Region, Vec<u8>),
}

/// A variable and its parts.
type Prepared<'a> = (usize, &'a Joined, Vec<Part<'a>>);

/// Writes all joined variables to `out`, with `threads` workers; `progress` can stop it by an error.
///
/// # Errors
/// A tile is damaged, gone or was changed; the output cannot be written.
pub(super) fn write(
    plan: &Plan,
    source: &Source<'_>,
    out: &hdf5::File,
    classic: bool,
    threads: usize,
    progress: &mut Watch<'_>,
) -> Result<Done> {
    let mut done = Done::default();
    let root = out.root()?;
    for (at, variable) in plan.variables.iter().enumerate() {
        if !variable.is_written(classic) {
            continue;
        }
        let dataset = root.dataset(&variable.path)?;
        if variable.element.flat {
            let parts = parts(source, at, variable)?;
            let prepared = (at, variable, parts);
            one(source, &prepared, &dataset, threads, &mut |more| {
                done.copied += more.copied;
                done.encoded += more.encoded;
                done.bytes += more.bytes;
                progress(Progress::Done(done))
            })?;
        } else {
            with_pointers(plan, variable, &dataset, progress)?;
            progress(Progress::Done(done))?;
        }
    }
    Ok(done)
}

/// Writes the joined variables that have elements with pointers.
pub(super) fn others(plan: &Plan, out: &hdf5::File, progress: &mut Watch<'_>) -> Result<()> {
    let root = out.root()?;
    for variable in &plan.variables {
        if !variable.element.flat && variable.is_written(false) {
            with_pointers(plan, variable, &root.dataset(&variable.path)?, progress)?;
        }
    }
    Ok(())
}

/// Counts the chunks that would be copied and encoded.
pub(super) fn count(source: &Source<'_>, at: usize, variable: &Joined) -> Result<Done> {
    let mut done = Done::default();
    let parts = parts(source, at, variable)?;
    jobs::each(variable, &parts, &mut |job| {
        match job {
            Job::Copy { chunks, .. } => {
                done.copied += chunks.len() as u64;
                done.bytes += chunks
                    .iter()
                    .map(|(_, entry)| u64::from(entry.size))
                    .sum::<u64>();
            }
            Job::Assemble { .. } => done.encoded += u64::from(variable.chunk.is_some()),
        }
        true
    });
    Ok(done)
}

fn parts<'a>(source: &Source<'a>, at: usize, variable: &Joined) -> Result<Vec<Part<'a>>> {
    let pieces = variable.pieces.iter();
    pieces
        .map(|piece| source.part(variable, at, piece))
        .collect()
}

/// Elements with pointers go through the library, box by box.
fn with_pointers(
    plan: &Plan,
    variable: &Joined,
    dataset: &Dataset,
    progress: &mut Watch<'_>,
) -> Result<()> {
    for piece in &variable.pieces {
        let path = &plan.tiles[piece.tile].path;
        progress(Progress::Reading(path))?;
        let from = hdf5::File::open(path)?;
        let from = from.root()?.dataset(&variable.path)?;
        for part in piece.region.parts(1 << 14) {
            let own = part.from_origin(&piece.region.start);
            dataset.copy_box(&from, (&own.start, &part.start), &part.count)?;
        }
    }
    Ok(())
}

fn one(
    source: &Source<'_>,
    prepared: &Prepared<'_>,
    dataset: &Dataset,
    threads: usize,
    progress: &mut dyn FnMut(Done) -> Result<()>,
) -> Result<()> {
    let (_, variable, _) = prepared;
    let size = variable.element.size as u64;
    let step = match &variable.chunk {
        Some(chunk) => chunk.iter().fold(size, |all, &len| all.saturating_mul(len)),
        None => jobs::SLAB,
    };
    // A worker has a box, its parts, and both forms of what it makes of them.
    let fit = usize::try_from(BUFFERS / step.saturating_mul(4).max(1)).unwrap_or(threads);
    let threads = threads.min(fit).max(1);
    let (to_workers, jobs) = sync_channel::<Job>(2 * threads);
    let (to_writer, outputs) = sync_channel::<Result<Output>>(threads.min(QUEUE));
    let jobs = Mutex::new(jobs);
    std::thread::scope(|scope| {
        scope.spawn(move || list(prepared, &to_workers));
        for _ in 0..threads {
            let (jobs, to_writer) = (&jobs, to_writer.clone());
            scope.spawn(move || work(source, prepared, jobs, &to_writer));
        }
        drop(to_writer);
        let written = store(prepared, dataset, &outputs, progress);
        // After an error the others end because there is no receiver, or no job.
        drop(outputs);
        if written.is_err() {
            let receiver = jobs.lock().unwrap_or_else(PoisonError::into_inner);
            while receiver.recv().is_ok() {}
        }
        written
    })
}

fn list((_, variable, parts): &Prepared<'_>, to_workers: &SyncSender<Job>) {
    jobs::each(variable, parts, &mut |job| to_workers.send(job).is_ok());
}

fn work(
    source: &Source<'_>,
    (_, variable, parts): &Prepared<'_>,
    jobs: &Mutex<Receiver<Job>>,
    to_writer: &SyncSender<Result<Output>>,
) {
    let mut codec = Codec::default();
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        let output = match job {
            Job::Copy { part, chunks } => copy(source, &parts[part], chunks).map(Some),
            Job::Assemble { region, parts: of } => {
                assemble(source, variable, parts, &of, region, &mut codec)
            }
        };
        if let Some(output) = output.transpose()
            && to_writer.send(output).is_err()
        {
            return;
        }
    }
}

/// Reads chunks as they are stored; they are in the order of their addresses.
fn copy(
    source: &Source<'_>,
    part: &Part<'_>,
    chunks: Vec<(Vec<u64>, super::source::Entry)>,
) -> Result<Output> {
    let mut buffer = Vec::new();
    let mut found = Vec::with_capacity(chunks.len());
    let mut rest = chunks.into_iter().peekable();
    while let Some((start, entry)) = rest.next() {
        // The run that begins with this chunk.
        let (first, at) = (entry.address, buffer.len());
        let mut end = first + u64::from(entry.size);
        let range = |address: u64, size: u32| {
            let from = at + (address - first) as usize;
            from..from + size as usize
        };
        found.push((start, entry.mask, range(first, entry.size)));
        while let Some((start, entry)) =
            rest.next_if(|(_, next)| next.address >= end && next.address - end <= GAP)
        {
            end = entry.address + u64::from(entry.size);
            found.push((start, entry.mask, range(entry.address, entry.size)));
        }
        buffer.resize(at + (end - first) as usize, 0);
        source.bytes(part.tile, first, &mut buffer[at..])?;
    }
    Ok(Output::Chunks(found, buffer, true))
}

/// Makes a box of the output; nothing if no tile has written any of it.
fn assemble(
    source: &Source<'_>,
    variable: &Joined,
    parts: &[Part<'_>],
    of: &[usize],
    region: Region,
    codec: &mut Codec,
) -> Result<Option<Output>> {
    let elem = variable.element.size;
    // What exceeds the shape is in the chunk, and not in a box that is written by the library.
    let all = Region::new(vec![0; variable.shape.len()], variable.shape.clone());
    let native = variable.chunk.is_some() && codec::is_native(&variable.filters);
    let region = match native {
        true => region,
        false => region.intersection(&all).unwrap_or(region),
    };
    let mut elements = vec![0; region.elements() as usize * elem];
    let complete = of
        .iter()
        .any(|&part| parts[part].region.intersection(&region).as_ref() == Some(&region));
    if !complete {
        repeat(&variable.fill, &mut elements);
    }
    let mut written = false;
    for &part in of {
        let part = &parts[part];
        let here = source.read(part, (&mut elements, &region), codec)?;
        written |= here || !part.has_fill(&variable.fill);
    }
    if !written {
        return Ok(None);
    }
    if !native {
        return Ok(Some(Output::Elements(region, elements)));
    }
    let stored = codec.encode(&elements, &variable.filters, (elem, &region.count));
    let stored = stored.map_err(|error| FormatError::Library {
        path: source.tile(0).path.clone(),
        what: variable.path.clone(),
        why: error.to_string(),
    })?;
    let range = 0..stored.len();
    Ok(Some(Output::Chunks(
        vec![(region.start, 0, range)],
        stored,
        false,
    )))
}

fn store(
    (_, variable, _): &Prepared<'_>,
    dataset: &Dataset,
    outputs: &Receiver<Result<Output>>,
    progress: &mut dyn FnMut(Done) -> Result<()>,
) -> Result<()> {
    let mut datatype = None;
    while let Ok(output) = outputs.recv() {
        let mut done = Done::default();
        match output? {
            Output::Chunks(chunks, buffer, copied) => {
                for (start, mask, range) in &chunks {
                    dataset.write_chunk(start, *mask, &buffer[range.clone()])?;
                    done.bytes += range.len() as u64;
                }
                match copied {
                    true => done.copied = chunks.len() as u64,
                    false => done.encoded = chunks.len() as u64,
                }
            }
            Output::Elements(region, elements) => {
                if datatype.is_none() {
                    datatype = Some(dataset.datatype()?);
                }
                if let Some(datatype) = &datatype {
                    dataset.write(datatype, &region.start, &region.count, &elements)?;
                }
                done.bytes = elements.len() as u64;
                done.encoded = u64::from(variable.chunk.is_some());
            }
        }
        progress(done)?;
    }
    Ok(())
}
