//! What is created for a tree: containers, arrays, links, and their tags.

use std::path::Path;

use crate::error::{In, invalid};
use crate::tree::{Group, Variable};
use serde_json::{Map, Value as Json, json};

use super::attributes::{strings, tags_of};
use super::objects::object;
use super::{DIMS, check_name, exact, joined, order};

/// The containers and arrays of a tree, relative to the top one; an error names what cannot be represented.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// The containers, parents first; the first is the top one, with an empty path.
    pub containers: Vec<(String, Map<String, Json>)>,
    /// The arrays.
    pub arrays: Vec<Planned<'a>>,
    /// Symbolic links: paths and what they contain.
    pub links: Vec<(String, String)>,
}

/// A variable that becomes an array.
#[derive(Debug, Clone)]
pub struct Planned<'a> {
    /// The path of its group.
    pub group: String,
    /// The variable.
    pub variable: &'a Variable,
    /// The object as `create` takes it, without tags.
    pub object: Json,
    /// Its tags.
    pub tags: Map<String, Json>,
}

/// Most tags that are set with one change.
const TAGS_AT_ONCE: usize = 32;

impl Plan<'_> {
    /// The changes that set the tags of all containers and arrays, some at a time; `inside` is the top container.
    pub fn tags(&self, inside: &str) -> Vec<Json> {
        let containers = self
            .containers
            .iter()
            .map(|(path, tags)| match path.is_empty() {
                true => (inside.to_owned(), tags),
                false => (joined(inside, path), tags),
            });
        let arrays = self.arrays.iter().map(|array| {
            let path = joined(&array.group, &array.variable.name);
            (joined(inside, &path), &array.tags)
        });
        let mut changes = Vec::new();
        for (path, tags) in containers.chain(arrays) {
            let tags: Vec<(&String, &Json)> = tags.iter().collect();
            for some in tags.chunks(TAGS_AT_ONCE) {
                let set: Map<String, Json> = some
                    .iter()
                    .map(|(key, value)| ((*key).clone(), (*value).clone()))
                    .collect();
                changes.push(json!({ "path": path, "set": set }));
            }
        }
        changes
    }
}

/// Plans a tree.
pub fn plan<'a>(file: &Path, tree: &'a Group) -> crate::Result<Plan<'a>> {
    let mut plan = Plan::default();
    let mut failed = None;
    tree.each(&mut |path, group| {
        if failed.is_none() {
            failed = plan_group(&mut plan, path, group).err();
        }
    });
    match failed {
        Some(error) => Err(error).within(|| file.display().to_string()),
        None => Ok(plan),
    }
}

fn plan_group<'a>(plan: &mut Plan<'a>, path: &str, group: &'a Group) -> crate::Result<()> {
    if !path.is_empty() {
        check_name(&group.name).within(|| format!("group {path}"))?;
    }
    let mut tags = tags_of(&group.attributes).within(|| format!("group /{path}"))?;
    if !group.dims.is_empty() {
        let dims = group.dims.iter().map(|dim| match dim.unlimited {
            true => format!("{}=unlimited", dim.name),
            false => format!("{}={}", dim.name, dim.len),
        });
        tags.insert(DIMS.to_owned(), strings(dims));
    }
    if !group.types.is_empty() {
        tags.insert(exact::TYPES.to_owned(), exact::types_tag(&group.types));
    }
    let variables = group.variables.iter().map(|one| one.name.as_str());
    let groups = group.groups.iter().map(|one| one.name.as_str());
    let links = group.links.iter().map(|one| one.name.as_str());
    let entries = variables.chain(groups).chain(links);
    order::add(&mut tags, &group.attributes, entries);
    plan.containers.push((path.to_owned(), tags));
    for link in &group.links {
        check_name(&link.name).within(|| format!("link {path}/{}", link.name))?;
        let target = match link.target.strip_prefix('/') {
            // From the root of the file.
            Some(below) => {
                let depth = path.split('/').filter(|part| !part.is_empty()).count();
                "../".repeat(depth) + below
            }
            None => link.target.clone(),
        };
        let outside = target.is_empty() || link.target.split('/').any(|part| part == "..");
        if outside || target.len() > 4095 {
            return Err(invalid(format!(
                "link {path}/{}: its path {:?} is not supported",
                link.name, link.target
            )));
        }
        plan.links.push((joined(path, &link.name), target));
    }
    for variable in &group.variables {
        let what = || format!("variable {path}/{}", variable.name);
        let (object, tags) = object(path, variable).within(what)?;
        plan.arrays.push(Planned {
            group: path.to_owned(),
            variable,
            object,
            tags,
        });
    }
    Ok(())
}
