//! A writer: random operations, one system call at a time, each noted in the model.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use slabfs_tests::Random;
use slabfs_tests::file::{self, named};

use super::model::{Model, Node, ROW, ROWS};
use super::seen::look;

/// The most names in a writer's directory; above that names go.
const NAMES: usize = 60;

/// The most open files without names.
const HELD: usize = 4;

/// One operation.
#[derive(Debug, Clone)]
enum Step {
    Create(String),
    Mkdir(String),
    Symlink(String, String),
    Elastic(String),
    Layout(String, &'static str),
    Dims(String, u64),
    Write {
        name: String,
        row: usize,
        byte: u8,
        selected: bool,
        sync: bool,
    },
    Sync(String),
    Empty(String),
    Tag(String, String, String),
    Untag(String, String),
    Rename(String, String),
    Exchange(String, String),
    Link(String, String),
    Unlink(String),
    /// While it is open, and it stays so.
    UnlinkOpen(String),
    Rmdir(String),
    SyncDir,
}

/// A writer, its directory and its model.
pub(super) struct Worker {
    dir: PathBuf,
    random: Random,
    model: Model,
    /// The model if the operation that did not return happened.
    other: Option<Model>,
    done: Vec<String>,
    /// Open files without names.
    held: Vec<File>,
    number: u64,
}

impl Worker {
    pub(super) fn new(mnt: PathBuf, number: u64, seed: u64) -> Worker {
        Worker {
            dir: mnt.join(format!("w{number}")),
            random: Random::new(seed),
            model: Model::default(),
            other: None,
            done: Vec::new(),
            held: Vec::new(),
            number,
        }
    }

    pub(super) fn prepare(&self) {
        std::fs::create_dir(&self.dir).expect("made");
        file::sync_dir(&self.dir).expect("synced");
    }

    /// Does one operation after the other until one fails. That may be once `end` is set.
    pub(super) fn run(&mut self, done: &AtomicU64, end: &AtomicBool) {
        loop {
            let Some(step) = self.step() else { continue };
            let before = self.model.clone();
            let result = self.play(&step);
            self.done.push(format!("{step:?} {result:?}"));
            if let Err(error) = result {
                // What the model shows now is what would be if it had happened.
                self.other = Some(std::mem::replace(&mut self.model, before));
                // A write under way may be there even if only its sync failed.
                if let Step::Write {
                    name, row, byte, ..
                } = &step
                    && let Some(object) = self.model.object(name)
                {
                    object.write(*row, *byte);
                }
                if !end.swap(true, Ordering::SeqCst) {
                    println!("writer {}: {step:?} failed: {error}", self.number);
                }
                return;
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Holds what is there against the model; the one that fits is the model from now on.
    pub(super) fn compare(&mut self, round: u64) {
        self.held.clear();
        let seen = look(&self.dir);
        let as_it_was = seen.fits(&self.model);
        let happened = self.other.take().map(|other| (seen.fits(&other), other));
        match (as_it_was, happened) {
            (Ok(()), _) => {}
            (Err(_), Some((Ok(()), other))) => self.model = other,
            (Err(before), after) => {
                let from = self.done.len().saturating_sub(30);
                panic!(
                    "round {round}, writer {}: {before}\nif the last had happened: {:?}\nafter\n{}",
                    self.number,
                    after.map(|(why, _)| why),
                    self.done[from..].join("\n")
                )
            }
        }
        seen.settle(&mut self.model);
    }

    fn objects(&self) -> Vec<String> {
        self.model.names_of(|node| matches!(node, Node::Object(_)))
    }

    fn pick(&mut self, from: &[String]) -> Option<String> {
        (!from.is_empty()).then(|| self.random.pick(from).clone())
    }

    /// A name that may be new, in some directory.
    fn place(&mut self) -> String {
        let dirs = self.model.names_of(|node| *node == Node::Directory);
        let name = format!("n{}", self.random.range(0, 2 * NAMES as u64));
        match self.pick(&dirs) {
            Some(dir) if self.random.one_in(2) && dir.len() < 60 => format!("{dir}/{name}"),
            _ => name,
        }
    }

    /// The next operation, one that is allowed; nothing when the dice made none.
    fn step(&mut self) -> Option<Step> {
        let objects = self.objects();
        let place = self.place();
        let free = !self.model.names.contains_key(&place);
        let name = self.pick(&objects);
        let full = self.model.names.len() >= NAMES;
        let tag = format!("{}", self.random.range(0, 5));
        let kind = self.random.range(0, 35);
        Some(match (kind, name) {
            (0..5, _) if free && !full => Step::Create(place),
            (5, _) if free && !full => Step::Mkdir(place),
            (6, _) if free && !full => Step::Symlink(place, format!("to{}", self.random.number())),
            (7..9, Some(name)) => {
                let object = self.model.object(&name)?;
                if object.touched || object.dims.is_none() {
                    return None;
                }
                if !object.elastic {
                    return Some(Step::Elastic(name));
                }
                let layout =
                    *self
                        .random
                        .pick(&["grid:4,1000", "canonical", "aligned", "grid:5,300"]);
                Step::Layout(name, layout)
            }
            (9..12, Some(name)) => {
                let object = self.model.object(&name)?;
                match (object.dims, object.elastic) {
                    (None, _) if !object.touched => Step::Dims(name, ROWS as u64),
                    (Some(_), true) => Step::Dims(name, self.random.range(0, ROWS as u64 + 1)),
                    _ => return None,
                }
            }
            (12..20, Some(name)) => {
                let object = self.model.object(&name)?;
                let dims = object.dims;
                if dims.is_some() && !object.elastic {
                    return Some(Step::Elastic(name));
                }
                let rows = dims.map_or(ROWS, |rows| rows as usize);
                if rows == 0 {
                    return None;
                }
                Step::Write {
                    row: self.random.range(0, rows as u64) as usize,
                    byte: self.random.range(1, 256) as u8,
                    selected: dims.is_some() && self.random.one_in(2),
                    sync: self.random.one_in(2),
                    name,
                }
            }
            (20, Some(name)) => Step::Sync(name),
            (21..25, Some(name)) => {
                let value = self.random.number().to_string();
                Step::Tag(name, tag, value)
            }
            (25, Some(name)) => {
                let there = self.model.object(&name)?.tags.contains_key(&tag);
                return there.then_some(Step::Untag(name, tag));
            }
            (26..29, Some(name)) if free => Step::Rename(name, place),
            (29, Some(name)) => {
                let other = self.pick(&objects)?;
                if self.random.one_in(2) {
                    Step::Rename(name, other)
                } else {
                    Step::Exchange(name, other)
                }
            }
            (30, Some(name)) if free => {
                let dirs = self.model.names_of(|node| *node == Node::Directory);
                let dir = self.pick(&dirs);
                match dir {
                    // A whole directory, but not into itself.
                    Some(dir) if self.random.one_in(2) && !place.starts_with(&dir) => {
                        Step::Rename(dir, place)
                    }
                    _ => Step::Link(name, place),
                }
            }
            (31, Some(name)) if full || self.random.one_in(2) => Step::Unlink(name),
            (32, Some(name)) if full => Step::UnlinkOpen(name),
            (32, _) => {
                let dirs = self.model.names_of(|node| *node == Node::Directory);
                let dir = self.pick(&dirs)?;
                let below = format!("{dir}/");
                let empty = !self.model.names.keys().any(|name| name.starts_with(&below));
                return empty.then_some(Step::Rmdir(dir));
            }
            (33, _) => Step::SyncDir,
            (34, Some(name)) if self.random.one_in(2) => Step::Empty(name),
            (_, Some(name)) if full => Step::Unlink(name),
            _ => return None,
        })
    }

    /// Does it, and to the model what it does; that is done also when it fails.
    fn play(&mut self, step: &Step) -> std::io::Result<()> {
        let at = |name: &str| self.dir.join(name);
        let flags = nix::fcntl::RenameFlags::RENAME_EXCHANGE;
        match step {
            Step::Create(name) => {
                self.model.create(name);
                let options = &mut std::fs::OpenOptions::new();
                file::close(options.write(true).create_new(true).open(at(name))?)
            }
            Step::Mkdir(name) => {
                self.model.names.insert(name.clone(), Node::Directory);
                std::fs::create_dir(at(name))
            }
            Step::Symlink(name, target) => {
                let node = Node::Symlink(target.clone());
                self.model.names.insert(name.clone(), node);
                std::os::unix::fs::symlink(target, at(name))
            }
            Step::Elastic(name) => {
                if let Some(object) = self.model.object(name) {
                    object.elastic = true;
                }
                let max = format!("{ROWS},{ROW}");
                file::set_xattr(&at(name), "user.slabfs.max_dims", max, 0)
            }
            Step::Layout(name, layout) => {
                file::set_xattr(&at(name), "user.slabfs.layout", layout, 0)
            }
            Step::Dims(name, rows) => {
                let mut how = "user.slabfs.dims";
                if let Some(object) = self.model.object(name) {
                    if object.dims.is_some() {
                        how = "user.slabfs.resize";
                    }
                    object.resize(*rows);
                }
                file::set_xattr(&at(name), how, format!("{rows},{ROW}"), 0)
            }
            Step::Write { .. } => self.write(step),
            Step::Sync(name) => {
                File::open(at(name))?.sync_all()?;
                if let Some(object) = self.model.object(name) {
                    object.synced();
                }
                Ok(())
            }
            Step::Empty(name) => {
                if let Some(object) = self.model.object(name) {
                    object.empty();
                }
                file::close(File::create(at(name))?)
            }
            Step::Tag(name, tag, value) => {
                if let Some(object) = self.model.object(name) {
                    object.tags.insert(tag.clone(), value.clone());
                }
                file::set_xattr(&at(name), &format!("user.t{tag}"), value, 0)
            }
            Step::Untag(name, tag) => {
                if let Some(object) = self.model.object(name) {
                    object.tags.remove(tag);
                }
                file::remove_xattr(&at(name), &format!("user.t{tag}"))
            }
            Step::Rename(from, to) => {
                self.model.rename(from, to);
                std::fs::rename(at(from), at(to))
            }
            Step::Exchange(a, b) => {
                self.model.exchange(a, b);
                let here = nix::fcntl::AT_FDCWD;
                Ok(nix::fcntl::renameat2(here, &at(a), here, &at(b), flags)?)
            }
            Step::Link(from, to) => {
                self.model.link(from, to);
                std::fs::hard_link(at(from), at(to))
            }
            Step::Unlink(name) => {
                self.model.remove(name);
                std::fs::remove_file(at(name))
            }
            Step::UnlinkOpen(name) => {
                let file = std::fs::OpenOptions::new().write(true).open(at(name))?;
                self.model.remove(name);
                std::fs::remove_file(at(name))?;
                if self.held.len() >= HELD {
                    self.held.remove(0);
                }
                self.held.push(file);
                Ok(())
            }
            Step::Rmdir(name) => {
                self.model.names.remove(name);
                std::fs::remove_dir(at(name))
            }
            Step::SyncDir => file::sync_dir(&self.dir),
        }
    }

    /// A row, through the file or through a selection of it.
    fn write(&mut self, step: &Step) -> std::io::Result<()> {
        let Step::Write {
            name,
            row,
            byte,
            selected,
            sync,
        } = step
        else {
            return Ok(());
        };
        let path = self.dir.join(name);
        if let Some(object) = self.model.object(name) {
            object.write(*row, *byte);
        }
        let (path, offset) = if *selected {
            (named(&path, &format!("@[{row}]")), 0)
        } else {
            (path, (row * ROW) as u64)
        };
        let file = std::fs::OpenOptions::new().write(true).open(path)?;
        file.write_all_at(&[*byte; ROW], offset)?;
        if *sync {
            file.sync_all()?;
            if let Some(object) = self.model.object(name) {
                object.synced();
            }
        }
        file::close(file)
    }
}
