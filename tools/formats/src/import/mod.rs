//! `slabfs import`: files become containers, or arrays.
//!
//! `jobs` finds what is imported and where to, `place` has the hidden directory in which a container is made until it is
//! complete, `transfer` moves the data, and `append` adds records to arrays that exist. `watch` runs all of this in a process of
//! its own, and `limits` ends it if a library loops. An import that a signal or an
//! error ends leaves nothing; one that was killed is continued by the next one with the same DEST, if the file has not
//! changed, or begun again.

mod append;
mod jobs;
mod limits;
mod place;
mod transfer;
mod watch;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, bail};
use serde_json::json;
use slabfs_formats::source::{self, Source};
use slabfs_formats::tree::Group;

use crate::args::Import;
use crate::rights::Narrowed;
use crate::{plain, signals};
use slabfs_datamodel::mapping::{Plan, Planned, plan};

use jobs::Job;
use place::Place;

pub(crate) use place::make;
pub(crate) use transfer::copy;

pub(crate) fn run(args: &Import) -> anyhow::Result<()> {
    if !args.in_process {
        return watch::run(args);
    }
    signals::catch()?;
    watch::follow()?;
    limits::limit_memory()?;
    if args.append {
        return append::run(args);
    }
    import(args)
}

/// Imports files to new containers and arrays.
fn import(args: &Import) -> anyhow::Result<()> {
    let jobs = jobs::of(args)?;
    // Everything is checked before anything is made.
    for job in &jobs {
        watch::say(&job.file);
        limits::allow(limits::OPENING)?;
        let source = source::open(&job.file)?;
        let tree = named(&*source, &job.dest);
        let plan = plan(&job.file, &tree)?;
        if args.dry_run {
            show(args, job, &*source, &plan);
        }
        signals::check()?;
    }
    if args.dry_run {
        return Ok(());
    }
    for job in &jobs {
        watch::say(&job.file);
        let inside = job.dest != args.dest;
        one(args, job, inside).with_context(|| format!("importing {}", job.file.display()))?;
    }
    Ok(())
}

/// The tree, in which the variable of a file that is an array has the name of DEST.
fn named(source: &dyn Source, dest: &Path) -> Group {
    let mut tree = source.tree().clone();
    if source.is_array()
        && let (Some(variable), Some(name)) = (tree.variables.first_mut(), dest.file_name())
    {
        variable.name = name.to_string_lossy().into_owned();
    }
    tree
}

fn show(args: &Import, job: &Job, source: &dyn Source, plan: &Plan<'_>) {
    let dest = match source.is_array() {
        true => job.dest.parent().unwrap_or(Path::new("")),
        false => &job.dest,
    };
    let containers = plan.containers.iter().filter(|_| !source.is_array());
    for (path, tags) in containers {
        let place = dest.join(path);
        let place = plain(&place.to_string_lossy());
        let place = place.trim_end_matches('/');
        match args.json {
            true => println!("{}", json!({ "container": place, "tags": tags.len() })),
            false => println!("{place}/ ({} tags)", tags.len()),
        }
    }
    for Planned {
        group,
        variable,
        object,
        ..
    } in &plan.arrays
    {
        let place = dest.join(group).join(&variable.name);
        let place = plain(&place.to_string_lossy());
        let codec = object["codec"].as_str().unwrap_or("none");
        let (dtype, dims) = (&object["dtype"], &object["dims"]);
        match args.json {
            true => {
                let line = json!({ "array": place, "dtype": dtype, "dims": dims, "codec": codec });
                println!("{line}");
            }
            false => println!("{place} {} {dims} codec {codec}", variable.dtype),
        }
    }
}

fn one(args: &Import, job: &Job, inside: bool) -> anyhow::Result<()> {
    let begin = Instant::now();
    let _rights = Narrowed::to(std::fs::metadata(&job.file)?.mode());
    limits::allow(limits::OPENING)?;
    let source = source::open(&job.file)?;
    let tree = named(&*source, &job.dest);
    let plan = plan(&job.file, &tree)?;
    let place = Place::of(job, &*source, &plan)?;
    let bytes = transfer::run(args, job, &*source, &plan, &place)?;
    for note in source.notes() {
        eprintln!("slabfs: note: {}: {note}", job.file.display());
    }
    if args.verify {
        transfer::compare(&*source, &plan, &place)?;
    }
    place.finish(job, source.is_array(), &plan)?;
    if args.json {
        let line = json!({
            "file": job.file.to_string_lossy(),
            "dest": job.dest.to_string_lossy(),
            "arrays": plan.arrays.len(),
            "bytes": bytes,
            "seconds": begin.elapsed().as_secs_f64(),
        });
        println!("{line}");
    } else if inside {
        // DEST was there, and the name is made of the file's.
        println!("{}", plain(&job.dest.to_string_lossy()));
    }
    Ok(())
}

/// The variable of the source for a planned one, which may have another name.
fn of_source<'a>(
    source: &'a dyn Source,
    array: &Planned<'a>,
) -> anyhow::Result<&'a slabfs_formats::tree::Variable> {
    if !source.is_array() {
        return Ok(array.variable);
    }
    match source.tree().variables.first() {
        Some(variable) => Ok(variable),
        None => bail!("it has no array"),
    }
}
