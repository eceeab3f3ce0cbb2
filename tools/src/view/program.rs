//! Runs a program on a part of a file.
//!
//! The program gets an open file as its standard input (or output), which contains the selected bytes, packed,
//! and nothing else. For a selection this is the file of the selection, with its own size and end. For a batch,
//! and where that file cannot be opened (through a symbolic link, or because its name is too long), it is the
//! object with a view set on it, by the `ioctl` that `slabfs_ioctl.h` describes.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{anyhow, bail};
use slabfs_fs::view::pattern::{PART, Pattern, Unit};
use slabfs_model::batch::Batch;
use slabfs_model::{Hyperslab, Selection};

use super::{Args, batch};
use crate::failure;
use crate::onmount::{self, Mount};

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (path, pattern) = match &args.batch {
        Some(file) => (unselected(&args.path)?, batch::read(file)?),
        None => {
            let (path, dims, slab) = of_selection(&args.path, None)?;
            (path, pattern(&dims, &slab))
        }
    };
    let mut how = OpenOptions::new();
    how.read(!args.write).write(args.write);
    let selected = args.batch.is_none() && args.path != path;
    let file = match selected {
        true => of_its_own(&how, &args.path, &path),
        false => None,
    };
    let file = match file {
        Some(file) => file,
        None => viewed(&how, &path, &pattern)?,
    };
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    match args.write {
        true => command.stdout(Stdio::from(file)),
        false => command.stdin(Stdio::from(file)),
    };
    // The exit status is the program's; if it does not start, that of `env` and shells.
    let error = command.exec();
    let status = match error.kind() {
        std::io::ErrorKind::NotFound => failure::NO_PROGRAM,
        _ => failure::NOT_STARTED,
    };
    let text = format!("cannot run {:?}: {error}", args.command[0]);
    Err(failure::ending(status, text))
}

/// Opens the file of a selection, if it exists on the same filesystem: another one may have a file of that
/// name.
fn of_its_own(how: &OpenOptions, selection: &Path, object: &Path) -> Option<File> {
    let device = std::fs::metadata(object).ok()?.dev();
    if std::fs::metadata(selection).ok()?.dev() != device {
        return None;
    }
    let file = how.open(selection).ok()?;
    (file.metadata().ok()?.dev() == device).then_some(file)
}

/// Opens an object and sets a view on it.
pub(super) fn viewed(how: &OpenOptions, path: &Path, pattern: &Pattern) -> anyhow::Result<File> {
    let display = path.display();
    let open = |how: &OpenOptions| {
        how.open(path)
            .map_err(|error| onmount::explain(path, error))
    };
    let mut file = open(how)?;
    let mut set = set_view(&file, pattern);
    if matches!(&set, Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP)) {
        // It reads through the page cache, which has the bytes of the object.
        file = open(how.clone().custom_flags(libc::O_DIRECT))?;
        set = set_view(&file, pattern);
    }
    set.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOTTY) => anyhow!("{display} is not a file on a slabfs mount"),
        Some(libc::EINVAL) => anyhow!(
            "the batch cannot be a view of {display}: offsets below 0, sums beyond 2^63-1 bytes, or too many elements; the log of the mount says which"
        ),
        _ => anyhow!(error).context(format!("cannot set a view on {display}")),
    })?;
    Ok(file)
}

/// Checks that a path names an object itself, because a batch counts bytes of it.
fn unselected(path: &Path) -> anyhow::Result<PathBuf> {
    if let Some((object, _)) = onmount::selected(path) {
        return Err(failure::usage(format!(
            "a view by --batch is set on the object itself, not on a selection; give {}",
            object.display()
        )));
    }
    Ok(path.to_owned())
}

/// The object of `object@[...]` or of a path and a selection of its own, its dims, and what is selected.
pub(super) fn of_selection(
    path: &Path,
    selection: Option<&Selection>,
) -> anyhow::Result<(PathBuf, Vec<u64>, Hyperslab)> {
    let (object, selection) = match (onmount::selected(path), selection) {
        (None, None) => (path.to_owned(), Selection::all()),
        (None, Some(selection)) => (path.to_owned(), selection.clone()),
        (Some((object, selected)), None) => (object, selected.selection()?),
        (Some(_), Some(_)) => {
            return Err(failure::usage(format!(
                "{} is a selection already; give one",
                path.display()
            )));
        }
    };
    Mount::of(&object)?;
    let info = onmount::info(&object)?;
    let dims = info["dims"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let dims: Option<Vec<u64>> = dims.iter().map(serde_json::Value::as_u64).collect();
    let Some(dims) = dims else {
        bail!("{} has no dims to select of", object.display());
    };
    let slab = selection.resolve(&dims)?;
    Ok((object, dims, slab))
}

/// The selected elements as the view of an open file.
pub(super) fn pattern(dims: &[u64], slab: &Hyperslab) -> Pattern {
    Pattern::new(&Batch::of_slab(dims, slab), Unit::Elements)
}

/// Sets the view of an open file, and `O_DIRECT`, so that copies made by the kernel use the view and not its
/// page cache, which holds the object's pages.
fn set_view(file: &File, pattern: &Pattern) -> std::io::Result<()> {
    const SET_VIEW: libc::Ioctl =
        (1 << 30 | (PART as u64) << 16 | (b's' as u64) << 8 | 2) as libc::Ioctl;
    for part in pattern.parts() {
        // SAFETY: the descriptor is open, and the kernel reads exactly the `PART` bytes of the part.
        if unsafe { libc::ioctl(file.as_raw_fd(), SET_VIEW, part.as_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    // SAFETY: the descriptor is open; no memory is passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    // SAFETY: as above.
    let set = |flags: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    if flags < 0 || set(flags | libc::O_DIRECT) != 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}
