//! What is exported: the tree of a container or an array, and where its arrays are.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value};
use slabfs_formats::sink::Format;
use slabfs_formats::tree::{Group, Link};

use super::stored::Cells;
use crate::mount::{Mount, attribute};
use crate::plain;
use slabfs_datamodel::mapping::{
    HIDDEN, Order, attributes_of, define_dims, joined, name_axes, types_of, variable_of,
};

/// Where a tree comes from.
pub(crate) struct Origin<'a> {
    mount: &'a Mount,
    /// Tags of the containers by their path in the file.
    tags: HashMap<String, Map<String, Value>>,
    /// Files of the arrays by the path of their group and their name.
    files: HashMap<(String, String), PathBuf>,
    /// The chunks of arrays that can be copied, by the paths of the arrays.
    cells: HashMap<PathBuf, Cells>,
    /// Whether the format can have such chunks.
    copies: bool,
    /// Files that are no arrays.
    bytes: Vec<PathBuf>,
    /// The rights that everything of it has.
    mode: u32,
}

impl<'a> Origin<'a> {
    pub(crate) fn new(mount: &'a Mount) -> Origin<'a> {
        Origin {
            mount,
            tags: HashMap::new(),
            files: HashMap::new(),
            cells: HashMap::new(),
            copies: false,
            bytes: Vec::new(),
            mode: 0o777,
        }
    }

    /// The tree of a container or an array, as a file of this format has it.
    pub(crate) fn tree(&mut self, source: &Path, format: Format) -> anyhow::Result<Group> {
        self.copies = matches!(format, Format::NetCdf | Format::Hdf5);
        let mut tree = self.undefined(source)?;
        if format == Format::NetCdf {
            name_axes(&mut tree);
        }
        if matches!(format, Format::NetCdf | Format::Hdf5) {
            define_dims(&mut tree, "", &self.tags, &mut Vec::new())?;
        }
        Ok(tree)
    }

    /// The tree without the dimensions that its groups define.
    fn undefined(&mut self, source: &Path) -> anyhow::Result<Group> {
        if source.is_dir() {
            return self.container(source, "", "");
        }
        let mut tree = Group::default();
        self.array(source, "", &mut tree)?;
        Ok(tree)
    }

    /// The rights of who may read all of it.
    pub(super) fn mode(&self) -> u32 {
        self.mode
    }

    /// Says which files become arrays of bytes.
    pub(super) fn say_bytes(&self, source: &Path) {
        if self.bytes.is_empty() {
            return;
        }
        let names = self.bytes.iter().take(3).map(|place| {
            let below = place.strip_prefix(source).ok();
            let below = below.filter(|below| !below.as_os_str().is_empty());
            plain(&below.unwrap_or(place).to_string_lossy())
        });
        let names: Vec<String> = names.collect();
        let more = match self.bytes.len() - names.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        eprintln!(
            "slabfs: note: files that are no arrays become arrays of bytes: {}{more}",
            names.join(", ")
        );
    }

    /// The tree of a container or an array as it is on the mount, with the dimensions that its groups define.
    pub(crate) fn model(&mut self, source: &Path) -> anyhow::Result<Group> {
        let mut tree = self.undefined(source)?;
        define_dims(&mut tree, "", &self.tags, &mut Vec::new())?;
        Ok(tree)
    }

    /// The file of an array.
    pub(crate) fn place(&self, group: &str, name: &str) -> anyhow::Result<&Path> {
        let found = self.files.get(&(group.to_owned(), name.to_owned()));
        Ok(found.context("an array without a file")?)
    }

    /// The chunks of an array that can be copied as they are.
    pub(super) fn cells(&self, place: &Path) -> Option<&Cells> {
        self.cells.get(place)
    }

    fn container(&mut self, place: &Path, path: &str, name: &str) -> anyhow::Result<Group> {
        let what = || place.display().to_string();
        let tags = self.mount.tags(&self.mount.inside(place)?)?;
        let mut group = Group {
            name: name.to_owned(),
            attributes: attributes_of(&tags).with_context(what)?,
            types: types_of(&tags).with_context(what)?,
            ..Group::default()
        };
        let order = Order::of_entries(&tags);
        self.tags.insert(path.to_owned(), tags);
        let with = || format!("reading {}", place.display());
        self.mode &= place.metadata().with_context(with)?.mode();
        let mut entries = std::fs::read_dir(place)
            .with_context(with)?
            .collect::<std::io::Result<Vec<_>>>()
            .with_context(with)?;
        entries.sort_by_cached_key(|entry| order.key(&entry.file_name().to_string_lossy()));
        for entry in entries {
            if is_unfinished(&entry.file_name()) {
                continue;
            }
            let kind = entry.file_type()?;
            let below = entry.path();
            let name = entry.file_name();
            let name = name
                .to_str()
                .with_context(|| format!("the name of {} is not UTF-8", below.display()))?;
            if kind.is_dir() {
                let group_below = self.container(&below, &joined(path, name), name)?;
                group.groups.push(group_below);
            } else if kind.is_file() {
                self.array(&below, path, &mut group)?;
            } else if kind.is_symlink() {
                group.links.push(link(&below, path, name)?);
            } else {
                bail!(
                    "{} is neither a file nor a directory, which no format can have",
                    below.display()
                );
            }
        }
        Ok(group)
    }

    fn array(&mut self, place: &Path, path: &str, group: &mut Group) -> anyhow::Result<()> {
        let name = place.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("the name of {} is not UTF-8", place.display()))?;
        if name.contains("@[") && name.ends_with(']') {
            bail!(
                "{}: a selection cannot be exported. Export the array, or copy the selection to an array of its own: slabfs \
                 create PART --dims … --dtype …; cp '{name}' PART",
                place.display()
            );
        }
        self.mode &= place.metadata()?.mode();
        let info: Value = serde_json::from_str(&attribute(place, "user.slabfs.info")?)?;
        let tags = self.mount.tags(&self.mount.inside(place)?)?;
        let variable = variable_of(name, &info, &tags);
        let mut variable = variable.with_context(|| place.display().to_string())?;
        if info["kind"] != "array" {
            self.bytes.push(place.to_owned());
            variable.max.clear();
            variable
                .dims
                .iter_mut()
                .for_each(|dim| dim.dim.unlimited = false);
        }
        let chunks = info["chunks"].as_u64().unwrap_or(0);
        if self.copies
            && let Some(cells) = Cells::of(self.mount, place, &variable, chunks)?
        {
            variable.chunk = Some(cells.shape.clone());
            self.cells.insert(place.to_owned(), cells);
        }
        group.variables.push(variable);
        let key = (path.to_owned(), name.to_owned());
        self.files.insert(key, place.to_owned());
        Ok(())
    }
}

/// Whether this is what an import or a join makes now, or its lock.
fn is_unfinished(name: &std::ffi::OsStr) -> bool {
    name.as_encoded_bytes().starts_with(HIDDEN.as_bytes())
}

/// A symbolic link of the container `path`; one that leads out of what is exported is refused.
fn link(place: &Path, path: &str, name: &str) -> anyhow::Result<Link> {
    let target = std::fs::read_link(place).with_context(|| place.display().to_string())?;
    let outside = || format!("{} leads out of what is exported", place.display());
    let text = target.to_str().with_context(outside)?;
    if text.starts_with('/') {
        bail!(outside());
    }
    if !text.split('/').any(|part| part == "..") {
        return Ok(Link {
            name: name.to_owned(),
            target: text.to_owned(),
        });
    }
    // HDF5 knows no `..`: the path is one from the root.
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => bail!(outside()),
            ".." => {}
            part => parts.push(part),
        }
    }
    Ok(Link {
        name: name.to_owned(),
        target: format!("/{}", parts.join("/")),
    })
}
