//! `slabfs import`: files become containers.
//!
//! A container is made under a hidden name in the same directory, filled, synced, and renamed: it appears complete or not at
//! all, and a command that was interrupted can be given again.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use slabfs_formats::netcdf::Reader;

use crate::args::Import;
use crate::mapping::{Plan, Planned, plan};
use crate::mount::Mount;
use crate::plain;

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;
/// How many arrays are created with one request, or have tags set.
const AT_ONCE: usize = 64;
/// Most bytes of the members of a request.
const REQUEST: usize = 1 << 20;

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
        let place = dest.join(path);
        println!(
            "{}/ ({} tags)",
            plain(&place.to_string_lossy()).trim_end_matches('/'),
            tags.len()
        );
    }
    for Planned {
        group: path,
        variable,
        object,
        ..
    } in &plan.arrays
    {
        println!(
            "{} {} {} codec {}",
            plain(&dest.join(path).join(&variable.name).to_string_lossy()),
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
    let with = || format!("importing {}", file.display());
    let mount = Mount::of(parent).with_context(with)?;
    // The caller's umask counts, for everything in it.
    let unfinished = tempfile::Builder::new()
        .prefix(".slabfs-import-")
        .permissions(std::fs::Permissions::from_mode(0o777))
        .tempdir_in(parent)
        .with_context(|| format!("creating a directory in {}", parent.display()))
        .with_context(with)?;
    fill(&mount, file, unfinished.path(), verify).with_context(with)?;
    // Not over a directory that appeared meanwhile.
    rename_new(unfinished.path(), dest)
        .with_context(|| format!("renaming the complete container to {}", dest.display()))
        .with_context(with)?;
    // It has another name now.
    let _renamed = unfinished.keep();
    Ok(())
}

fn fill(mount: &Mount, file: &Path, dest: &Path, verify: bool) -> anyhow::Result<()> {
    let reader = Reader::open(file)?;
    let plan = plan(file, reader.tree())?;
    for (path, _) in plan.containers.iter().skip(1) {
        let place = dest.join(path);
        std::fs::create_dir(&place).with_context(|| format!("creating {}", place.display()))?;
    }
    let inside = mount.inside(dest)?;
    for objects in in_requests(plan.arrays.iter().map(|array| array.object.clone())) {
        mount.call(&json!({ "op": "create", "in": inside, "objects": objects }))?;
    }
    for changes in in_requests(plan.tags(&inside).into_iter()) {
        mount.call(&json!({ "op": "tag", "changes": changes }))?;
    }
    for array in &plan.arrays {
        let (path, variable) = (&array.group, array.variable);
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

/// Divides the members of requests, which have at most 4 MiB and few thousand tags.
fn in_requests(members: impl Iterator<Item = Value>) -> Vec<Vec<Value>> {
    let mut requests: Vec<Vec<Value>> = Vec::new();
    let mut size = REQUEST;
    for member in members {
        let own = member.to_string().len();
        match requests.last_mut() {
            Some(last) if size + own <= REQUEST && last.len() < AT_ONCE => last.push(member),
            _ => {
                requests.push(vec![member]);
                size = 0;
            }
        }
        size += own;
    }
    requests
}

/// `rename(2)`, unless `to` exists.
pub(crate) fn rename_new(from: &Path, to: &Path) -> std::io::Result<()> {
    let [from, to] = [from, to].map(|path| CString::new(path.as_os_str().as_bytes()));
    let (from, to) = (from?, to?);
    // SAFETY: two C strings that outlive the call.
    let done = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Compares what can be read from the mount with the file.
fn compare(reader: &Reader, plan: &Plan<'_>, dest: &Path) -> anyhow::Result<()> {
    for array in &plan.arrays {
        let (path, variable) = (&array.group, array.variable);
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
