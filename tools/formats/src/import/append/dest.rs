//! What is appended to: the arrays, by how much each grows, and the tags by which a killed append is undone.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde_json::{Value as Json, json};
use slabfs_datamodel::mapping::joined;
use slabfs_formats::source::Source;
use slabfs_formats::tree::{Group, Variable};
use slabfs_model::Tag;

use super::{fits, records};
use crate::export::Origin;
use crate::import::place::in_requests;
use crate::lock::Lock;
use crate::mount::Mount;

/// The tag of DEST while an append writes: a text that no other append has.
const STATE: &str = "_slabfs_append";
/// The tag of an array with that text and its length before. One with another text is left of an append that was completed.
const LENGTH: &str = "_slabfs_length";

/// An array that may grow, or must be equal.
pub(super) struct Target {
    pub(super) place: PathBuf,
    pub(super) array: Variable,
    /// The group that defines the first dimension, and its name; `None` for one without a name.
    dim: Option<(String, String)>,
}

impl Target {
    pub(super) fn grows(&self) -> bool {
        self.array.max.first() == Some(&None)
    }

    /// The elements of the first axis.
    fn len(&self) -> u64 {
        self.array.shape().first().copied().unwrap_or(0)
    }

    /// Bytes of what one element of the first axis has.
    pub(super) fn row(&self) -> u64 {
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
pub(super) struct Pair {
    pub(super) group: String,
    pub(super) variable: Variable,
    pub(super) target: usize,
}

/// What is appended to.
pub(super) struct Dest {
    mount: Mount,
    path: PathBuf,
    pub(super) targets: Vec<Target>,
    /// Has the lock.
    _lock: Lock,
}

impl Dest {
    pub(super) fn of(path: &Path) -> anyhow::Result<Dest> {
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

    /// The variables of a file with the arrays of their names.
    pub(super) fn pairs(&self, source: &dyn Source, tree: &Group) -> anyhow::Result<Vec<Pair>> {
        let mut groups = Vec::new();
        tree.each(&mut |path, group| groups.push((path.to_owned(), group)));
        let targets = self.targets.iter().enumerate();
        let targets: HashMap<&Path, usize> = targets
            .map(|(at, target)| (target.place.as_path(), at))
            .collect();
        let mut pairs = Vec::new();
        for (path, group) in groups {
            for (at, variable) in group.variables.iter().enumerate() {
                let what = joined(&path, &variable.name);
                let place = match source.is_array() {
                    true => self.path.clone(),
                    false => self.path.join(&what),
                };
                let named = || format!("variable {what}");
                let target = targets.get(place.as_path()).copied();
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
    pub(super) fn growth(&self, pairs: &[Pair]) -> anyhow::Result<Vec<(usize, u64, u64)>> {
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
    pub(super) fn append(
        &mut self,
        source: &dyn Source,
        pairs: &[Pair],
    ) -> anyhow::Result<(usize, u64)> {
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
        let begins: HashMap<usize, u64> = growth.iter().map(|&(at, from, _)| (at, from)).collect();
        let (mut arrays, mut bytes) = (0, 0);
        for pair in pairs {
            if let Some(from) = begins.get(&pair.target) {
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let own = format!("{}-{}", std::process::id(), now.as_nanos());
        let mut changes = Vec::new();
        for &(target, ..) in growth {
            let target = &self.targets[target];
            let set = json!({ LENGTH: { "text": format!("{own} {}", target.len()) } });
            changes.push(json!({ "path": self.inside(target)?, "set": set }));
        }
        self.tag(changes)?;
        let dest = self.mount.inside(&self.path)?;
        let set = json!({ STATE: { "text": own } });
        self.tag(vec![json!({ "path": dest, "set": set })])
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
        let dest = self.mount.inside(&self.path)?;
        let state = self.text(&dest, STATE)?.context("its state is gone")?;
        let mut changes = Vec::new();
        for target in self.targets.iter().filter(|target| target.grows()) {
            let path = self.inside(target)?;
            let Some(text) = self.text(&path, LENGTH)? else {
                continue;
            };
            if let Some((own, len)) = text.split_once(' ')
                && own == state
            {
                let resized = target.resize(len.parse()?);
                resized.with_context(|| format!("shortening {}", target.place.display()))?;
            }
            changes.push(json!({ "path": path, "remove": [LENGTH] }));
        }
        self.tag(vec![json!({ "path": dest, "remove": [STATE] })])?;
        self.tag(changes)
    }

    /// The text of a tag.
    fn text(&self, path: &str, key: &str) -> anyhow::Result<Option<String>> {
        let tags = self.mount.tags(path)?;
        let tag = tags.get(key).map(Tag::from_json).transpose()?;
        Ok(tag.map(|tag| String::from_utf8_lossy(&tag.bytes).into_owned()))
    }
}

/// The path of the group so many levels above one.
fn above(path: &str, up: usize) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    parts[..parts.len().saturating_sub(up)].join("/")
}
