//! What is imported, and where to.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::args::Import;

/// A file and what it becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) file: PathBuf,
    pub(super) dest: PathBuf,
}

/// The files of the command line; a name that is none is a pattern.
pub(super) fn files(args: &Import) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for file in &args.files {
        let text = file.to_str().filter(|text| text.contains(['*', '?', '[']));
        let Some(pattern) = text.filter(|_| file.symlink_metadata().is_err()) else {
            files.push(file.clone());
            continue;
        };
        let found = glob::glob(pattern).with_context(|| format!("{pattern} is no pattern"))?;
        let before = files.len();
        for path in found {
            files.push(path.with_context(|| format!("looking for {pattern}"))?);
        }
        if files.len() == before {
            bail!("no file matches {pattern}");
        }
    }
    Ok(files)
}

/// What is to be done.
pub(super) fn of(args: &Import) -> anyhow::Result<Vec<Job>> {
    let files = files(args)?;
    for file in &files {
        let kind = file.metadata();
        if kind.is_ok_and(|kind| !kind.is_file() && !kind.is_dir()) {
            bail!("{} is neither a file nor a directory", file.display());
        }
    }
    let exists = args.dest.is_dir();
    if files.len() > 1 && !exists {
        bail!(
            "{} is not a directory; with several files, create it first",
            args.dest.display()
        );
    }
    let mut jobs: Vec<Job> = Vec::new();
    for file in files {
        let dest = match exists {
            true => args.dest.join(stem(&file)?),
            false => args.dest.clone(),
        };
        if dest.to_string_lossy().contains("@[") {
            bail!(
                "{} would be a selection on the mount; give another name",
                dest.display()
            );
        }
        if dest.symlink_metadata().is_ok() {
            bail!(
                "{} exists already; give another name, or remove it",
                dest.display()
            );
        }
        if jobs.iter().any(|job| job.dest == dest) {
            bail!(
                "two files would become {}; import them one by one",
                dest.display()
            );
        }
        jobs.push(Job { file, dest });
    }
    Ok(jobs)
}

/// The name without its ending, also of `.` and `dir/..`.
fn stem(file: &Path) -> anyhow::Result<PathBuf> {
    let real = match file.file_stem() {
        Some(stem) => return Ok(PathBuf::from(stem)),
        None => file.canonicalize()?,
    };
    let stem = real.file_stem().map(PathBuf::from);
    stem.with_context(|| format!("{} has no name", file.display()))
}
