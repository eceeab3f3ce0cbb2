//! The next operation of a writer, chosen among those that are allowed in its state.

use super::load::Worker;
use super::model::{Node, ROWS};

/// The most names in a writer's directory; above that names are removed.
const NAMES: usize = 60;

/// Tags that objects may have, by number.
pub(super) const TAGS: u64 = 5;

/// One operation.
#[derive(Debug, Clone)]
pub(super) enum Step {
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
    /// The object is open, and stays open.
    UnlinkOpen(String),
    Rmdir(String),
    SyncDir,
    /// In one request: all of it, or nothing.
    TagMany(Vec<(String, String, u32)>),
    CreateMany(Vec<(String, u32)>),
}

impl Worker {
    fn objects(&self) -> Vec<String> {
        self.model.names_of(|node| matches!(node, Node::Object(_)))
    }

    fn pick(&mut self, from: &[String]) -> Option<String> {
        (!from.is_empty()).then(|| self.random.pick(from).clone())
    }

    /// A name in some directory, possibly new.
    fn place(&mut self) -> String {
        let dirs = self.model.names_of(|node| *node == Node::Directory);
        let name = format!("n{}", self.random.range(0, 2 * NAMES as u64));
        match self.pick(&dirs) {
            Some(dir) if self.random.one_in(2) && dir.len() < 60 => format!("{dir}/{name}"),
            _ => name,
        }
    }

    /// The next operation; `None` if the random choice is not possible.
    pub(super) fn step(&mut self) -> Option<Step> {
        let objects = self.objects();
        let place = self.place();
        let free = !self.model.names.contains_key(&place);
        let name = self.pick(&objects);
        let full = self.model.names.len() >= NAMES;
        let tag = format!("{}", self.random.range(0, TAGS));
        let kind = self.random.range(0, 38);
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
                    // An entire directory, but not into itself.
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
            (35..37, Some(_)) => {
                let count = self.random.range(2, 8);
                let mut changes = Vec::new();
                for _ in 0..count {
                    let name = self.pick(&objects)?;
                    let tag = self.random.range(0, TAGS).to_string();
                    changes.push((name, tag, self.random.number() as u32));
                }
                Step::TagMany(changes)
            }
            (37, _) if free && !full => {
                let made = (0..self.random.range(2, 6))
                    .map(|n| (format!("{place}-{n}"), self.random.number() as u32))
                    .collect::<Vec<_>>();
                let free = made
                    .iter()
                    .all(|(name, _)| !self.model.names.contains_key(name));
                return free.then_some(Step::CreateMany(made));
            }
            (34, Some(name)) if self.random.one_in(2) => Step::Empty(name),
            (_, Some(name)) if full => Step::Unlink(name),
            _ => return None,
        })
    }
}
