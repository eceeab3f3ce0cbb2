//! Creates many objects in one request, from JSON.
//!
//! All errors that the descriptions alone show are reported before anything is created. If the mount then
//! refuses the objects, the directories created for them are removed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slabfs_fs::call::{Described, PathText, umask};
use slabfs_fs::view::attributes::json_of_spec;
use slabfs_mdserver::api::SpecChange;

use super::exists;
use crate::failure::usage;
use crate::onmount::{self, Mount, Refused, explain};
use crate::rules;

/// Objects in one request, which is the most that one transaction creates.
const BATCH: usize = 1024;
/// Bytes of objects in one request; a mount accepts 4 MiB.
const BATCH_BYTES: usize = 3 << 20;

/// An object and the place of its description.
struct Line {
    /// From 1: a line, or a member of the JSON array.
    number: usize,
    object: Value,
}

/// Creates the objects that `file` describes, below `container`; returns their number.
pub(super) fn run(container: &Path, file: &Path, parents: bool) -> anyhow::Result<usize> {
    let text = read(file)?;
    let (what, lines) = parse(&text)?;
    check(container, what, &lines, parents)?;
    if !container.is_dir() {
        let error = std::io::Error::from_raw_os_error(libc::ENOTDIR);
        let error = std::fs::metadata(container).err().unwrap_or(error);
        return Err(explain(container, error).context("--from-json makes objects in a directory"));
    }
    let mount = Mount::of(container)?;
    let mut directories = Directories::default();
    let result = (|| {
        if parents {
            directories.make(container, &lines)?;
        }
        objects(&mount, container, what, lines)
    })();
    if result.is_err() {
        directories.take_back();
    }
    result
}

/// Creates all objects, batch by batch.
fn objects(mount: &Mount, container: &Path, what: &str, lines: Vec<Line>) -> anyhow::Result<usize> {
    let within = mount.inside(container)?;
    let mode = mode();
    let mut made = 0;
    for batch in batches(lines) {
        let numbers: Vec<usize> = batch.iter().map(|line| line.number).collect();
        let objects: Vec<Value> = batch.into_iter().map(|line| line.object).collect();
        let request = json!({"op": "create", "in": within, "mode": mode, "objects": objects});
        match mount.call(&request) {
            Ok(_) => made += numbers.len(),
            Err(error) => {
                let before = match made {
                    0 => "no object was made".to_owned(),
                    made => format!("the {made} objects of earlier batches were made"),
                };
                let place = error
                    .downcast_ref::<Refused>()
                    .and_then(|refused| numbers.get(refused.index?))
                    .map_or_else(String::new, |number| format!("{what} {number}, "));
                return Err(error.context(format!("{place}{before}")));
            }
        }
    }
    Ok(made)
}

/// Checks all descriptions for errors that they show by themselves, before anything is created.
fn check(container: &Path, what: &str, lines: &[Line], parents: bool) -> anyhow::Result<()> {
    let mut numbers: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut typed: HashMap<PathBuf, bool> = HashMap::new();
    let mut missing: HashMap<PathBuf, bool> = HashMap::new();
    let makes = parents || !container.is_dir();
    for line in lines {
        let wrong = |why: String| {
            usage(format!(
                "--from-json: {what} {}: {why}; no object was made",
                line.number
            ))
        };
        let object = Described::of_json(line.object.clone()).map_err(wrong)?;
        let bytes = object.path.bytes();
        if bytes.starts_with(b"/") {
            return Err(wrong(format!(
                "{} begins with /, and paths count from {}; leave the / out",
                object.path,
                container.display()
            )));
        }
        object.path.check_new().map_err(wrong)?;
        let names = bytes.split(|&byte| byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !matches!(*name, b"" | b".")).collect();
        if let Some(first) = numbers.insert(names.join(&b'/'), line.number) {
            return Err(wrong(format!(
                "{} is that of {what} {first}, too; give each object a path of its own",
                object.path
            )));
        }
        let spec = &object.spec;
        // Without a dtype the fill value is of the container's default dtype, which is not known here.
        if (spec.dtype.is_some() || spec.fill.is_none())
            && let Some(why) = rules::refused_change(&rules::new_file(), spec)
        {
            return Err(wrong(why));
        }
        let parent = container.join(OsStr::from_bytes(&names[..names.len() - 1].join(&b'/')));
        if !makes
            && *missing
                .entry(parent.clone())
                .or_insert_with_key(|parent| is_missing(parent))
        {
            return Err(anyhow!(
                "--from-json: {what} {}: the directory {} does not exist; make it, or give --parents; no object was made",
                line.number,
                parent.display()
            ));
        }
        if spec.dims.is_some() && spec.dtype.is_none() && (parents || parent.is_dir()) {
            let has = typed
                .entry(parent)
                .or_insert_with_key(|parent| inherits_dtype(parent));
            if !*has {
                return Err(wrong(format!(
                    "{}: an array needs a dtype, as \"f4\"; its directory has no default",
                    object.path
                )));
            }
        }
    }
    Ok(())
}

fn is_missing(path: &Path) -> bool {
    let looked = std::fs::metadata(path);
    looked.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Whether a directory, or its closest existing ancestor, has a default dtype.
fn inherits_dtype(directory: &Path) -> bool {
    let there = directory.ancestors().find(|above| above.is_dir());
    there.is_some_and(|above| onmount::default_dtype(above).is_some())
}

/// Creates one object with tags.
pub(super) fn one(
    mount: &Mount,
    path: &Path,
    spec: &SpecChange,
    tags: Map<String, Value>,
) -> anyhow::Result<()> {
    let mut object = json_of_spec(spec);
    object.insert("path".to_owned(), json!(mount.inside(path)?));
    object.insert("tags".to_owned(), Value::Object(tags));
    let request = json!({"op": "create", "mode": mode(), "objects": [object]});
    match mount.call(&request) {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.errno == libc::EEXIST => Err(exists(path)),
            _ => Err(error),
        },
    }
}

/// The mode of a new file under the umask.
fn mode() -> u32 {
    0o666 & !umask()
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        return std::io::read_to_string(std::io::stdin()).context("cannot read stdin");
    }
    std::fs::read_to_string(file)
        .map_err(|error| usage(format!("cannot read {}: {error}", file.display())))
}

/// The objects of a text, and the unit in which they are numbered: `line` or `object`.
fn parse(text: &str) -> anyhow::Result<(&'static str, Vec<Line>)> {
    if text.trim_start().starts_with('[') {
        let objects: Vec<Value> = serde_json::from_str(text)
            .map_err(|error| usage(format!("--from-json: not a JSON array: {error}")))?;
        let lines = objects.into_iter().enumerate().map(|(at, object)| Line {
            number: at + 1,
            object,
        });
        return Ok(("object", lines.collect()));
    }
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let lines: anyhow::Result<Vec<Line>> = lines
        .map(|(at, line)| match serde_json::from_str(line) {
            Ok(object) => Ok(Line {
                number: at + 1,
                object,
            }),
            Err(error) => {
                // serde_json counts the lines of its input, which is always one line.
                let error = error
                    .to_string()
                    .replace(" at line 1 column ", " at column ");
                Err(usage(format!(
                    "--from-json: line {}: not a JSON object: {error}; no object was made",
                    at + 1
                )))
            }
        })
        .collect();
    Ok(("line", lines?))
}

fn batches(lines: Vec<Line>) -> Vec<Vec<Line>> {
    let mut batches: Vec<Vec<Line>> = Vec::new();
    let mut room = 0;
    for line in lines {
        let bytes = line.object.to_string().len() + 1;
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH && bytes <= room => {
                room -= bytes;
                batch.push(line);
            }
            _ => {
                room = BATCH_BYTES.saturating_sub(bytes);
                batches.push(vec![line]);
            }
        }
    }
    batches
}

/// The directories that were created for objects.
#[derive(Debug, Default)]
struct Directories {
    made: Vec<PathBuf>,
}

impl Directories {
    /// Creates the missing ones.
    fn make(&mut self, container: &Path, lines: &[Line]) -> anyhow::Result<()> {
        let mut seen = HashSet::new();
        for line in lines {
            let Some(path) = line.object.get("path").and_then(path_of) else {
                continue;
            };
            let mut full = container.to_owned();
            for name in path.parent().into_iter().flat_map(Path::components) {
                full.push(name);
                if !seen.insert(full.clone()) {
                    continue;
                }
                match std::fs::create_dir(&full) {
                    Ok(()) => self.made.push(full.clone()),
                    Err(_) if full.is_dir() => {}
                    Err(error) => {
                        return Err(explain(&full, error).context("cannot make a directory"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes those that are empty.
    fn take_back(self) {
        for directory in self.made.iter().rev() {
            // A directory that is not empty has objects of an earlier batch or of another process.
            let _ = std::fs::remove_dir(directory);
        }
    }
}

/// A path from its JSON form.
fn path_of(path: &Value) -> Option<PathBuf> {
    let path = PathText::deserialize(path).ok()?;
    Some(path.as_path().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_arrays() {
        let (what, lines) = parse("{\"path\":\"a\"}\n\n{\"path\":\"b\"}\n").expect("lines");
        assert_eq!(what, "line");
        let numbers: Vec<usize> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 3]);
        let (what, lines) = parse(" [{\"path\":\"a\"},\n{\"path\":\"b\"}]").expect("an array");
        assert_eq!((what, lines.len(), lines[1].number), ("object", 2, 2));
        let error = parse("{\"path\":\"a\"}\n{")
            .err()
            .expect("broken")
            .to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn batches_keep_both_bounds() {
        let line = |len: usize| Line {
            number: 1,
            object: json!("x".repeat(len)),
        };
        let small = batches((0..2500).map(|_| line(1)).collect());
        let sizes: Vec<usize> = small.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1024, 1024, 452]);
        assert_eq!(batches((0..4).map(|_| line(1 << 20)).collect()).len(), 2);
    }
}
