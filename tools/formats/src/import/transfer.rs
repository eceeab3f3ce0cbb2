//! Moves the data of a file to the mount: one thread after the other takes the next box, and they write at the same time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::bail;
use indicatif::ProgressBar;
use slabfs_formats::boxes::{Block, Boxes};
use slabfs_formats::source::Source;

use super::jobs::Job;
use super::of_source;
use super::place::Place;
use crate::args::Import;
use crate::blocks::Array;
use crate::mapping::{Plan, Planned};
use crate::{progress, signals};

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;
/// Most threads, if their number is not given.
const THREADS: usize = 8;

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
    now: Option<(Arc<Target<'a>>, Boxes)>,
    bytes: u64,
}

/// The next step of a thread.
enum Step<'a> {
    Copy(Arc<Target<'a>>, Block),
    /// Its last box was taken.
    Complete(Arc<Target<'a>>),
}

impl<'a> Queue<'a> {
    fn next(&mut self) -> anyhow::Result<Option<Step<'a>>> {
        if let Some((target, boxes)) = &mut self.now {
            if let Some(block) = boxes.next() {
                return Ok(Some(Step::Copy(target.clone(), block)));
            }
            return Ok(self.now.take().map(|(target, _)| Step::Complete(target)));
        }
        let Some(planned) = self.arrays.next() else {
            return Ok(None);
        };
        let variable = of_source(self.source, planned)?;
        let boxes = self.source.boxes(&planned.group, variable, PART)?;
        let path = self.place.at(planned);
        let array = Array::open(&path, true, variable.shape(), variable.dtype.size())?;
        self.now = Some((Arc::new(Target { planned, array }), boxes));
        self.next()
    }
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
    let threads = args.jobs.map_or(cores.min(THREADS), usize::from);
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
        };
        if let Some(target) = Arc::into_inner(target) {
            target.array.sync()?;
            place.note(target.planned)?;
        }
    }
    Ok(())
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
