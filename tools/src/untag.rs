//! `slabfs untag`: removes tags.

use std::path::{Path, PathBuf};

use serde_json::Map;
use slabfs_model::bare_key;

use crate::tag;

/// Remove tags of a file or directory, in one transaction.
///
/// A tag that does not exist is not an error.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs untag mnt/run1/temp step dt
  slabfs untag mnt/run1/temp checked --from mnt/run1/wind mnt/run1/rain")]
pub(crate) struct Args {
    /// A file or directory on a slabfs mount
    path: PathBuf,
    /// Keys
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<String>,
    /// Further files and directories of the same mount from which to remove these tags
    #[arg(long, value_name = "PATH", num_args = 1..)]
    from: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let keys: Vec<String> = args
        .keys
        .iter()
        .map(|key| bare_key(key).to_owned())
        .collect();
    let paths: Vec<&Path> = std::iter::once(&args.path)
        .chain(&args.from)
        .map(PathBuf::as_path)
        .collect();
    tag::change(&paths, &Map::new(), &keys)
}
