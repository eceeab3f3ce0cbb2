//! `slabfs view`: runs a program on a part of a file.
//!
//! The program gets an open file as its standard input (or output), which contains the selected bytes, packed,
//! and nothing else. For a selection this is the file of the selection, with its own size and end. For a batch,
//! and where that file cannot be opened (through a symbolic link, or because its name is too long), it is the
//! object with a view set on it, by the `ioctl` that `slabfs_ioctl.h` describes.

mod batch;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{anyhow, bail};
use slabfs_fs::view::pattern::{PART, Pattern, Unit};
use slabfs_model::Selection;
use slabfs_model::batch::Batch;

use crate::failure;
use crate::onmount::{self, Mount};

/// Run a program that reads, or writes, only a part of a file.
///
/// The program's standard input is the file, from which it reads the selected elements one after the other;
/// with --write its standard output writes them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs view 'mnt/temp@[::4, 10:16]' -- sha256sum
  slabfs view --write 'mnt/temp@[0]' -- cat row.bin
  echo '[{\"offset\": 4, \"stride\": 64, \"count\": 2, \"size\": 8}]' > pattern.json
  slabfs view --batch pattern.json mnt/temp -- od -t f4

A selection names a box of an array, as a file: PATH@[A,B,…], slowest axis first, each axis one of
  3        that index             2:5      2, 3 and 4
  -1       the last one           :5, 2:   up to 4, from 2 on; -3: is the last three
  :        all of it              0:10:2   every other one
  ...      all axes that are not named; those behind the last one need not be
Quote it in a shell; read it with cat, write it with cp.

A batch is a JSON list of {\"offset\": 0, \"stride\": 64, \"count\": 100, \"size\": 8}, in bytes; \"of\": [...] in \
place of \"size\" repeats a list, \"absolute\": true counts its offset from the start of the file and not from the \
element before it. Everything but \"size\" or \"of\" may be left out.

For a selection the program has the file of that selection, with a size of its own. With --batch it has the object, \
and the view belongs to the open file: a program that opens /dev/stdin or /dev/stdout again has the entire object, and \
may truncate it (`cp row.bin /dev/stdout`); mmap also shows the object. Reading ends where the view ends, but `stat` \
and a seek to the end return the size of the object, so programs that query it first (numpy.fromfile, `tail -c`, \
`wc -c`) need a pipe: run `sh -c 'cat | ...'`. Copies made by the kernel (`cat` into a file, `sendfile`) are of the view.")]
pub(crate) struct Args {
    /// The program writes: the file is its standard output
    #[arg(long)]
    write: bool,
    /// JSON file with the batch of byte ranges
    #[arg(long, value_name = "FILE")]
    batch: Option<PathBuf>,
    /// A file on a slabfs mount, or a selection of one
    path: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (path, pattern) = match &args.batch {
        Some(file) => (unselected(&args.path)?, batch::read(file)?),
        None => of_selection(&args.path)?,
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
fn viewed(how: &OpenOptions, path: &Path, pattern: &Pattern) -> anyhow::Result<File> {
    let display = path.display();
    let file = how
        .open(path)
        .map_err(|error| onmount::explain(path, error))?;
    set_view(&file, pattern).map_err(|error| match error.raw_os_error() {
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

/// The object of `object@[...]`, and the pattern of the selection.
fn of_selection(path: &Path) -> anyhow::Result<(PathBuf, Pattern)> {
    let (object, selection) = match onmount::selected(path) {
        None => (path.to_owned(), Selection::all()),
        Some((object, selected)) => (object, selected.selection()?),
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
    let pattern = Pattern::new(&Batch::of_slab(&dims, &slab), Unit::Elements);
    Ok((object, pattern))
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
