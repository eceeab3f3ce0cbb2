//! `--append`: the records of files follow those of arrays that exist.
//!
//! Arrays whose first axis is unlimited grow by the records of the file's variable of the same name; all others must be
//! equal. All files are checked before anything is written. Records are written after the old end of an array, and the
//! array grows by that: what an interrupted append has written is cut off again.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Value as Json, json};
use slabfs_formats::boxes::{Block, Boxes};
use slabfs_formats::source::{self, Source};
use slabfs_formats::tree::{Group, Variable};

use super::{jobs, limits, named, watch};
use crate::args::Import;
use crate::blocks::Array;
use crate::mapping::{joined, variable_of};
use crate::mount::{Mount, attribute};
use crate::{progress, signals};

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;

/// A variable of a file and the array that it continues.
struct Pair {
    group: String,
    variable: Variable,
    /// The array as it was before.
    array: Variable,
    place: std::path::PathBuf,
    /// Its records follow those of the array.
    grows: bool,
}

pub(super) fn run(args: &Import) -> anyhow::Result<()> {
    let files = jobs::files(args)?;
    let mount = Mount::of(&args.dest)?;
    let mut sources = Vec::new();
    for file in &files {
        watch::say(file);
        limits::allow(limits::OPENING)?;
        let source = source::open(file)?;
        let tree = named(&*source, &args.dest);
        let pairs = pairs(&mount, args, &*source, &tree)
            .with_context(|| format!("{} cannot be appended", file.display()))?;
        sources.push((file, source, pairs));
    }
    // Equal values are looked at when everything else is known to fit.
    for (file, source, pairs) in &sources {
        for pair in pairs.iter().filter(|pair| !pair.grows) {
            equal(&**source, pair)
                .with_context(|| format!("{} cannot be appended", file.display()))?;
        }
    }
    if args.dry_run {
        return Ok(());
    }
    for (file, source, pairs) in sources {
        watch::say(file);
        append(args, file, &*source, pairs)
            .with_context(|| format!("appending {}", file.display()))?;
    }
    Ok(())
}

/// The variables of a file with the arrays of their names.
fn pairs(
    mount: &Mount,
    args: &Import,
    source: &dyn Source,
    tree: &Group,
) -> anyhow::Result<Vec<Pair>> {
    let mut groups = Vec::new();
    tree.each(&mut |path, group| groups.push((path.to_owned(), group)));
    let mut pairs = Vec::new();
    for (path, group) in groups {
        for (at, variable) in group.variables.iter().enumerate() {
            let what = joined(&path, &variable.name);
            let place = match source.is_array() {
                true => args.dest.clone(),
                false => args.dest.join(&what),
            };
            let array = existing(mount, &place, &variable.name)
                .with_context(|| format!("variable {what}"))?;
            let grows = fits(variable, &array).with_context(|| format!("variable {what}"))?;
            // The source knows it by its own name.
            let own = match source.is_array() {
                true => source.tree().variables.get(at),
                false => Some(variable),
            };
            pairs.push(Pair {
                group: path.clone(),
                variable: own.context("it has no array")?.clone(),
                array,
                place,
                grows,
            });
        }
    }
    if !pairs.iter().any(|pair| pair.grows) {
        bail!(
            "no array in {} has an unlimited first axis",
            args.dest.display()
        );
    }
    Ok(pairs)
}

fn existing(mount: &Mount, place: &Path, name: &str) -> anyhow::Result<Variable> {
    if !place.is_file() {
        bail!("{} is no array", place.display());
    }
    let info: Json = serde_json::from_str(&attribute(place, "user.slabfs.info")?)?;
    variable_of(name, &info, &mount.tags(&mount.inside(place)?)?)
}

/// Whether the array grows by the variable; an error says what does not fit.
fn fits(variable: &Variable, array: &Variable) -> anyhow::Result<bool> {
    if variable.dtype != array.dtype || variable.exact != array.exact {
        bail!(
            "it has the type {}, and the array {}",
            variable.dtype,
            array.dtype
        );
    }
    for name in [
        "scale_factor",
        "add_offset",
        "units",
        "calendar",
        "_FillValue",
    ] {
        let of = |variable: &Variable| {
            let found = variable.attributes.iter().find(|one| one.name == name);
            found.map(|one| one.value.clone())
        };
        if of(variable) != of(array) {
            bail!("its attribute {name} differs from the array's");
        }
    }
    let (new, old) = (variable.shape(), array.shape());
    let grows = array.max.first() == Some(&None);
    let from = usize::from(grows);
    if new.len() != old.len() || new[from..] != old[from..] {
        bail!("it has the shape {new:?}, and the array {old:?}");
    }
    Ok(grows)
}

/// Fails unless the values of a variable are those of its array.
fn equal(source: &dyn Source, pair: &Pair) -> anyhow::Result<()> {
    let shape = pair.array.shape();
    let array = Array::open(&pair.place, false, shape, pair.array.dtype.size())?;
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for block in source.boxes(&pair.group, &pair.variable, PART)? {
        signals::check()?;
        limits::allow(limits::READING)?;
        source.read(&pair.group, &pair.variable, &block, &mut wanted)?;
        array.read(&block, &mut found)?;
        if wanted != found {
            bail!(
                "variable {} has no unlimited first axis, and differs from the array",
                joined(&pair.group, &pair.variable.name)
            );
        }
    }
    Ok(())
}

fn append(args: &Import, file: &Path, source: &dyn Source, pairs: Vec<Pair>) -> anyhow::Result<()> {
    let growing: Vec<Pair> = pairs.into_iter().filter(|pair| pair.grows).collect();
    let mut before = Vec::new();
    for pair in &growing {
        let len = pair.place.metadata()?.len();
        before.push((pair, len));
    }
    let written = before.iter().try_fold(0, |bytes, (pair, len)| {
        records(source, pair, *len).map(|own| bytes + own)
    });
    match written {
        Ok(bytes) => {
            if args.json {
                let line = json!({
                    "file": file.to_string_lossy(),
                    "dest": args.dest.to_string_lossy(),
                    "arrays": growing.len(),
                    "bytes": bytes,
                });
                println!("{line}");
            }
            Ok(())
        }
        Err(error) => {
            for (pair, len) in before {
                let cut = std::fs::OpenOptions::new()
                    .write(true)
                    .open(&pair.place)
                    .and_then(|file| file.set_len(len));
                if let Err(error) = cut {
                    eprintln!(
                        "slabfs: {} may have incomplete records after byte {len}: {error}",
                        pair.place.display()
                    );
                }
            }
            Err(error)
        }
    }
}

/// Writes the records of a variable after the `len` bytes of its array, and returns their bytes.
fn records(source: &dyn Source, pair: &Pair, len: u64) -> anyhow::Result<u64> {
    use std::os::unix::fs::FileExt;
    let shape = pair.variable.shape();
    let elem = pair.variable.dtype.size();
    let row = shape[1..]
        .iter()
        .fold(elem, |all, &len| all.saturating_mul(len));
    let bytes = row.saturating_mul(shape[0]);
    if bytes == 0 {
        return Ok(0);
    }
    let with = || format!("writing {}", pair.place.display());
    let array = std::fs::OpenOptions::new().write(true).open(&pair.place);
    let array = array.with_context(with)?;
    let bar = progress::bar(&pair.variable.name, bytes);
    // What the file never wrote is its fill value.
    array.set_len(len + bytes).with_context(with)?;
    let mut part = Vec::new();
    for block in source.boxes(&pair.group, &pair.variable, PART)? {
        signals::check()?;
        limits::allow(limits::READING)?;
        source.read(&pair.group, &pair.variable, &block, &mut part)?;
        // Rows that follow each other in the file.
        let inner = Boxes::within(&block, &shape);
        let size = (inner.elements_each() * elem) as usize;
        for (at, bytes) in inner.zip(part.chunks_exact(size.max(1))) {
            let index = Block::offset_in(&at, &shape).unwrap_or(0);
            array
                .write_all_at(bytes, len + index * elem)
                .with_context(with)?;
        }
        bar.inc(part.len() as u64);
    }
    array.sync_all().with_context(with)?;
    bar.finish_and_clear();
    Ok(bytes)
}
