//! `slabfs export`: a container, or one array, becomes a NetCDF-4 file.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value, json};
use slabfs_formats::netcdf::{Writer, parts};
use slabfs_formats::tree::Group;

use crate::args::Export;
use crate::mapping::{attribute_of, define_dims, joined, variable_of};
use crate::mount::{Mount, attribute};

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;

/// The tree that is exported, and where its arrays are.
struct Source<'a> {
    mount: &'a Mount,
    /// Tags of the containers by their path in the file.
    tags: HashMap<String, Map<String, Value>>,
    /// Files of the arrays by the path of their group and their name.
    files: HashMap<(String, String), PathBuf>,
}

pub(crate) fn run(args: &Export) -> anyhow::Result<()> {
    if args.file.extension().is_none_or(|end| end != "nc") {
        bail!(
            "{} does not end in .nc, the format that can be written",
            args.file.display()
        );
    }
    let parent = args.file.parent().filter(|parent| *parent != Path::new(""));
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        bail!("{} is not a directory; create it first", parent.display());
    }
    let mount = Mount::of(&args.source)?;
    let mut source = Source {
        mount: &mount,
        tags: HashMap::new(),
        files: HashMap::new(),
    };
    let mut tree = match args.source.is_dir() {
        true => source.container(&args.source, "", "")?,
        false => {
            let mut tree = Group::default();
            source.array(&args.source, "", &mut tree)?;
            tree
        }
    };
    define_dims(&mut tree, "", &source.tags, &mut Vec::new())?;
    let mut writer = Writer::create(&args.file, &tree)?;
    let mut failed = None;
    tree.each(&mut |path, group| {
        if failed.is_none() {
            failed = source.copy(&mut writer, path, group).err();
        }
    });
    match failed {
        Some(error) => Err(error),
        None => Ok(writer.finish()?),
    }
}

impl Source<'_> {
    fn container(&mut self, place: &Path, path: &str, name: &str) -> anyhow::Result<Group> {
        let mut group = Group {
            name: name.to_owned(),
            ..Group::default()
        };
        let tags = self.tags_of(place)?;
        for (key, value) in &tags {
            let attribute =
                attribute_of(key, value).with_context(|| place.display().to_string())?;
            group.attributes.extend(attribute);
        }
        self.tags.insert(path.to_owned(), tags);
        let with = || format!("reading {}", place.display());
        let mut entries = std::fs::read_dir(place)
            .with_context(with)?
            .collect::<std::io::Result<Vec<_>>>()
            .with_context(with)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
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
            } else {
                bail!(
                    "{} is neither a file nor a directory, which NetCDF cannot have",
                    below.display()
                );
            }
        }
        Ok(group)
    }

    fn array(&mut self, place: &Path, path: &str, group: &mut Group) -> anyhow::Result<()> {
        let name = place.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("the name of {} is not UTF-8", place.display()))?;
        let info: Value = serde_json::from_str(&attribute(place, "user.slabfs.info")?)?;
        let tags = self.tags_of(place)?;
        let variable = variable_of(name, &info, &tags);
        group
            .variables
            .push(variable.with_context(|| place.display().to_string())?);
        let key = (path.to_owned(), name.to_owned());
        self.files.insert(key, place.to_owned());
        Ok(())
    }

    fn tags_of(&self, place: &Path) -> anyhow::Result<Map<String, Value>> {
        let path = self.mount.inside(place)?;
        let mut request = json!({ "op": "tags", "path": path, "typed": true, "after": "" });
        let mut all = Map::new();
        loop {
            let mut page = self.mount.call(&request)?;
            if let Some(Value::Object(tags)) = page.get_mut("tags").map(Value::take) {
                all.extend(tags);
            }
            match page.get_mut("next").map(Value::take) {
                Some(Value::String(next)) => request["after"] = Value::String(next),
                _ => return Ok(all),
            }
        }
    }

    fn copy(&self, writer: &mut Writer, path: &str, group: &Group) -> anyhow::Result<()> {
        for variable in &group.variables {
            let key = (path.to_owned(), variable.name.clone());
            let place = self.files.get(&key).context("an array without a file")?;
            let with = || format!("reading {}", place.display());
            let array = File::open(place).with_context(with)?;
            let mut bytes = Vec::new();
            let mut offset = 0;
            for (start, count) in parts(&variable.shape(), variable.dtype.size(), PART) {
                let len = count.iter().product::<u64>() * variable.dtype.size();
                bytes.resize(len as usize, 0);
                array.read_exact_at(&mut bytes, offset).with_context(with)?;
                writer.write(path, variable, &start, &count, &bytes)?;
                offset += len;
            }
        }
        Ok(())
    }
}
