//! The process that reads the tiles and writes the output.
//!
//! Tiles can be damaged, and the HDF5 library is not made for that: this process has limits for its memory, writes no core
//! file, and ends with the one that started it.

use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use slabfs_formats::collate::{self, Chunks, Done, Joined, Plan, Progress, Tile, Wish, shown};

use super::message::Message;
use super::{UNFINISHED, container};
use crate::args::Collate;

/// Bytes of memory that the process may have, and for each thread in addition.
const MEMORY: u64 = 4 << 30;
const THREAD: u64 = 64 << 20;

/// Joins the files whose names are on standard input, each with a zero byte after it. The result is in the last message.
pub(super) fn run(args: &Collate, dir: &Path, verbose: bool) -> anyhow::Result<ExitCode> {
    let threads = match args.jobs {
        Some(jobs) => jobs as usize,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    let last = match limit(threads).and_then(|()| join(args, dir, threads, verbose)) {
        Ok(()) => Message::Complete,
        Err(error) => Message::Failed(format!("{error:#}")),
    };
    last.send()?;
    Ok(ExitCode::SUCCESS)
}

/// Sets the limits of this process.
fn limit(threads: usize) -> anyhow::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, files, files)?;
    // A write beyond the largest size of a file is then an error of the write.
    SigSet::from_iter([Signal::SIGXFSZ]).thread_block()?;
    let memory = MEMORY + THREAD * threads as u64;
    let (now, most) = getrlimit(Resource::RLIMIT_DATA)?;
    setrlimit(Resource::RLIMIT_DATA, memory.min(now), memory.min(most))?;
    Ok(())
}

fn join(args: &Collate, dir: &Path, threads: usize, verbose: bool) -> anyhow::Result<()> {
    let mut names = Vec::new();
    std::io::stdin().read_to_end(&mut names)?;
    let inputs = names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty());
    let inputs: Vec<PathBuf> = inputs
        .map(|name| std::ffi::OsString::from_vec(name.to_vec()).into())
        .collect();
    let wish = wish(args)?;
    let mut tiles: Vec<Tile> = Vec::with_capacity(inputs.len());
    for input in inputs {
        Message::Reading(input.clone()).send()?;
        let mut tile = collate::inspect(&input)?;
        if let Some(first) = tiles.first() {
            tile.share(first);
        }
        tiles.push(tile);
    }
    Message::Comparing.send()?;
    let plan = collate::plan(tiles, &wish)?;
    if let Some(line) = &plan.missing {
        if args.remove {
            bail!(
                "{line}. Tiles that come later could not be joined if the inputs were removed: leave out -r, or give all tiles"
            );
        }
        Message::Note(format!("note: {line}")).send()?;
    }
    unknown_dims(&plan, &wish)?;
    for line in collate::check(&plan, threads)? {
        Message::Note(format!("note: {line}")).send()?;
    }
    let show = if args.container {
        container::show
    } else {
        show
    };
    if args.dry_run {
        return show(&plan);
    }
    if verbose {
        show(&plan)?;
    }
    if args.container {
        let done = container::write(&plan, dir, &args.output, threads, &mut progress())?;
        if verbose {
            Message::Said(done.to_string()).send()?;
        }
        return Ok(());
    }
    let place = (dir.join(UNFINISHED), args.output.as_path());
    let done = collate::write(&plan, (&place.0, place.1), threads, &mut progress())?;
    if verbose {
        Message::Said(totals(done)).send()?;
    }
    Ok(())
}

/// Says from which file the library reads, and when it does not any more.
fn progress() -> impl FnMut(Progress<'_>) -> slabfs_formats::Result<()> {
    let mut reading = false;
    move |progress| {
        let message = match progress {
            Progress::Reading(path) => Some(Message::Copying(path.to_owned())),
            Progress::Done(_) => reading.then_some(Message::Writing),
        };
        reading = matches!(progress, Progress::Reading(_));
        // If nothing can be sent, the process that waited is gone, and this one ends with it.
        let sent = message.as_ref().map_or(Ok(()), Message::send);
        sent.map_err(|error| slabfs_formats::FormatError::Library {
            path: "standard output".into(),
            what: "sending a message".to_owned(),
            why: error.to_string(),
        })
    }
}

/// Says what is joined.
pub(super) fn show_dims(plan: &Plan) -> anyhow::Result<()> {
    let dims = plan
        .dims
        .iter()
        .map(|dim| format!("{} {}", shown(&dim.path), dim.len));
    let dims = dims.collect::<Vec<_>>().join(", ");
    Message::Said(format!(
        "{} files, decomposed along {dims}",
        plan.tiles.len()
    ))
    .send()?;
    Ok(())
}

/// Says what would be done.
fn show(plan: &Plan) -> anyhow::Result<()> {
    show_dims(plan)?;
    let mut all = Done::default();
    for (variable, done) in collate::count(plan)? {
        all.copied += done.copied;
        all.encoded += done.encoded;
        all.bytes += done.bytes;
        Message::Said(described(variable, done)).send()?;
    }
    show_others(plan)?;
    Message::Said(format!(
        "chunks: {} copied, {} encoded",
        all.copied, all.encoded
    ))
    .send()?;
    Ok(())
}

/// Says what comes from the first tile.
pub(super) fn show_others(plan: &Plan) -> anyhow::Result<()> {
    let others = plan.variables.iter();
    for variable in others.filter(|one| !one.decomposed && !one.bare_dim) {
        Message::Said(format!(
            "{}: as in {}",
            shown(&variable.path),
            plan.tiles[0].path.display()
        ))
        .send()?;
    }
    Ok(())
}

fn described(variable: &Joined, done: Done) -> String {
    let parts = variable.pieces.len();
    match &variable.chunk {
        Some(chunk) => format!(
            "{} {:?} from {parts} files, chunks {chunk:?}: {} copied, {} encoded",
            shown(&variable.path),
            variable.shape,
            done.copied,
            done.encoded
        ),
        None => format!(
            "{} {:?} from {parts} files, in one piece",
            shown(&variable.path),
            variable.shape
        ),
    }
}

fn totals(done: Done) -> String {
    format!(
        "{} chunks copied, {} encoded, {} bytes",
        done.copied, done.encoded, done.bytes
    )
}

fn wish(args: &Collate) -> anyhow::Result<Wish> {
    let shuffle = match (args.shuffle, args.no_shuffle) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    Ok(Wish {
        chunks: args.chunks.as_deref().map_or(Ok(Chunks::Tiles), chunks)?,
        deflate: args.deflate,
        shuffle,
    })
}

/// Fails if chunks are wanted along a dimension that no variable has, or along a number of axes that no variable has.
fn unknown_dims(plan: &Plan, wish: &Wish) -> anyhow::Result<()> {
    let decomposed = || plan.variables.iter().filter(|one| one.decomposed);
    match &wish.chunks {
        Chunks::Tiles => Ok(()),
        Chunks::Axes(lens) => match decomposed().any(|one| one.shape.len() == lens.len()) {
            true => Ok(()),
            false => bail!(
                "--chunks has {} lengths, and no decomposed variable has {} dimensions",
                lens.len(),
                lens.len()
            ),
        },
        Chunks::Named(named) => {
            let is_dim = |name: &str| {
                let mut dims = decomposed().flat_map(|one| &one.dims);
                dims.any(|path| shown(path) == name || path.rsplit('/').next() == Some(name))
            };
            match named.iter().find(|(name, _)| !is_dim(name)) {
                None => Ok(()),
                Some((name, _)) => bail!("--chunks: no decomposed variable has a dimension {name}"),
            }
        }
    }
}

/// A shape of chunks: lengths, or lengths of dimensions by name.
pub(super) fn chunks(text: &str) -> anyhow::Result<Chunks> {
    let len = |text: &str| match text.trim().parse() {
        Ok(len @ 1..=0xffff_ffff) => Ok(len),
        _ => {
            bail!("{text:?} is no length of a chunk; give one from 1 on, as in --chunks 1,270,360")
        }
    };
    let parts: Vec<&str> = text.split(',').collect();
    if parts.iter().all(|part| !part.contains('=')) {
        let lens = parts.into_iter().map(len).collect::<anyhow::Result<_>>();
        return Ok(Chunks::Axes(lens?));
    }
    let named = parts.into_iter().map(|part| {
        let (name, text) = part
            .rsplit_once('=')
            .with_context(|| format!("{part:?} is not NAME=LENGTH"))?;
        Ok((name.trim().to_owned(), len(text)?))
    });
    Ok(Chunks::Named(named.collect::<anyhow::Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_parsed() {
        assert_eq!(chunks("1,2").expect("a shape"), Chunks::Axes(vec![1, 2]));
        let named = Chunks::Named(vec![("lat".to_owned(), 2), ("x=y".to_owned(), 3)]);
        assert_eq!(chunks("lat=2, x=y=3").expect("a shape"), named);
        for wrong in ["", "0", "1,,2", "lat=", "1,lat=2", "-1", "5000000000"] {
            assert!(chunks(wrong).is_err(), "{wrong}");
        }
    }
}
