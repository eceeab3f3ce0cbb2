//! `slabfs collate`: tiles become one file, or one container on a mount (`container`).
//!
//! This process lists the inputs, and starts itself again as a worker (`worker`) that reads them and writes the output in a
//! hidden directory next to its place. It waits for the worker (`supervise`), renames the output when it is complete, and
//! removes the directory in any other case: also when the HDF5 library crashes on a damaged file, or a signal comes.

mod container;
mod inputs;
mod message;
mod supervise;
mod worker;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use serde_json::json;

use crate::args::Collate;
use crate::mount::Mount;

/// The name of the output in the directory where it is written.
const UNFINISHED: &str = "unfinished.nc";
/// The name of the file with what is not joined, where the output is a container.
const SKELETON: &str = "skeleton.nc";

pub(crate) fn run(args: &Collate, verbose: bool, quiet: bool) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &args.worker {
        return worker::run(args, dir, verbose);
    }
    let inputs = inputs::list(&args.inputs, args.files_from.as_deref())?;
    let out = &args.output;
    let parent = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        bail!("{} is not a directory; create it first", parent.display());
    }
    let container = is_container(out, parent);
    let encodes =
        args.deflate.is_some() || args.shuffle || args.no_shuffle || args.chunks.is_some();
    if container && encodes {
        bail!(
            "{} is a container, which has the chunks of the inputs as they are: -d, --shuffle, --no-shuffle and --chunks are for files",
            out.display()
        );
    }
    if out.is_dir() && !container {
        bail!("{} is a directory; give the name of a file", out.display());
    }
    if !args.force && !args.dry_run && out.symlink_metadata().is_ok() {
        bail!(
            "{} exists already; give another name, or -f to replace it",
            out.display()
        );
    }
    if container && args.force && out.symlink_metadata().is_ok() {
        check_replaced(out)?;
    }
    if let Some(same) = inputs.iter().find(|input| is_same(input, out)) {
        bail!("{} is an input, and cannot be the output", same.display());
    }
    let dir = tempfile::Builder::new()
        .prefix(".slabfs-collate-")
        .tempdir_in(parent)
        .with_context(|| format!("creating a directory in {}", parent.display()))?;
    let worker = supervise::Worker {
        args,
        dir: dir.path(),
        container,
        verbose,
    };
    let code = supervise::run(&worker, &inputs, quiet)?;
    if code != ExitCode::SUCCESS || args.dry_run {
        return Ok(code);
    }
    let unfinished = dir.path().join(UNFINISHED);
    if args.remove {
        let stored = match container {
            true => Mount::of(parent)?.call(&json!({ "op": "sync" })).map(drop),
            false => File::open(&unfinished)
                .and_then(|file| file.sync_all())
                .map_err(Into::into),
        };
        stored.with_context(|| format!("storing {}", out.display()))?;
    }
    let renamed = match args.force {
        true if container && out.symlink_metadata().is_ok() => exchange(&unfinished, out),
        true => std::fs::rename(&unfinished, out),
        false => place_new(&unfinished, out),
    };
    renamed.with_context(|| format!("renaming the complete output to {}", out.display()))?;
    if args.remove && !container {
        let synced = File::open(parent).and_then(|dir| dir.sync_all());
        synced.with_context(|| format!("storing the name of {}", out.display()))?;
    }
    if args.remove {
        remove(&inputs)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether the output is a container on a mount: what has not the name of a file.
fn is_container(out: &Path, parent: &Path) -> bool {
    let endings = ["nc", "nc4", "h5"];
    let named = out
        .extension()
        .is_some_and(|end| endings.iter().any(|ending| end == *ending));
    !named && Mount::of(parent).is_ok()
}

/// Fails if what would be replaced is not a container that was made of a file: a folder of runs is not lost by a wrong name.
fn check_replaced(out: &Path) -> anyhow::Result<()> {
    let is_made = out.is_dir() && {
        let mount = Mount::of(out)?;
        let tags = mount.tags(&mount.inside(out)?)?;
        tags.contains_key(slabfs_datamodel::mapping::DIMS)
    };
    match is_made {
        true => Ok(()),
        false => bail!(
            "{} is not a container that was joined or imported; remove it first, or give another name",
            out.display()
        ),
    }
}

/// Puts the complete container in the place of another one, which is removed with the hidden directory.
fn exchange(from: &Path, to: &Path) -> std::io::Result<()> {
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)?)
}

fn is_same(input: &Path, out: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |path: &Path| path.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    inode(out).is_some_and(|of| inode(input) == Some(of))
}

/// Gives the complete file its name, unless there is a file of that name.
fn place_new(from: &Path, to: &Path) -> std::io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some filesystems cannot do this in one step.
        Err(Errno::INVAL) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        renamed => Ok(renamed?),
    }
}

fn remove(inputs: &[PathBuf]) -> anyhow::Result<()> {
    for input in inputs {
        let removed = std::fs::remove_file(input);
        removed.with_context(|| format!("the output is complete; removing {}", input.display()))?;
    }
    Ok(())
}
