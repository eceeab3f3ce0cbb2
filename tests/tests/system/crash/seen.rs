//! The contents of a directory as a program sees them, compared with the model.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use slabfs_tests::file;

use super::model::{Model, Node, ROW, ROWS, Row};

/// One name on the mount.
#[derive(Debug)]
struct Found {
    ino: u64,
    links: u64,
    symlink: Option<String>,
    directory: bool,
    tags: BTreeMap<String, String>,
    dims: Option<String>,
    content: Vec<u8>,
}

/// Everything below a directory.
#[derive(Debug, Default)]
pub(super) struct Seen {
    names: BTreeMap<String, Found>,
}

/// Reads all of a directory.
pub(super) fn look(dir: &Path) -> Seen {
    let mut seen = Seen::default();
    let mut left = vec![String::new()];
    while let Some(below) = left.pop() {
        let here = dir.join(&below);
        for entry in std::fs::read_dir(&here).unwrap_or_else(|e| panic!("{below:?}: {e}")) {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("text");
            let name = if below.is_empty() {
                name
            } else {
                format!("{below}/{name}")
            };
            let found = one(&entry.path());
            if found.directory {
                left.push(name.clone());
            }
            assert!(seen.names.insert(name, found).is_none(), "listed twice");
        }
    }
    seen
}

fn one(path: &Path) -> Found {
    let meta = path
        .symlink_metadata()
        .unwrap_or_else(|e| panic!("{} is listed, and: {e}", path.display()));
    let mut found = Found {
        ino: meta.ino(),
        links: meta.nlink(),
        symlink: None,
        directory: meta.is_dir(),
        tags: BTreeMap::new(),
        dims: None,
        content: Vec::new(),
    };
    if meta.is_symlink() {
        let target = std::fs::read_link(path).expect("a target");
        found.symlink = Some(target.into_os_string().into_string().expect("text"));
    } else if meta.is_file() {
        for name in file::list_xattrs(path) {
            if let Some(tag) = name.strip_prefix("user.t") {
                found.tags.insert(tag.to_owned(), file::xattr(path, &name));
            }
        }
        found.dims = Some(file::xattr(path, "user.slabfs.dims"));
        found.content = file::read(path);
        assert_eq!(found.content.len() as u64, meta.len(), "{}", path.display());
    }
    found
}

impl Seen {
    /// Whether the model allows this state; otherwise the difference.
    pub(super) fn fits(&self, model: &Model) -> Result<(), String> {
        let (here, wanted): (Vec<_>, Vec<_>) =
            (self.names.keys().collect(), model.names.keys().collect());
        if here != wanted {
            let gone: Vec<_> = wanted.iter().filter(|name| !here.contains(name)).collect();
            let more: Vec<_> = here.iter().filter(|name| !wanted.contains(name)).collect();
            return Err(format!("gone: {gone:?}, not expected: {more:?}"));
        }
        let mut numbers: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for (name, node) in &model.names {
            let found = &self.names[name];
            let wrong = |what: String| Err(format!("{name}: {what}"));
            match node {
                Node::Directory if found.directory => {}
                Node::Symlink(target) if found.symlink.as_ref() == Some(target) => {}
                Node::Object(number) if found.symlink.is_none() && !found.directory => {
                    numbers.entry(*number).or_default().insert(found.ino);
                    let links = model.names.values().filter(|other| *other == node).count();
                    if found.links != links as u64 {
                        return wrong(format!("{} links for {links}", found.links));
                    }
                    let object = &model.objects[number];
                    if found.tags != object.tags {
                        return wrong(format!("tags {:?} for {:?}", found.tags, object.tags));
                    }
                    let dims = object.dims.map(|rows| format!("{rows},{ROW}"));
                    if dims.is_some() && found.dims != dims {
                        return wrong(format!("dims {:?} for {dims:?}", found.dims));
                    }
                    let sizes = match object.dims {
                        Some(rows) => rows as usize * ROW..=rows as usize * ROW,
                        None => object.rows * ROW..=object.rows.max(object.reach) * ROW,
                    };
                    if !sizes.contains(&found.content.len()) {
                        return wrong(format!("{} bytes for {sizes:?}", found.content.len()));
                    }
                    for (at, row) in object.content.iter().enumerate() {
                        let bytes = found.content.chunks(ROW).nth(at).unwrap_or_default();
                        if let Err(what) = fits(row, bytes) {
                            return wrong(format!("row {at}: {what}"));
                        }
                    }
                }
                _ => return wrong(format!("is {found:?} and should be {node:?}")),
            }
        }
        match numbers.values().find(|inos| inos.len() > 1) {
            Some(inos) => Err(format!("links of one object are inodes {inos:?}")),
            None => Ok(()),
        }
    }

    /// Sets the stored values of the model to the observed ones.
    pub(super) fn settle(&self, model: &mut Model) {
        for (name, node) in &model.names {
            let Node::Object(number) = node else { continue };
            let Some(object) = model.objects.get_mut(number) else {
                continue;
            };
            let content = &self.names[name].content;
            for (at, row) in object.content.iter_mut().enumerate().take(ROWS) {
                row.pending.clear();
                row.last = None;
                row.stored = content.chunks(ROW).nth(at).unwrap_or_default().to_vec();
            }
            if object.dims.is_none() {
                object.rows = content.len().div_ceil(ROW);
                object.reach = object.rows;
            }
        }
    }
}

/// Each byte is the stored one (zero where nothing was), or that of a write that was not synced.
fn fits(row: &Row, bytes: &[u8]) -> Result<(), String> {
    let wrong = bytes.iter().enumerate().find(|&(at, byte)| {
        *byte != row.stored.get(at).copied().unwrap_or(0) && !row.pending.contains(byte)
    });
    match wrong {
        None => Ok(()),
        Some((at, byte)) => Err(format!(
            "byte {at} of {} is {byte}, stored {:?}, not synced {:?}",
            bytes.len(),
            row.stored.get(at),
            row.pending
        )),
    }
}
