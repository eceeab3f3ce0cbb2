//! `--append`: the records of files follow those of arrays that exist.
//!
//! The file may extend one dimension, the first one of its arrays. All arrays of the container that have it grow together:
//! records begin at the end of the longest, and what a file has no records for is the fill value. All other variables must be
//! equal. All files are checked before anything is written.
//!
//! An append has a lock on DEST, and others wait for it. Before it writes it notes the lengths of the arrays in tags of them
//! (`_slabfs_length`), and then that it is at work in one of DEST (`_slabfs_append`); `dest` has this. An append that is
//! interrupted cuts the arrays back. One that was killed left the tag of DEST: the next one cuts the arrays back before it
//! begins.

mod dest;

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::json;
use slabfs_datamodel::mapping::joined;
use slabfs_formats::boxes::{Block, Boxes};
use slabfs_formats::source::{self, Source};
use slabfs_formats::tree::{Attribute, Variable};

use super::{jobs, limits, named, watch};
use crate::args::Import;
use crate::blocks::Array;
use crate::{plain, progress, signals};

use dest::{Dest, Pair, Target};

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;

pub(super) fn run(args: &Import) -> anyhow::Result<()> {
    let mut files = jobs::files(args)?;
    if args.dest.symlink_metadata().is_err() {
        // The first file makes what the others are appended to.
        let file = files.remove(0);
        let first = Import {
            append: false,
            files: vec![file],
            ..args.clone()
        };
        super::import(&first)?;
        if args.dry_run || files.is_empty() {
            return Ok(());
        }
    }
    let mut dest = Dest::of(&args.dest)?;
    let mut sources = Vec::new();
    for file in &files {
        watch::say(file);
        limits::allow(limits::OPENING)?;
        let source = source::open(file)?;
        let tree = named(&*source, &args.dest);
        let cannot = || format!("{} cannot be appended", file.display());
        let pairs = dest.pairs(&*source, &tree).with_context(cannot)?;
        let growth = dest.growth(&pairs).with_context(cannot)?;
        sources.push((file, source, pairs, growth));
    }
    // Equal values are looked at when everything else is known to fit.
    for (file, source, pairs, _) in &sources {
        for pair in pairs
            .iter()
            .filter(|pair| !dest.targets[pair.target].grows())
        {
            equal(&**source, pair, &dest.targets[pair.target])
                .with_context(|| format!("{} cannot be appended", file.display()))?;
        }
    }
    if args.dry_run {
        for (file, _, _, growth) in &sources {
            for &(target, from, to) in growth {
                let place = plain(&dest.targets[target].place.to_string_lossy());
                println!("{place} grows from {from} to {to} by {}", file.display());
            }
        }
        return Ok(());
    }
    for (file, source, pairs, _) in &sources {
        watch::say(file);
        let done = dest.append(&**source, pairs);
        let (arrays, bytes) = done.with_context(|| format!("appending {}", file.display()))?;
        if args.json {
            let line = json!({
                "file": file.to_string_lossy(),
                "dest": args.dest.to_string_lossy(),
                "arrays": arrays,
                "bytes": bytes,
            });
            println!("{line}");
        }
    }
    Ok(())
}

/// Cuts off what an append wrote that has crashed.
pub(super) fn recover(path: &Path) -> anyhow::Result<()> {
    Dest::of(path).map(|_| ())
}

/// Fails if an array cannot have the elements of a variable, or not with the same meaning.
fn fits(variable: &Variable, target: &Target) -> anyhow::Result<()> {
    let array = &target.array;
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
            found.cloned()
        };
        let (new, old) = (of(variable), of(array));
        if new.as_ref().map(|one| &one.value) != old.as_ref().map(|one| &one.value) {
            let shown = |one: Option<Attribute>| match one {
                Some(one) => slabfs_datamodel::cdl::show_value(&one.value),
                None => "none".to_owned(),
            };
            bail!(
                "its attribute {name} is {}, and the array's is {}: numbers would change their meaning. Convert the file \
                 first, or set the attribute that is wrong",
                shown(new),
                shown(old)
            );
        }
    }
    let (new, old) = (variable.shape(), array.shape());
    let from = usize::from(target.grows());
    if new.len() != old.len() || new[from..] != old[from..] {
        bail!("it has the shape {new:?}, and the array {old:?}");
    }
    Ok(())
}

/// Fails unless the values of a variable are those of its array.
fn equal(source: &dyn Source, pair: &Pair, target: &Target) -> anyhow::Result<()> {
    let shape = target.array.shape();
    let array = Array::open(&target.place, false, shape, target.array.dtype.size())?;
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

/// Writes the records of a variable from the element `from` of the first axis on, and returns their bytes.
fn records(
    source: &dyn Source,
    pair: &Pair,
    (target, from): (&Target, u64),
) -> anyhow::Result<u64> {
    use std::os::unix::fs::FileExt;
    let shape = pair.variable.shape();
    let elem = pair.variable.dtype.size();
    let bytes = target
        .row()
        .saturating_mul(shape.first().copied().unwrap_or(0));
    if bytes == 0 {
        return Ok(0);
    }
    let begin = from.saturating_mul(target.row());
    let with = || format!("writing {}", target.place.display());
    let array = OpenOptions::new().write(true).open(&target.place);
    let array = array.with_context(with)?;
    let bar = progress::bar(&pair.variable.name, bytes);
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
                .write_all_at(bytes, begin + index * elem)
                .with_context(with)?;
        }
        bar.inc(part.len() as u64);
    }
    array.sync_all().with_context(with)?;
    bar.finish_and_clear();
    Ok(bytes)
}
