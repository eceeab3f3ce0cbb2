//! `slabfs untag`: removes tags.

use std::path::{Path, PathBuf};

use anyhow::bail;
use serde_json::Map;
use slabfs_model::bare_key;

use crate::failure::usage;
use crate::onmount::Refused;
use crate::{tag, tags};

/// Remove tags of a file or directory, in one transaction.
///
/// Those that exist are removed, also if others do not: these are named, and the status is 1.
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
    let mut missing = Vec::new();
    for path in &paths {
        let there = match tags::of(path, &keys) {
            // Who may write an object need not be allowed to read its tags.
            Err(error) if denied(&error) => continue,
            there => there?,
        };
        for key in keys.iter().filter(|key| !there.contains_key(*key)) {
            if let Some((bare, _)) = key.split_once('=') {
                let path = path.display();
                return Err(usage(format!(
                    "{path} has no tag {key}; a tag is removed by its key, without a value: slabfs untag {path} {bare}"
                )));
            }
            missing.push(format!("{} has no tag {key}", path.display()));
        }
    }
    tag::change(&paths, &Map::new(), &keys)?;
    if !missing.is_empty() {
        bail!("{}", missing.join("; "));
    }
    Ok(())
}

fn denied(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| refused.errno == libc::EACCES)
}
