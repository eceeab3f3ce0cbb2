//! Moves the data of a file to the mount: one thread after the other takes the next box, or some stored chunks, and they write
//! at the same time. Chunks of HDF5 are stored as they are where an array has a codec for their filters, and are not decoded.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::bail;
use indicatif::ProgressBar;
use slabfs_formats::boxes::{Block, Boxes};
use slabfs_formats::collate::codec::{self, check};
use slabfs_formats::collate::{Region, copy_box};
use slabfs_formats::source::{Source, Stored};
use slabfs_formats::tree::Variable;
use slabfs_model::chunk_stream::{ChunkHead, MAX_ENCODED};

use super::jobs::Job;
use super::limits;
use super::of_source;
use super::place::Place;
use crate::args::Import;
use crate::blocks::Array;
use crate::encoded::{self, ChunkWriter, How};
use crate::{progress, signals};
use slabfs_datamodel::mapping::{Plan, Planned};

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;
/// Most threads, if their number is not given.
const THREADS: usize = 8;

/// Threads that wait for the disk at a time, while others read and write.
const WAITING: usize = 2;

/// An array to which data is written. The thread that is the last to have it stores it.
struct Target<'a> {
    planned: &'a Planned<'a>,
    array: Array,
}

/// What is left to do.
struct Queue<'a> {
    source: &'a dyn Source,
    place: &'a Place,
    arrays: std::slice::Iter<'a, Planned<'a>>,
    now: Option<(Arc<Target<'a>>, Parts)>,
    bytes: u64,
}

/// In what parts an array is moved.
enum Parts {
    /// Boxes of elements.
    Boxes(Boxes),
    /// Chunks as they are stored; those from this number on are left.
    Chunks(Arc<Stored>, usize),
}

/// The next step of a thread.
enum Step<'a> {
    Copy(Arc<Target<'a>>, Block),
    /// Some of the stored chunks.
    Chunks(Arc<Target<'a>>, Arc<Stored>, Range<usize>),
    /// Its last box was taken.
    Complete(Arc<Target<'a>>),
}

impl<'a> Queue<'a> {
    fn next(&mut self) -> anyhow::Result<Option<Step<'a>>> {
        if let Some((target, parts)) = &mut self.now {
            match parts {
                Parts::Boxes(boxes) => {
                    if let Some(block) = boxes.next() {
                        return Ok(Some(Step::Copy(target.clone(), block)));
                    }
                }
                Parts::Chunks(stored, next) => {
                    let range = some(stored, *next);
                    if !range.is_empty() {
                        *next = range.end;
                        let step = Step::Chunks(target.clone(), stored.clone(), range);
                        return Ok(Some(step));
                    }
                }
            }
            return Ok(self.now.take().map(|(target, _)| Step::Complete(target)));
        }
        let Some(planned) = self.arrays.next() else {
            return Ok(None);
        };
        let variable = of_source(self.source, planned)?;
        let stored = self.source.stored(&planned.group, variable)?;
        let parts = match stored.filter(|stored| is_worth(stored, variable)) {
            Some(mut stored) => {
                // As they lie in the file.
                stored.chunks.sort_unstable_by_key(|chunk| chunk.address);
                Parts::Chunks(Arc::new(stored), 0)
            }
            None => Parts::Boxes(self.source.boxes(&planned.group, variable, PART)?),
        };
        let path = self.place.at(planned);
        let array = Array::open(&path, true, variable.shape(), variable.dtype.size())?;
        self.now = Some((Arc::new(Target { planned, array }), parts));
        self.next()
    }
}

/// Bytes of a decoded chunk from which on it becomes one of the array, if there are many.
const LEAST_CHUNK: u64 = 16 << 10;
/// So many chunks are not many.
const FEW_CHUNKS: usize = 1000;

/// Whether chunks are stored as they are: each has a record in the metadata, so many small ones are joined to larger ones.
fn is_worth(stored: &Stored, variable: &Variable) -> bool {
    let raw = stored.shape.iter();
    let raw = raw.fold(variable.dtype.size(), |all, &len| all.saturating_mul(len));
    raw <= MAX_ENCODED as u64 && (raw >= LEAST_CHUNK || stored.chunks.len() <= FEW_CHUNKS)
}

/// The next chunks that are moved in one step.
fn some(stored: &Stored, from: usize) -> Range<usize> {
    let mut bytes = 0;
    let some = stored.chunks[from..].iter().take_while(|chunk| {
        let room = bytes < PART;
        bytes += chunk.size;
        room
    });
    from..from + some.count()
}

/// Writes the data of all arrays, and returns how many bytes these were.
pub(super) fn run(
    args: &Import,
    job: &Job,
    source: &dyn Source,
    plan: &Plan<'_>,
    place: &Place,
) -> anyhow::Result<u64> {
    let left: Vec<Planned<'_>> = plan
        .arrays
        .iter()
        .filter(|array| !place.is_done(array))
        .cloned()
        .collect();
    let total = left
        .iter()
        .map(|array| bytes_of(array))
        .fold(0, u64::saturating_add);
    let name = job.file.file_name().map(Path::new).unwrap_or(&job.file);
    let bar = progress::bar(&name.to_string_lossy(), total);
    let queue = Mutex::new(Queue {
        source,
        place,
        arrays: left.iter(),
        now: None,
        bytes: 0,
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.jobs.map_or(cores.min(THREADS) + WAITING, usize::from);
    let stop = AtomicBool::new(false);
    let results: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let start = || {
            scope.spawn(|| {
                let done = work(&queue, place, &bar, &stop);
                stop.fetch_or(done.is_err(), Ordering::Relaxed);
                done
            })
        };
        let handles: Vec<_> = (0..threads).map(|_| start()).collect();
        let join = |handle: std::thread::ScopedJoinHandle<'_, anyhow::Result<()>>| {
            handle
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("a thread has failed")))
        };
        handles.into_iter().map(join).collect()
    });
    bar.finish_and_clear();
    results.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
    Ok(lock(&queue).bytes)
}

fn bytes_of(array: &Planned<'_>) -> u64 {
    let shape = array.variable.shape();
    shape.iter().fold(array.variable.dtype.size(), |all, &len| {
        all.saturating_mul(len)
    })
}

fn lock<'a, 'q>(queue: &'a Mutex<Queue<'q>>) -> MutexGuard<'a, Queue<'q>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What one thread does.
fn work<'a>(
    queue: &Mutex<Queue<'a>>,
    place: &Place,
    bar: &ProgressBar,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        signals::check()?;
        limits::allow(limits::READING)?;
        let mut held = lock(queue);
        let Some(step) = held.next()? else {
            return Ok(());
        };
        let source = held.source;
        let target = match step {
            Step::Complete(target) => {
                drop(held);
                target
            }
            Step::Copy(target, block) => {
                let planned = target.planned;
                let variable = of_source(source, planned)?;
                match source.in_order() {
                    true => {
                        source.read(&planned.group, variable, &block, &mut bytes)?;
                        held.bytes += bytes.len() as u64;
                        drop(held);
                    }
                    false => {
                        drop(held);
                        source.read(&planned.group, variable, &block, &mut bytes)?;
                        lock(queue).bytes += bytes.len() as u64;
                    }
                }
                target.array.write(&block, &bytes)?;
                bar.inc(bytes.len() as u64);
                target
            }
            Step::Chunks(target, stored, range) => {
                drop(held);
                let moved = chunks(source, &target, &stored, range)?;
                lock(queue).bytes += moved;
                bar.inc(moved);
                target
            }
        };
        if let Some(target) = Arc::into_inner(target) {
            target.array.sync()?;
            place.note(target.planned)?;
        }
    }
    Ok(())
}

/// Copies the data of one array to the container at `place`.
pub(crate) fn copy(source: &dyn Source, planned: &Planned<'_>, place: &Path) -> anyhow::Result<()> {
    let variable = of_source(source, planned)?;
    let path = place.join(&planned.group).join(&planned.variable.name);
    let array = Array::open(&path, true, variable.shape(), variable.dtype.size())?;
    let mut bytes = Vec::new();
    for block in source.boxes(&planned.group, variable, PART)? {
        signals::check()?;
        limits::allow(limits::READING)?;
        source.read(&planned.group, variable, &block, &mut bytes)?;
        array.write(&block, &bytes)?;
    }
    Ok(())
}

/// Writes chunks as they are stored, and those that cannot be so as elements. Returns how many bytes they are decoded.
fn chunks(
    source: &dyn Source,
    target: &Target<'_>,
    stored: &Stored,
    range: Range<usize>,
) -> anyhow::Result<u64> {
    let (planned, array) = (target.planned, &target.array);
    let variable = of_source(source, planned)?;
    let elem = variable.dtype.size();
    let level = variable.deflate.map_or(1, |deflate| deflate.level.max(1));
    let raw = stored.shape.iter().product::<u64>() * elem;
    let mut writer = ChunkWriter::open(array.path())?;
    let mut codec = codec::Codec::default();
    let mut moved = 0;
    for chunk in &stored.chunks[range] {
        signals::check()?;
        limits::allow(limits::READING)?;
        let axes = chunk.offset.iter().zip(&stored.shape).zip(&stored.dims);
        let count: Vec<u64> = axes.map(|((at, len), dim)| (dim - at).min(*len)).collect();
        moved += count.iter().product::<u64>() * elem;
        let boxes = (
            (&chunk.offset[..], &stored.shape[..]),
            (&chunk.offset[..], &count[..]),
        );
        let how = How::of(&stored.filters, chunk.mask, elem, level);
        let size = u32::try_from(chunk.size)
            .ok()
            .filter(|size| *size as usize <= MAX_ENCODED);
        let damaged = |why: &str| {
            anyhow::anyhow!(
                "{} has a damaged chunk at {:?}: {why}",
                variable.name,
                chunk.offset
            )
        };
        let Some(size) = size else {
            return Err(damaged("it has more bytes than filters add"));
        };
        let read = |at: u64, out: &mut [u8]| {
            let read = stored.file.read_exact_at(out, chunk.address + at);
            read.map_err(|error| damaged(&error.to_string()))
        };
        let copied = match how {
            How::Copy(codec) if !codec.is_none() || u64::from(size) == raw => {
                let head = encoded::head(boxes.0, boxes.1, codec, size);
                push(&mut writer, &head, &mut |at, out| read(at, out))?
            }
            How::Summed(codec) if size > 4 && (!codec.is_none() || u64::from(size - 4) == raw) => {
                let mut bytes = vec![0; size as usize];
                read(0, &mut bytes)?;
                check(&mut bytes).map_err(|error| damaged(&error.to_string()))?;
                let head = encoded::head(boxes.0, boxes.1, codec, size - 4);
                push(&mut writer, &head, &mut |at, out| {
                    let from = at as usize;
                    out.copy_from_slice(&bytes[from..from + out.len()]);
                    Ok(())
                })?
            }
            _ => false,
        };
        if copied {
            continue;
        }
        let mut bytes = vec![0; size as usize];
        read(0, &mut bytes)?;
        let decoded = codec.decode(
            &bytes,
            &stored.filters,
            chunk.mask,
            (elem as usize, raw as usize),
        );
        let decoded = decoded.map_err(|error| damaged(&error.to_string()))?;
        let all = Region::new(vec![0; count.len()], stored.shape.clone());
        let shown = Region::new(vec![0; count.len()], count.clone());
        let mut bytes = vec![0; shown.elements() as usize * elem as usize];
        copy_box(
            &shown,
            elem as usize,
            (&decoded, &all),
            (&mut bytes, &shown),
        );
        let block = Block {
            start: chunk.offset.clone(),
            count,
        };
        array.write(&block, &bytes)?;
    }
    writer.finish()?;
    Ok(moved)
}

/// Writes an encoded chunk; false if the mount has no memory for it.
fn push(
    writer: &mut ChunkWriter,
    head: &ChunkHead,
    read: &mut dyn FnMut(u64, &mut [u8]) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    match head.bytes as usize > encoded::SMALL {
        true => writer.try_large(head, read),
        false => writer.push_read(head, read).map(|()| true),
    }
}

/// Compares what can be read from the mount with the file.
pub(super) fn compare(source: &dyn Source, plan: &Plan<'_>, place: &Place) -> anyhow::Result<()> {
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for planned in &plan.arrays {
        let variable = of_source(source, planned)?;
        let path = place.at(planned);
        let array = Array::open(&path, false, variable.shape(), variable.dtype.size())?;
        for block in source.boxes(&planned.group, variable, PART)? {
            signals::check()?;
            limits::allow(limits::READING)?;
            source.read(&planned.group, variable, &block, &mut wanted)?;
            array.read(&block, &mut found)?;
            if wanted != found {
                bail!(
                    "{} differs from the file in the box at {:?}",
                    array.path().display(),
                    block.start
                );
            }
        }
    }
    Ok(())
}
