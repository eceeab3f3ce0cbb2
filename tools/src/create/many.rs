//! Many objects in one request, from JSON.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::{Map, Value, json};

use super::exists;
use crate::failure::usage;
use crate::onmount::{Mount, Refused, explain};

/// Objects in one request: as many as happen together.
const BATCH: usize = 1024;
/// Bytes of objects in one request, of which a mount takes 4 MiB.
const BATCH_BYTES: usize = 3 << 20;

/// An object and where it was described.
struct Line {
    /// From 1: a line, or a member of the array.
    number: usize,
    object: Value,
}

/// Makes what `file` describes, below `container`.
pub(super) fn run(container: &Path, file: &Path, parents: bool) -> anyhow::Result<()> {
    let text = read(file)?;
    let (what, lines) = parse(&text)?;
    if !container.is_dir() {
        let error = std::io::Error::from_raw_os_error(libc::ENOTDIR);
        let error = std::fs::metadata(container).err().unwrap_or(error);
        return Err(explain(container, error).context("--from-json makes objects in a directory"));
    }
    let mount = Mount::of(container)?;
    if parents {
        make_directories(container, &lines)?;
    }
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
    Ok(())
}

/// Makes one object with tags.
pub(super) fn one(mount: &Mount, path: &Path, spec: Map<String, Value>) -> anyhow::Result<()> {
    let mut object = spec;
    object.insert("path".to_owned(), mount.inside(path)?);
    let request = json!({"op": "create", "mode": mode(), "objects": [object]});
    match mount.call(&request) {
        Ok(_) => Ok(()),
        Err(error) => match error.downcast_ref::<Refused>() {
            Some(refused) if refused.errno == libc::EEXIST => Err(exists(path)),
            _ => Err(error),
        },
    }
}

/// The mode of a new file: what the umask leaves of it.
fn mode() -> u32 {
    use nix::sys::stat::{Mode, umask};

    // It can only be read by setting it.
    let mask = umask(Mode::empty());
    umask(mask);
    0o666 & !mask.bits()
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// The objects of a text, and what their numbers count.
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
            Err(error) => Err(usage(format!(
                "--from-json: line {}: not a JSON object: {error}; no object was made",
                at + 1
            ))),
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

fn make_directories(container: &Path, lines: &[Line]) -> anyhow::Result<()> {
    let wanted: BTreeSet<&Path> = lines
        .iter()
        .filter_map(|line| Path::new(line.object.get("path")?.as_str()?).parent())
        .filter(|parent| parent.is_relative() && !parent.as_os_str().is_empty())
        .collect();
    for parent in wanted {
        let full = container.join(parent);
        std::fs::create_dir_all(&full)
            .map_err(|error| anyhow!("cannot make the directory {}: {error}", full.display()))?;
    }
    Ok(())
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
