//! `slabfs tag`: sets tags of objects and directories.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::create::assigned;
use crate::failure::usage;
use crate::onmount::Mount;

/// Set tags of a file or directory, in one transaction.
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
  slabfs tag mnt/run1/temp mnt/run1/wind checked=yes
      the same tags on several objects, all of them or none

Next: `slabfs tags mnt/run1/temp` shows them, `slabfs find 'step < 10' --in mnt` finds by them, `slabfs untag \
mnt/run1/temp step` removes some.")]
pub(crate) struct Args {
    /// Files and directories of one slabfs mount, and then the tags
    #[arg(required = true, num_args = 2.., value_names = ["PATH", "KEY=VALUE"])]
    items: Vec<OsString>,
    /// Further files and directories of the same mount that get these tags
    #[arg(long, value_name = "PATH", num_args = 1..)]
    to: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let (paths, tags) = parted(&args.items)?;
    let paths = paths.iter().map(Path::new);
    let paths: Vec<&Path> = paths.chain(args.to.iter().map(PathBuf::as_path)).collect();
    change(&paths, &assigned(&tags)?, &[])
}

/// Splits paths from tags. The first item is a path, and so is each that follows until the first with an equals sign;
/// one with a slash before its equals sign is a path if it exists.
fn parted(items: &[OsString]) -> anyhow::Result<(&[OsString], Vec<String>)> {
    let is_path = |item: &OsString| {
        let bytes = item.as_bytes();
        let Some(equals) = bytes.iter().position(|byte| *byte == b'=') else {
            return true;
        };
        bytes[..equals].contains(&b'/') && Path::new(item).symlink_metadata().is_ok()
    };
    let more = items.iter().skip(1).take_while(|item| is_path(item));
    let (paths, tags) = items.split_at((1 + more.count()).min(items.len()));
    if tags.is_empty() {
        return Err(usage(
            "no tag is given after the paths; write key=value".to_owned(),
        ));
    }
    let text = |tag: &OsString| {
        let text = tag.to_str().map(str::to_owned);
        text.ok_or_else(|| usage(format!("{} is not text in UTF-8", tag.display())))
    };
    Ok((paths, tags.iter().map(text).collect::<Result<_, _>>()?))
}

/// Sets and removes the tags of several paths of one mount in one transaction.
pub(crate) fn change(
    paths: &[&Path],
    set: &Map<String, Value>,
    remove: &[String],
) -> anyhow::Result<()> {
    let Some(first) = paths.first() else {
        return Ok(());
    };
    let mount = Mount::of(first)?;
    let mut changes = Vec::with_capacity(paths.len());
    for path in paths {
        std::fs::symlink_metadata(path).map_err(|error| crate::onmount::explain(path, error))?;
        let path = mount.inside(path)?;
        changes.push(json!({ "path": path, "set": set, "remove": remove }));
    }
    mount.call(&json!({ "op": "tag", "changes": changes }))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_before_tags() {
        let parted = |items: &[&str]| {
            let items: Vec<OsString> = items.iter().map(OsString::from).collect();
            super::parted(&items).map(|(paths, tags)| (paths.len(), tags))
        };
        let (paths, tags) = parted(&["a", "b", "c", "k=v", "x=y"]).unwrap();
        assert_eq!((paths, tags.join(" ")), (3, "k=v x=y".to_owned()));
        assert_eq!(parted(&["run=1", "k=v"]).unwrap().0, 1);
        assert_eq!(parted(&["a", "no/such=1"]).unwrap().0, 1);
        let dir = tempfile::tempdir().unwrap();
        let with = dir.path().join("run=1");
        std::fs::write(&with, "").unwrap();
        assert_eq!(parted(&["a", with.to_str().unwrap(), "k=v"]).unwrap().0, 2);
        assert!(parted(&["a", "b"]).is_err());
    }
}
