//! The hidden directory in which a container is made until it is complete.
//!
//! Its name has that of the container, so the next import finds the one of an import that was killed. A tag has the file,
//! its size and the time of its last change, and is set when everything but the data has been created; a tag of an array
//! says that its data is stored. If all of this fits, only the rest is imported; otherwise the directory is removed.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::{Map, Value as Json, json};
use slabfs_formats::source::Source;

use super::jobs::Job;
use crate::lock::Lock;
use crate::mount::Mount;
use crate::rights;
use slabfs_datamodel::mapping::{Plan, Planned, joined};

/// How the name begins.
const HIDDEN: &str = ".slabfs-import-";
/// The tag of the directory with what is imported.
const STATE: &str = "_slabfs_import";
/// The tag of an array whose data is stored.
const DONE: &str = "_slabfs_done";
/// How many arrays are created with one request, or have tags set.
const AT_ONCE: usize = 64;
/// Most bytes of the members of a request.
const REQUEST: usize = 1 << 20;

/// A container that is being made; it is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    mount: Mount,
    path: PathBuf,
    /// As requests have it.
    inside: String,
    /// The arrays whose data is stored, by their paths.
    done: HashSet<String>,
    /// Of the directory.
    lock: Option<Lock>,
    /// The file, as it was in the beginning.
    state: Json,
    complete: bool,
}

/// The hidden directory for a container.
pub(super) fn hidden(dest: &Path) -> PathBuf {
    let name = dest.file_name().unwrap_or_default().to_string_lossy();
    // Names have at most 255 bytes.
    let name: String = name.chars().take(50).collect();
    dest.with_file_name(format!("{HIDDEN}{name}"))
}

impl Place {
    /// Makes the container with everything but the data, or finds the one of an import that was killed.
    pub(super) fn of(job: &Job, source: &dyn Source, plan: &Plan<'_>) -> anyhow::Result<Place> {
        let parent = match job.dest.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mount = Mount::of(parent)?;
        let path = hidden(&job.dest);
        if path.symlink_metadata().is_ok() {
            let mut place = Place::locked(mount, path)?;
            place.state = state(&job.file)?;
            if let Some(done) = place.earlier(plan)? {
                place.done = done;
                return Ok(place);
            }
            let path = place.path.clone();
            // Removes it.
            drop(place);
            return Place::new(Mount::of(parent)?, path, job, source, plan);
        }
        Place::new(mount, path, job, source, plan)
    }

    fn locked(mount: Mount, path: PathBuf) -> anyhow::Result<Place> {
        let with = || format!("opening {}", path.display());
        if !path.symlink_metadata().with_context(with)?.is_dir() {
            bail!("{} is in the way; remove it", path.display());
        }
        let own = path.symlink_metadata().with_context(with)?.uid();
        if own != rustix::process::geteuid().as_raw() {
            bail!(
                "{} is of user {own}, who may have changed what is in it; remove it",
                path.display()
            );
        }
        let Some(lock) = Lock::of(&path, &|| false)? else {
            bail!(
                "another import makes {} now; wait for its end",
                path.display()
            );
        };
        let inside = mount.inside(&path)?;
        Ok(Place {
            mount,
            path,
            inside,
            done: HashSet::new(),
            lock: Some(lock),
            state: Json::Null,
            complete: false,
        })
    }

    fn new(
        mount: Mount,
        path: PathBuf,
        job: &Job,
        source: &dyn Source,
        plan: &Plan<'_>,
    ) -> anyhow::Result<Place> {
        // The caller's umask counts, for everything in it.
        std::fs::create_dir(&path).with_context(|| format!("creating {}", path.display()))?;
        let mut place = Place::locked(mount, path)?;
        place.state = state(&job.file)?;
        place.create(source, plan)?;
        let state = json!({ STATE: place.state.to_string() });
        place.tag(&place.inside, &state, &[])?;
        Ok(place)
    }

    fn create(&self, source: &dyn Source, plan: &Plan<'_>) -> anyhow::Result<()> {
        fill(
            &self.mount,
            (&self.path, &self.inside),
            source.is_array(),
            plan,
        )
    }

    /// The arrays that an import which was killed has stored; `None` if this is not the same import.
    fn earlier(&self, plan: &Plan<'_>) -> anyhow::Result<Option<HashSet<String>>> {
        let text = |tags: &Map<String, Json>| match tags.get(STATE) {
            Some(Json::String(text)) => Some(text.clone()),
            _ => None,
        };
        let tags = self.mount.tags(&self.inside)?;
        if text(&tags) != Some(self.state.to_string()) {
            return Ok(None);
        }
        let mut done = HashSet::new();
        for array in &plan.arrays {
            let path = path_of(array);
            // One that is not there was made by another version.
            let Ok(tags) = self.mount.tags(&joined(&self.inside, &path)) else {
                return Ok(None);
            };
            if tags.contains_key(DONE) {
                done.insert(path);
            }
        }
        Ok(Some(done))
    }

    fn tag(&self, path: &str, set: &Json, remove: &[&str]) -> anyhow::Result<()> {
        let change = json!({ "path": path, "set": set, "remove": remove });
        self.mount
            .call(&json!({ "op": "tag", "changes": [change] }))?;
        Ok(())
    }

    /// Where an array is.
    pub(super) fn at(&self, array: &Planned<'_>) -> PathBuf {
        self.path.join(&array.group).join(&array.variable.name)
    }

    /// Whether the data of an array is stored.
    pub(super) fn is_done(&self, array: &Planned<'_>) -> bool {
        self.done.contains(&path_of(array))
    }

    /// Notes that the data of an array is stored.
    pub(super) fn note(&self, array: &Planned<'_>) -> anyhow::Result<()> {
        let path = joined(&self.inside, &path_of(array));
        self.tag(&path, &json!({ DONE: 1 }), &[])
    }

    /// Gives it its name.
    pub(super) fn finish(mut self, job: &Job, array: bool, plan: &Plan<'_>) -> anyhow::Result<()> {
        let dest = &job.dest;
        if state(&job.file)? != self.state {
            bail!("it was changed while it was imported; import it again");
        }
        let arrays = plan.arrays.iter().map(|array| {
            let path = joined(&self.inside, &path_of(array));
            json!({ "path": path, "remove": [DONE] })
        });
        for changes in in_requests(arrays) {
            self.mount
                .call(&json!({ "op": "tag", "changes": changes }))?;
        }
        self.tag(&self.inside, &json!({}), &[STATE])?;
        let from = match plan.arrays.first().filter(|_| array) {
            Some(array) => self.at(array),
            None => self.path.clone(),
        };
        // Not over something that appeared meanwhile.
        renameat_with(CWD, &from, CWD, dest, RenameFlags::NOREPLACE)
            .with_context(|| format!("giving it the name {}", dest.display()))?;
        // The directory of an array is removed.
        self.complete = !array;
        if let Some(lock) = self.lock.as_mut().filter(|_| !array) {
            lock.moved(dest);
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.complete {
            return;
        }
        if let Some(lock) = &mut self.lock {
            lock.leave_file();
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            eprintln!("slabfs: cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Makes a container with everything but the data.
pub(crate) fn make(mount: &Mount, path: &Path, plan: &Plan<'_>) -> anyhow::Result<()> {
    std::fs::create_dir(path).with_context(|| format!("creating {}", path.display()))?;
    fill(mount, (path, &mount.inside(path)?), false, plan)
}

/// Makes what a plan has in a directory; `inside` is the directory as requests have it.
fn fill(
    mount: &Mount,
    (path, inside): (&Path, &str),
    is_array: bool,
    plan: &Plan<'_>,
) -> anyhow::Result<()> {
    for (below, _) in plan.containers.iter().skip(1) {
        let place = path.join(below);
        std::fs::create_dir(&place).with_context(|| format!("creating {}", place.display()))?;
    }
    for (below, target) in &plan.links {
        let place = path.join(below);
        std::os::unix::fs::symlink(target, &place)
            .with_context(|| format!("creating {}", place.display()))?;
    }
    let mode = rights::of_new_files();
    let objects = plan.arrays.iter().map(|array| array.object.clone());
    for objects in in_requests(objects) {
        mount.call(&json!({ "op": "create", "in": inside, "mode": mode, "objects": objects }))?;
    }
    let changes = plan.tags(inside).into_iter();
    // The directory of an array is removed: its tags are the array's.
    let changes = changes.filter(|change| !is_array || change["path"] != *inside);
    for changes in in_requests(changes) {
        mount.call(&json!({ "op": "tag", "changes": changes }))?;
    }
    Ok(())
}

fn path_of(array: &Planned<'_>) -> String {
    joined(&array.group, &array.variable.name)
}

/// What a file is now.
fn state(file: &Path) -> anyhow::Result<Json> {
    let with = || format!("looking at {}", file.display());
    let real = file.canonicalize().with_context(with)?;
    let metadata = real.metadata().with_context(with)?;
    Ok(json!({
        "file": real.to_string_lossy(),
        "size": metadata.size(),
        "inode": metadata.ino(),
        "changed": format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec()),
        "status": format!("{}.{:09}", metadata.ctime(), metadata.ctime_nsec()),
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

/// Divides the members of requests, which have at most 4 MiB and few thousand tags.
pub(super) fn in_requests(members: impl Iterator<Item = Json>) -> Vec<Vec<Json>> {
    let mut requests: Vec<Vec<Json>> = Vec::new();
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
