//! `--append`: the records of files follow those of arrays that exist.
//!
//! The file may extend one dimension, the first one of its arrays. All arrays of the container that have it grow together:
//! records begin at the end of the longest, and what a file has no records for is the fill value. All other variables must be
//! equal. All files are checked before anything is written.
//!
//! An append has a lock on DEST, and others wait for it. Before it writes it notes the lengths of the arrays in tags of them
//! ([`LENGTH`]), and then that it is at work in one of DEST ([`STATE`]). An append that is interrupted cuts the arrays back. One
//! that was killed left the tag of DEST: the next one cuts the arrays back before it begins.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::{Value as Json, json};
use slabfs_datamodel::mapping::joined;
use slabfs_formats::boxes::{Block, Boxes};
use slabfs_formats::source::{self, Source};
use slabfs_formats::tree::{Attribute, Group, Variable};

use super::place::in_requests;
use super::{jobs, limits, named, watch};
use crate::args::Import;
use crate::blocks::Array;
use crate::export::Origin;
use crate::lock::Lock;
use crate::mount::Mount;
use crate::{plain, progress, signals};

/// How much data is read and written at a time.
const PART: u64 = 8 << 20;
/// The tag of DEST while an append writes.
const STATE: &str = "_slabfs_append";
/// The tag of an array with its length before that.
const LENGTH: &str = "_slabfs_length";

/// An array that may grow, or must be equal.
struct Target {
    place: PathBuf,
    array: Variable,
    /// The group that defines the first dimension, and its name; `None` for one without a name.
    dim: Option<(String, String)>,
}

impl Target {
    fn grows(&self) -> bool {
        self.array.max.first() == Some(&None)
    }

    /// The elements of the first axis.
    fn len(&self) -> u64 {
        self.array.shape().first().copied().unwrap_or(0)
    }

    /// Bytes of what one element of the first axis has.
    fn row(&self) -> u64 {
        let shape = self.array.shape();
        let inner = shape.iter().skip(1);
        inner.fold(self.array.dtype.size(), |all, &len| all.saturating_mul(len))
    }

    fn resize(&self, len: u64) -> std::io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.place)?;
        file.set_len(len.saturating_mul(self.row()))
    }
}

/// A variable of a file and the number of its array.
struct Pair {
    group: String,
    variable: Variable,
    target: usize,
}

/// What is appended to.
struct Dest {
    mount: Mount,
    path: PathBuf,
    targets: Vec<Target>,
    /// Has the lock.
    _lock: Lock,
}

pub(super) fn run(args: &Import) -> anyhow::Result<()> {
    let mut files = jobs::files(args)?;
    if args.dest.symlink_metadata().is_err() {
        // The first file makes what the others are appended to.
        let file = files.remove(0);
        let first = Import {
            append: false,
            files: vec![file],
            ..args.clone()
        };
        super::import(&first)?;
        if args.dry_run || files.is_empty() {
            return Ok(());
        }
    }
    let mut dest = Dest::of(&args.dest)?;
    let mut sources = Vec::new();
    for file in &files {
        watch::say(file);
        limits::allow(limits::OPENING)?;
        let source = source::open(file)?;
        let tree = named(&*source, &args.dest);
        let cannot = || format!("{} cannot be appended", file.display());
        let pairs = dest.pairs(&*source, &tree).with_context(cannot)?;
        let growth = dest.growth(&pairs).with_context(cannot)?;
        sources.push((file, source, pairs, growth));
    }
    // Equal values are looked at when everything else is known to fit.
    for (file, source, pairs, _) in &sources {
        for pair in pairs
            .iter()
            .filter(|pair| !dest.targets[pair.target].grows())
        {
            equal(&**source, pair, &dest.targets[pair.target])
                .with_context(|| format!("{} cannot be appended", file.display()))?;
        }
    }
    if args.dry_run {
        for (file, _, _, growth) in &sources {
            for &(target, from, to) in growth {
                let place = plain(&dest.targets[target].place.to_string_lossy());
                println!("{place} grows from {from} to {to} by {}", file.display());
            }
        }
        return Ok(());
    }
    for (file, source, pairs, _) in &sources {
        watch::say(file);
        let done = dest.append(&**source, pairs);
        let (arrays, bytes) = done.with_context(|| format!("appending {}", file.display()))?;
        if args.json {
            let line = json!({
                "file": file.to_string_lossy(),
                "dest": args.dest.to_string_lossy(),
                "arrays": arrays,
                "bytes": bytes,
            });
            println!("{line}");
        }
    }
    Ok(())
}

/// Cuts off what an append wrote that has crashed.
pub(super) fn recover(path: &Path) -> anyhow::Result<()> {
    Dest::of(path).map(|_| ())
}

impl Dest {
    fn of(path: &Path) -> anyhow::Result<Dest> {
        let wait = || {
            eprintln!(
                "slabfs: note: waiting for another append to {}",
                path.display()
            );
            true
        };
        let lock = Lock::of(path, &wait)?.context("no lock")?;
        let mount = Mount::of(path)?;
        let mut dest = Dest {
            mount,
            path: path.to_owned(),
            targets: Vec::new(),
            _lock: lock,
        };
        dest.read()?;
        if dest
            .mount
            .tags(&dest.mount.inside(path)?)?
            .contains_key(STATE)
        {
            eprintln!(
                "slabfs: note: an append to {} was killed; what it wrote is removed",
                path.display()
            );
            dest.cut_back()?;
            dest.read()?;
        }
        Ok(dest)
    }

    /// Reads what arrays there are.
    fn read(&mut self) -> anyhow::Result<()> {
        let tree = Origin::new(&self.mount).model(&self.path)?;
        let is_array = !self.path.is_dir();
        self.targets.clear();
        tree.each(&mut |path, group| {
            for variable in &group.variables {
                let below = Path::new(path).join(&variable.name);
                let first = variable.dims.first();
                let dim = first.filter(|dim| !dim.dim.name.is_empty());
                self.targets.push(Target {
                    place: match is_array {
                        true => self.path.clone(),
                        false => self.path.join(below),
                    },
                    array: variable.clone(),
                    dim: dim.map(|dim| (above(path, dim.up), dim.dim.name.clone())),
                });
            }
        });
        Ok(())
    }

    fn target(&self, place: &Path) -> Option<usize> {
        self.targets.iter().position(|one| one.place == place)
    }

    /// The variables of a file with the arrays of their names.
    fn pairs(&self, source: &dyn Source, tree: &Group) -> anyhow::Result<Vec<Pair>> {
        let mut groups = Vec::new();
        tree.each(&mut |path, group| groups.push((path.to_owned(), group)));
        let mut pairs = Vec::new();
        for (path, group) in groups {
            for (at, variable) in group.variables.iter().enumerate() {
                let what = joined(&path, &variable.name);
                let place = match source.is_array() {
                    true => self.path.clone(),
                    false => self.path.join(&what),
                };
                let named = || format!("variable {what}");
                let target = self.target(&place);
                let target = target.with_context(|| format!("{} is no array", place.display()));
                let target = target.with_context(named)?;
                fits(variable, &self.targets[target]).with_context(named)?;
                // The source knows it by its own name.
                let own = match source.is_array() {
                    true => source.tree().variables.get(at),
                    false => Some(variable),
                };
                pairs.push(Pair {
                    group: path.clone(),
                    variable: own.context("it has no array")?.clone(),
                    target,
                });
            }
        }
        Ok(pairs)
    }

    /// The arrays that grow by a file: from what length, at which its records begin, to what length.
    fn growth(&self, pairs: &[Pair]) -> anyhow::Result<Vec<(usize, u64, u64)>> {
        let growing = pairs
            .iter()
            .filter(|pair| self.targets[pair.target].grows());
        let growing: Vec<(&Target, usize, u64)> = growing
            .map(|pair| {
                let records = pair.variable.shape().first().copied().unwrap_or(0);
                (&self.targets[pair.target], pair.target, records)
            })
            .collect();
        if growing.is_empty() {
            bail!(
                "no array of it in {} has an unlimited first axis",
                self.path.display()
            );
        }
        let mut dims: Vec<&(String, String)> = Vec::new();
        let named = growing
            .iter()
            .filter_map(|(target, ..)| target.dim.as_ref());
        named.for_each(|dim| {
            if !dims.contains(&dim) {
                dims.push(dim);
            }
        });
        if dims.len() > 1 {
            let names: Vec<&str> = dims.iter().map(|(_, name)| name.as_str()).collect();
            bail!(
                "its arrays begin with {} unlimited dimensions, {}; records are appended along one. Give the others a fixed \
                 length: slabfs set --max-dims",
                names.len(),
                names.join(" and ")
            );
        }
        let mut growth = Vec::new();
        for (target, at, records) in growing.iter().filter(|(target, ..)| target.dim.is_none()) {
            growth.push((*at, target.len(), target.len() + records));
        }
        let Some(dim) = dims.first() else {
            return Ok(growth);
        };
        let all = || {
            let all = self.targets.iter().enumerate();
            all.filter(|(_, one)| one.grows() && one.dim.as_ref() == Some(dim))
        };
        let from = all().map(|(_, one)| one.len()).max().unwrap_or(0);
        let own = growing.iter().filter(|(target, ..)| target.dim.is_some());
        let records = own.map(|(.., records)| *records).max().unwrap_or(0);
        growth.extend(all().map(|(at, _)| (at, from, from + records)));
        Ok(growth)
    }

    /// Appends a file; returns how many of its arrays grew, and their bytes.
    fn append(&mut self, source: &dyn Source, pairs: &[Pair]) -> anyhow::Result<(usize, u64)> {
        let growth = self.growth(pairs)?;
        self.begin(&growth)?;
        let written = self.write(source, pairs, &growth);
        match written {
            Ok(done) => {
                self.end(&growth)?;
                for (target, _, to) in growth {
                    let array = &mut self.targets[target].array;
                    array.dims[0].dim.len = to;
                }
                Ok(done)
            }
            Err(error) => {
                if let Err(cut) = self.cut_back() {
                    eprintln!(
                        "slabfs: {} may have incomplete records: {cut:#}",
                        self.path.display()
                    );
                }
                Err(error)
            }
        }
    }

    fn write(
        &self,
        source: &dyn Source,
        pairs: &[Pair],
        growth: &[(usize, u64, u64)],
    ) -> anyhow::Result<(usize, u64)> {
        // What no file wrote is the fill value.
        for &(target, _, to) in growth {
            let target = &self.targets[target];
            let resized = target.resize(to);
            resized.with_context(|| format!("extending {}", target.place.display()))?;
        }
        let (mut arrays, mut bytes) = (0, 0);
        for pair in pairs {
            let grown = growth.iter().find(|(target, ..)| *target == pair.target);
            if let Some((_, from, _)) = grown {
                bytes += records(source, pair, (&self.targets[pair.target], *from))?;
                arrays += 1;
            }
        }
        Ok((arrays, bytes))
    }

    fn inside(&self, target: &Target) -> anyhow::Result<String> {
        self.mount.inside(&target.place)
    }

    fn tag(&self, changes: Vec<Json>) -> anyhow::Result<()> {
        for changes in in_requests(changes.into_iter()) {
            self.mount
                .call(&json!({ "op": "tag", "changes": changes }))?;
        }
        Ok(())
    }

    /// Notes the lengths of the arrays, and then that they change.
    fn begin(&self, growth: &[(usize, u64, u64)]) -> anyhow::Result<()> {
        let mut changes = Vec::new();
        for &(target, ..) in growth {
            let target = &self.targets[target];
            let set = json!({ LENGTH: { "int": target.len().to_string() } });
            changes.push(json!({ "path": self.inside(target)?, "set": set }));
        }
        self.tag(changes)?;
        let dest = self.mount.inside(&self.path)?;
        self.tag(vec![json!({ "path": dest, "set": { STATE: 1 } })])
    }

    /// Notes that what was written counts.
    fn end(&self, growth: &[(usize, u64, u64)]) -> anyhow::Result<()> {
        let dest = self.mount.inside(&self.path)?;
        self.tag(vec![json!({ "path": dest, "remove": [STATE] })])?;
        let mut changes = Vec::new();
        for &(target, ..) in growth {
            let path = self.inside(&self.targets[target])?;
            changes.push(json!({ "path": path, "remove": [LENGTH] }));
        }
        self.tag(changes)
    }

    /// Cuts off what an append has written.
    fn cut_back(&self) -> anyhow::Result<()> {
        let mut changes = Vec::new();
        for target in self.targets.iter().filter(|target| target.grows()) {
            let path = self.inside(target)?;
            let tags = self.mount.tags(&path)?;
            let Some(len) = tags.get(LENGTH) else {
                continue;
            };
            let len = slabfs_model::Tag::from_json(len)?;
            let len = std::str::from_utf8(&len.bytes)?.parse()?;
            let resized = target.resize(len);
            resized.with_context(|| format!("shortening {}", target.place.display()))?;
            changes.push(json!({ "path": path, "remove": [LENGTH] }));
        }
        let dest = self.mount.inside(&self.path)?;
        self.tag(vec![json!({ "path": dest, "remove": [STATE] })])?;
        self.tag(changes)
    }
}

/// The path of the group so many levels above one.
fn above(path: &str, up: usize) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts[..parts.len().saturating_sub(up)].join("/")
}

/// Fails if an array cannot have the elements of a variable, or not with the same meaning.
fn fits(variable: &Variable, target: &Target) -> anyhow::Result<()> {
    let array = &target.array;
    if variable.dtype != array.dtype || variable.exact != array.exact {
        bail!(
            "it has the type {}, and the array {}",
            variable.dtype,
            array.dtype
        );
    }
    for name in [
        "scale_factor",
        "add_offset",
        "units",
        "calendar",
        "_FillValue",
    ] {
        let of = |variable: &Variable| {
            let found = variable.attributes.iter().find(|one| one.name == name);
            found.cloned()
        };
        let (new, old) = (of(variable), of(array));
        if new.as_ref().map(|one| &one.value) != old.as_ref().map(|one| &one.value) {
            let shown = |one: Option<Attribute>| match one {
                Some(one) => slabfs_datamodel::cdl::show_value(&one.value),
                None => "none".to_owned(),
            };
            bail!(
                "its attribute {name} is {}, and the array's is {}: numbers would change their meaning. Convert the file \
                 first, or set the attribute that is wrong",
                shown(new),
                shown(old)
            );
        }
    }
    let (new, old) = (variable.shape(), array.shape());
    let from = usize::from(target.grows());
    if new.len() != old.len() || new[from..] != old[from..] {
        bail!("it has the shape {new:?}, and the array {old:?}");
    }
    Ok(())
}

/// Fails unless the values of a variable are those of its array.
fn equal(source: &dyn Source, pair: &Pair, target: &Target) -> anyhow::Result<()> {
    let shape = target.array.shape();
    let array = Array::open(&target.place, false, shape, target.array.dtype.size())?;
    let (mut wanted, mut found) = (Vec::new(), Vec::new());
    for block in source.boxes(&pair.group, &pair.variable, PART)? {
        signals::check()?;
        limits::allow(limits::READING)?;
        source.read(&pair.group, &pair.variable, &block, &mut wanted)?;
        array.read(&block, &mut found)?;
        if wanted != found {
            bail!(
                "variable {} has no unlimited first axis, and differs from the array",
                joined(&pair.group, &pair.variable.name)
            );
        }
    }
    Ok(())
}

/// Writes the records of a variable from the element `from` of the first axis on, and returns their bytes.
fn records(
    source: &dyn Source,
    pair: &Pair,
    (target, from): (&Target, u64),
) -> anyhow::Result<u64> {
    use std::os::unix::fs::FileExt;
    let shape = pair.variable.shape();
    let elem = pair.variable.dtype.size();
    let bytes = target
        .row()
        .saturating_mul(shape.first().copied().unwrap_or(0));
    if bytes == 0 {
        return Ok(0);
    }
    let begin = from.saturating_mul(target.row());
    let with = || format!("writing {}", target.place.display());
    let array = OpenOptions::new().write(true).open(&target.place);
    let array = array.with_context(with)?;
    let bar = progress::bar(&pair.variable.name, bytes);
    let mut part = Vec::new();
    for block in source.boxes(&pair.group, &pair.variable, PART)? {
        signals::check()?;
        limits::allow(limits::READING)?;
        source.read(&pair.group, &pair.variable, &block, &mut part)?;
        // Rows that follow each other in the file.
        let inner = Boxes::within(&block, &shape);
        let size = (inner.elements_each() * elem) as usize;
        for (at, bytes) in inner.zip(part.chunks_exact(size.max(1))) {
            let index = Block::offset_in(&at, &shape).unwrap_or(0);
            array
                .write_all_at(bytes, begin + index * elem)
                .with_context(with)?;
        }
        bar.inc(part.len() as u64);
    }
    array.sync_all().with_context(with)?;
    bar.finish_and_clear();
    Ok(bytes)
}
