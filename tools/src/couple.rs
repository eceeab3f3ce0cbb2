//! `slabfs couple`: couples objects and containers, and shows who waits for what.

use std::path::{Path, PathBuf};

use anyhow::bail;
use serde_json::{Value, json};
use slabfs_model::Coupling;

use crate::failure::usage;
use crate::onmount::{self, Mount, explain};

mod status;

/// Couple programs: reads of an object wait for the writes.
///
/// Of an object that is coupled, a read through a file that is not open for writing waits until what it reads is
/// written, by whatever programs on whatever mounts. With --keep memory the data stays in memory of the mounts that
/// wrote it, and goes from there to the mounts that read it; with --keep file a reader waits until all writers have
/// closed the file. A directory's coupling is that of the files made in it later.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  slabfs couple mnt/run --timeout 10m --match 'out_%.nc'
      files out_1.nc, out_0002.nc, … that are made in mnt/run from now on
  slabfs couple mnt/field --matchers 4
  slabfs couple mnt/steps --queue 2
      two rows of the slowest axis in memory; the writer waits for the readers
  slabfs couple status mnt/field
  slabfs couple end mnt/field
      readers do not wait any more for what is not written
  slabfs couple mnt/run --off

The stream of a file ends when its last writer closes it: then what was not written reads as fill, and a read at \
the end of the file returns nothing. A program that reads may start first; if it opens files before they are made, \
mount it with `slabfs mount --await-names`. Data in memory is gone when the mount that wrote it ends. An object that \
has data when it is coupled counts as a stream that has ended. Each `couple` sets all settings: those not given get \
their defaults. docs/coupling.md has the rest."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// A file, or a directory for the files that are made in it
    #[arg(required = true)]
    path: Option<PathBuf>,
    /// Where the data is: memory (of the writers' mounts) or file (on the data servers)
    #[arg(long, value_name = "WHERE")]
    keep: Option<String>,
    /// How long a read waits for its data, as 500ms, 60s, 10m or 2h; then it fails with ETIMEDOUT (default: 60s)
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// Matchers that share the work: auto, or 1 to 64
    #[arg(long, value_name = "N")]
    matchers: Option<String>,
    /// When the stream ends: close (of the last writer) or never (only by `slabfs couple end`)
    #[arg(long, value_name = "WHEN")]
    end: Option<String>,
    /// Whether reads of the header of a NetCDF-3 file by PnetCDF are answered before its data is there: early, or wait
    /// (default). Other programs that read in small pieces would get zeros then
    #[arg(long, value_name = "WHEN")]
    header: Option<String>,
    /// Whether chunks for which the memory of a mount has no room go to the data servers: yes, or no (default): writes
    /// fail with ENOSPC then
    #[arg(long, value_name = "YES")]
    spill: Option<String>,
    /// Most steps in memory, which are rows of an array's slowest axis; or none (default). Steps that all readers have
    /// left behind are dropped
    #[arg(long, value_name = "STEPS")]
    queue: Option<String>,
    /// When a writer is that far ahead of the slowest reader: block, and it waits (default), or discard the oldest step
    #[arg(long, value_name = "HOW")]
    full: Option<String>,
    /// Of a directory: which names are coupled; % stands for digits, * for anything; may be repeated (default: all)
    #[arg(long = "match", value_name = "PATTERN")]
    names: Vec<String>,
    /// Of a directory: which names are not; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// End the coupling
    #[arg(long, conflicts_with_all = ["keep", "timeout", "matchers", "end", "header", "spill", "queue", "full", "names", "exclude"])]
    off: bool,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Status(status::Args),
    /// End the stream of a coupled file: reads of what is not written do not wait any more
    #[command(after_help = "Examples:\n  slabfs couple end mnt/field")]
    End {
        /// A coupled file
        path: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match (&args.what, &args.path) {
        (Some(What::Status(args)), _) => status::run(args),
        (Some(What::End { path }), _) => call(path, true).map(drop),
        (None, Some(path)) => couple(path, args),
        (None, None) => Err(usage("give a file or a directory")),
    }
}

fn couple(path: &Path, args: &Args) -> anyhow::Result<()> {
    let meta = std::fs::metadata(path).map_err(|error| explain(path, error))?;
    if !(meta.is_dir() || args.names.is_empty() && args.exclude.is_empty()) {
        return Err(usage("--match and --exclude are for directories"));
    }
    let text = match args.off {
        true => "off".to_owned(),
        false => text(args),
    };
    let coupling: Coupling = text.parse().map_err(|error| usage(format!("{error}")))?;
    let has_queue = coupling.on().is_some_and(|couple| couple.queue > 0);
    if has_queue && !meta.is_dir() && !has_steps(path)? {
        return Err(usage(
            "--queue is for arrays of two axes and more: a step is a row of the slowest axis",
        ));
    }
    onmount::couple(path, &coupling)
}

fn has_steps(path: &Path) -> anyhow::Result<bool> {
    let info = onmount::info(path)?;
    let dims = info["dims"].as_array();
    Ok(dims.is_some_and(|dims| dims.len() > 1))
}

/// The coupling as the attribute has it.
fn text(args: &Args) -> String {
    let lists = [args.names.join("|"), args.exclude.join("|")];
    let list =
        |text: &'static str, list: &String| (!list.is_empty()).then(|| format!("{text}={list}"));
    let given = [
        ("keep", &args.keep),
        ("timeout", &args.timeout),
        ("matchers", &args.matchers),
        ("end", &args.end),
        ("header", &args.header),
        ("spill", &args.spill),
        ("queue", &args.queue),
        ("full", &args.full),
    ];
    let given = given.into_iter();
    let words = given.filter_map(|(key, value)| Some(format!("{key}={}", value.as_ref()?)));
    let words = words.chain(list("names", &lists[0]));
    let words: Vec<String> = words.chain(list("except", &lists[1])).collect();
    match words.is_empty() {
        true => "keep=memory".to_owned(),
        false => words.join(","),
    }
}

/// What the mount answers of a coupled file, whose stream it ends first if asked to.
fn call(path: &Path, end: bool) -> anyhow::Result<Value> {
    let mount = Mount::of(path)?;
    if path.is_dir() {
        bail!(
            "{} is a directory; give a file in it (`getfattr -n user.slabfs.default.couple` shows what its files get)",
            path.display()
        );
    }
    // The mount knows the file, not a symbolic link to it.
    let path = &path.canonicalize().map_err(|error| explain(path, error))?;
    mount.call(&json!({ "op": "couple", "path": mount.inside(path)?, "end": end }))
}
