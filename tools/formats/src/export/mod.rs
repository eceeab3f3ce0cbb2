//! `slabfs export`: a container, or one array, becomes a file of another format. `tree` finds what it has.

mod stored;
mod tree;

use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, bail};
use slabfs_formats::boxes::{Block, Boxes};
use slabfs_formats::hdf5::Filter;
use slabfs_formats::sink::{Format, Sink, create};
use slabfs_formats::tree::{Group, Variable};

use crate::args::Export;
use crate::blocks::Array;
use crate::mount::Mount;
use crate::rights::Narrowed;
use crate::{progress, signals};

use stored::{ChunkReader, Next, mask};
pub(crate) use tree::Origin;

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;
/// Threads that read encoded chunks.
const READERS: usize = 3;
/// How many parts are read before they are written.
const AHEAD: usize = 4;

pub(crate) fn run(args: &Export) -> anyhow::Result<()> {
    signals::catch()?;
    let Some(format) = Format::of(&args.file) else {
        bail!(
            "{}: its ending says no format that can be written; these are .nc .h5 .hdf5 .npy .npz .zarr",
            args.file.display()
        );
    };
    let parent = args.file.parent().filter(|parent| *parent != Path::new(""));
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        bail!("{} is not a directory; create it first", parent.display());
    }
    let mount = Mount::of(&args.source)?;
    let array = !args.source.is_dir();
    let mut origin = Origin::new(&mount);
    let tree = origin.tree(&args.source, format)?;
    origin.say_bytes(&args.source);
    let _rights = Narrowed::to(origin.mode());
    let mut sink = create(&args.file, format, &tree, array)?;
    if matches!(format, Format::Npy | Format::Npz) {
        say_lost(&tree, format);
    }
    copy(&origin, &tree, &mut *sink)?;
    signals::check()?;
    Ok(sink.finish()?)
}

/// NumPy's files have no attributes.
fn say_lost(tree: &Group, format: Format) {
    let (mut lost, mut links) = (0, 0);
    tree.each(&mut |_, group| {
        let own = group.variables.iter().map(|variable| {
            let names = variable.dims.iter().any(|dim| !dim.dim.name.is_empty());
            variable.attributes.len() + usize::from(names)
        });
        lost += group.attributes.len() + own.sum::<usize>();
        links += group.links.len();
    });
    if links > 0 {
        eprintln!("slabfs: note: .npy and .npz files have no symbolic links; {links} are left out");
    }
    if lost > 0 {
        let ending = match format {
            Format::Npy => ".npy",
            _ => ".npz",
        };
        eprintln!(
            "slabfs: note: {ending} files have no attributes or names of dimensions; {lost} are left out"
        );
    }
}

/// A box of an array, and its data.
struct Part<'a> {
    group: &'a str,
    variable: &'a Variable,
    block: Block,
    bytes: Vec<u8>,
    /// The data is a chunk as it is encoded, which did not go through these filters.
    mask: Option<u32>,
}

/// In what parts an array is read.
enum Parts {
    Boxes(Boxes),
    /// Chunks, for a dataset with these filters.
    Chunks(Vec<Next>, Vec<Filter>),
}

impl Parts {
    fn of(
        origin: &Origin<'_>,
        sink: &dyn Sink,
        group: &str,
        variable: &Variable,
    ) -> anyhow::Result<Parts> {
        let cells = origin.cells(origin.place(group, &variable.name)?);
        if let Some(cells) = cells
            && let Some((shape, filters)) = sink.stored(group, variable)?
            && shape == cells.shape
        {
            return Ok(Parts::Chunks(cells.steps(), filters));
        }
        Ok(Parts::Boxes(sink.boxes(group, variable, PART)))
    }
}

/// A chunk, and the filters of a dataset that it did not go through; `None` if it cannot be one of the dataset.
fn stored(
    chunks: &mut ChunkReader,
    order: u64,
    block: &Block,
    filters: &[Filter],
) -> anyhow::Result<Option<(Vec<u8>, u32)>> {
    let chunk = chunks.read(order)?;
    Ok(chunk.and_then(|(head, bytes)| {
        let same = head.chunk.offset[..] == block.start[..];
        let mask = mask(head.codec, filters).filter(|_| same)?;
        Some((bytes, mask))
    }))
}

/// Runs `one` on a few threads: a read through the mount is mostly waiting. False if one of them is.
fn in_threads(one: &(dyn Fn() -> anyhow::Result<bool> + Sync)) -> anyhow::Result<bool> {
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..READERS).map(|_| scope.spawn(one)).collect();
        let mut all = true;
        for handle in handles {
            all &= handle
                .join()
                .ok()
                .context("a thread that reads has failed")??;
        }
        Ok(all)
    })
}

/// Writes the data of all arrays; threads read ahead.
fn copy(origin: &Origin<'_>, tree: &Group, sink: &mut dyn Sink) -> anyhow::Result<()> {
    let mut groups: Vec<(String, &Group)> = Vec::new();
    tree.each(&mut |path, group| groups.push((path.to_owned(), group)));
    let mut arrays: Vec<(&str, &Variable, Parts)> = Vec::new();
    let mut total = 0_u64;
    for (path, group) in &groups {
        for variable in &group.variables {
            let parts = Parts::of(origin, sink, path, variable)?;
            let shape = variable.shape();
            let bytes = shape
                .iter()
                .fold(variable.dtype.size(), |all, &len| all.saturating_mul(len));
            total = total.saturating_add(bytes);
            arrays.push((path, variable, parts));
        }
    }
    let bar = progress::bar("export", total);
    std::thread::scope(|scope| {
        let (send, receive) = sync_channel::<Part<'_>>(AHEAD);
        let reader = scope.spawn(move || -> anyhow::Result<()> {
            for (group, variable, parts) in arrays {
                let place = origin.place(group, &variable.name)?;
                let elem = variable.dtype.size();
                let array = Array::open(place, false, variable.shape(), elem)?;
                // There is no receiver after an error, which is then reported.
                let give = |block, bytes, mask| {
                    let part = Part {
                        group,
                        variable,
                        block,
                        bytes,
                        mask,
                    };
                    send.send(part).is_ok()
                };
                let read = |block: Block| -> anyhow::Result<bool> {
                    let mut bytes = Vec::new();
                    array.read(&block, &mut bytes)?;
                    Ok(give(block, bytes, None))
                };
                match parts {
                    Parts::Boxes(boxes) => {
                        for block in boxes {
                            signals::check()?;
                            if !read(block)? {
                                return Ok(());
                            }
                        }
                    }
                    Parts::Chunks(steps, filters) => {
                        let steps = Mutex::new(steps.into_iter());
                        let one = || {
                            let mut chunks = ChunkReader::open(place)?;
                            loop {
                                signals::check()?;
                                let next =
                                    steps.lock().unwrap_or_else(PoisonError::into_inner).next();
                                let given = match next {
                                    None => return Ok(true),
                                    Some(Next::Read(block)) => read(block)?,
                                    Some(Next::Copy(order, block)) => {
                                        match stored(&mut chunks, order, &block, &filters)
                                            .with_context(|| place.display().to_string())?
                                        {
                                            Some((bytes, mask)) => give(block, bytes, Some(mask)),
                                            None => read(block)?,
                                        }
                                    }
                                };
                                if !given {
                                    return Ok(false);
                                }
                            }
                        };
                        if !in_threads(&one)? {
                            return Ok(());
                        }
                    }
                }
            }
            Ok(())
        });
        let mut written = Ok(());
        for part in &receive {
            let (group, variable, start) = (part.group, part.variable, &part.block.start);
            written = match part.mask {
                Some(mask) => sink.write_stored(group, variable, start, (mask, &part.bytes)),
                None => sink.write(group, variable, &part.block, &part.bytes),
            };
            if written.is_err() {
                break;
            }
            bar.inc(part.block.elements() * variable.dtype.size());
        }
        drop(receive);
        bar.finish_and_clear();
        let read = reader.join();
        written?;
        read.ok().context("the thread that reads has failed")?
    })
}
