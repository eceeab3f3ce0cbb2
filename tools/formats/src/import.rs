//! `slabfs import`: files become containers.
//!
//! A container is made under a hidden name beside its own, filled, synced, and renamed: it appears complete or not at
//! all, and a command that was interrupted can be given again.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;
use slabfs_formats::netcdf::Reader;

use crate::args::Import;
use crate::mapping::{Plan, joined, plan};
use crate::mount::Mount;

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;
/// How many arrays are created with one request, which has 4 MiB at most.
const AT_ONCE: usize = 256;

pub(crate) fn run(args: &Import) -> anyhow::Result<()> {
    let exists = args.dest.is_dir();
    if args.files.len() > 1 && !exists {
        bail!(
            "{} is not a directory; with several files, create it first",
            args.dest.display()
        );
    }
    let mut jobs = Vec::new();
    for file in &args.files {
        let dest = match exists {
            true => args.dest.join(file.file_stem().unwrap_or_default()),
            false => args.dest.clone(),
        };
        if dest.symlink_metadata().is_ok() {
            bail!(
                "{} exists already; give another name, or remove it",
                dest.display()
            );
        }
        if jobs.iter().any(|(_, other)| *other == dest) {
            bail!(
                "two files would become {}; import them one by one",
                dest.display()
            );
        }
        jobs.push((file, dest));
    }
    // Everything is checked before anything is made.
    for (file, dest) in &jobs {
        let reader = Reader::open(file)?;
        let plan = plan(file, reader.tree())?;
        if args.dry_run {
            show(&plan, dest);
        }
    }
    if args.dry_run {
        return Ok(());
    }
    for (file, dest) in &jobs {
        one(file, dest, args.verify)?;
    }
    Ok(())
}

fn show(plan: &Plan<'_>, dest: &Path) {
    for (path, tags) in &plan.containers {
        println!("{}/ ({} tags)", dest.join(path).display(), tags.len());
    }
    for (path, variable, object) in &plan.arrays {
        println!(
            "{} {} {} codec {}",
            dest.join(path).join(&variable.name).display(),
            variable.dtype,
            object["dims"],
            object["codec"].as_str().unwrap_or("none")
        );
    }
}

fn one(file: &Path, dest: &Path, verify: bool) -> anyhow::Result<()> {
    let parent = match dest.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let name = dest.file_name().unwrap_or_default().to_string_lossy();
    let mount = Mount::of(parent)?;
    let unfinished = parent.join(format!(".{name}.{}.tmp", std::process::id()));
    let made = fill(&mount, file, &unfinished, verify).and_then(|()| {
        std::fs::rename(&unfinished, dest)
            .with_context(|| format!("renaming the complete container to {}", dest.display()))
    });
    if made.is_err() && unfinished.exists() {
        std::fs::remove_dir_all(&unfinished).with_context(|| {
            format!(
                "{} could not be removed after a failure",
                unfinished.display()
            )
        })?;
    }
    made.with_context(|| format!("importing {}", file.display()))
}

fn fill(mount: &Mount, file: &Path, dest: &Path, verify: bool) -> anyhow::Result<()> {
    let reader = Reader::open(file)?;
    let plan = plan(file, reader.tree())?;
    for (path, _) in &plan.containers {
        let place = dest.join(path);
        std::fs::create_dir(&place).with_context(|| format!("creating {}", place.display()))?;
    }
    let inside = mount.inside(dest)?;
    for some in plan.arrays.chunks(AT_ONCE) {
        let objects: Vec<_> = some.iter().map(|(_, _, object)| object).collect();
        mount.call(&json!({ "op": "create", "in": inside, "objects": objects }))?;
    }
    let changes: Vec<_> = plan
        .containers
        .iter()
        .filter(|(_, tags)| !tags.is_empty())
        .map(|(path, tags)| {
            let path = match path.is_empty() {
                true => inside.clone(),
                false => joined(&inside, path),
            };
            json!({ "path": path, "set": tags })
        })
        .collect();
    if !changes.is_empty() {
        mount.call(&json!({ "op": "tag", "changes": changes }))?;
    }
    for (path, variable, _) in &plan.arrays {
        let place = dest.join(path).join(&variable.name);
        let with = || format!("writing {}", place.display());
        let array = OpenOptions::new()
            .write(true)
            .open(&place)
            .with_context(with)?;
        reader.read::<anyhow::Error>(path, variable, PART, &mut |offset, bytes| {
            array.write_all_at(bytes, offset).with_context(with)
        })?;
        array.sync_all().with_context(with)?;
    }
    if verify {
        compare(&reader, &plan, dest)?;
    }
    Ok(())
}

/// Compares what can be read from the mount with the file.
fn compare(reader: &Reader, plan: &Plan<'_>, dest: &Path) -> anyhow::Result<()> {
    for (path, variable, _) in &plan.arrays {
        let place: PathBuf = dest.join(path).join(&variable.name);
        let with = || format!("reading {}", place.display());
        let array = File::open(&place).with_context(with)?;
        let mut read = Vec::new();
        reader.read::<anyhow::Error>(path, variable, PART, &mut |offset, bytes| {
            read.resize(bytes.len(), 0);
            array.read_exact_at(&mut read, offset).with_context(with)?;
            if read != bytes {
                bail!(
                    "{} differs from the file after byte {offset}",
                    place.display()
                );
            }
            Ok(())
        })?;
    }
    Ok(())
}
