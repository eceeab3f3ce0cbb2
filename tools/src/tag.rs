//! `slabfs tag`: sets tags of objects and directories.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::create::assigned;
use crate::onmount::Mount;

/// Set tags of a file or directory, any number of them in one transaction.
///
/// A tag is a key and a typed value. `3` and `-4` are integers, `2.5`, `1e30` and `inf` floats, `[1, 2.5, "a"]`
/// is a list, anything else text. A number in another form, such as `007`, `1.10` or `1e3`, is stored in that
/// form and is found as text and as a number. `key:type=value` gives the type: int, float, text, bytes (in
/// hexadecimal), list, or auto (none: found as text, and as a number if it parses as one). Tags can be searched
/// as soon as they are set (`slabfs find`), and are extended attributes (`getfattr -n user.KEY`).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs tag mnt/run1/temp project=climate step=3 dt=0.5
  slabfs tag mnt/run1 'axes=[\"lat\", \"lon\"]' id:text=007
  slabfs tag mnt/run1/temp checked=yes --to mnt/run1/wind mnt/run1/rain
      the same tags on several objects, all of them or none
  slabfs tags mnt/run1/temp                 shows them
  slabfs untag mnt/run1/temp step           removes some")]
pub(crate) struct Args {
    /// A file or directory on a slabfs mount
    path: PathBuf,
    /// Keys and values
    #[arg(required = true, value_name = "KEY=VALUE")]
    tags: Vec<String>,
    /// Further files and directories of the same mount that get these tags
    #[arg(long, value_name = "PATH", num_args = 1..)]
    to: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    change(&args.path, &args.to, &assigned(&args.tags)?, &[])
}

/// Sets and removes the tags of several paths of one mount in one transaction.
pub(crate) fn change(
    path: &Path,
    more: &[PathBuf],
    set: &Map<String, Value>,
    remove: &[String],
) -> anyhow::Result<()> {
    let mount = Mount::of(path)?;
    let mut changes = Vec::with_capacity(1 + more.len());
    for path in std::iter::once(path).chain(more.iter().map(PathBuf::as_path)) {
        std::fs::symlink_metadata(path).map_err(|error| crate::onmount::explain(path, error))?;
        let path = mount.inside(path)?;
        changes.push(json!({ "path": path, "set": set, "remove": remove }));
    }
    mount.call(&json!({ "op": "tag", "changes": changes }))?;
    Ok(())
}
