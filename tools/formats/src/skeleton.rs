//! `slabfs-formats skeleton`: the file of a container for the view of a mount, without its elements. The mount runs it.
//!
//! Standard input has the container as JSON: `{"tags": …, "arrays": [{"name": …, "info": …, "tags": …}], "containers": [{"name": …,
//! …}]}`, with the information of `user.slabfs.info` and tags as the mount has them. Standard output gets a line of JSON,
//! `{"size": …, "parts": [[OFFSET, BYTES], …], "elements": {"PATH": OFFSET, …}}`, and after it the bytes of the parts.
//!
//! What a file cannot have is left out: arrays and attributes of other types, and names of dimensions that have several
//! lengths in the container.

use std::collections::HashMap;
use std::io::{Read, Write};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slabfs_datamodel::mapping::{
    Order, attributes_of, define_dims, joined, name_axes, types_of, variable_of,
};
use slabfs_formats::h5::{Skeleton, skeleton};
use slabfs_formats::tree::Group;

/// Most bytes of standard input.
const MOST: u64 = 1 << 30;

#[derive(Debug, Deserialize)]
struct Container {
    #[serde(default)]
    name: String,
    tags: Map<String, Value>,
    arrays: Vec<Array>,
    containers: Vec<Container>,
}

#[derive(Debug, Deserialize)]
struct Array {
    name: String,
    info: Value,
    tags: Map<String, Value>,
}

/// Makes the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<()> {
    let mut text = Vec::new();
    std::io::stdin()
        .take(MOST)
        .read_to_end(&mut text)
        .context("reading the container")?;
    let container: Container = serde_json::from_slice(&text).context("the container")?;
    let mut tags = HashMap::new();
    let mut tree = group(container, "", &mut tags)?;
    fixed(&mut tree);
    agreed(&mut tree, &mut Vec::new());
    name_axes(&mut tree);
    let mut defined = tree.clone();
    let made = match define_dims(&mut defined, "", &tags, &mut Vec::new()) {
        Ok(()) => skeleton(&defined).ok(),
        Err(_) => None,
    };
    let Skeleton {
        size,
        parts,
        elements,
    } = match made {
        Some(made) => made,
        None => {
            // A name has several lengths, or is none: no axis has one.
            let mut defined = tree;
            unnamed(&mut defined);
            name_axes(&mut defined);
            define_dims(&mut defined, "", &HashMap::new(), &mut Vec::new())?;
            skeleton(&defined)?
        }
    };
    let places: Vec<Value> = parts
        .iter()
        .map(|(at, bytes)| json!([at, bytes.len()]))
        .collect();
    let elements: Map<String, Value> = elements
        .into_iter()
        .map(|(path, at)| (path, json!(at)))
        .collect();
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}",
        json!({ "size": size, "parts": places, "elements": elements })
    )?;
    for (_, bytes) in &parts {
        out.write_all(bytes)?;
    }
    Ok(out.flush()?)
}

fn group(
    container: Container,
    path: &str,
    tags: &mut HashMap<String, Map<String, Value>>,
) -> anyhow::Result<Group> {
    let order = Order::of_entries(&container.tags);
    let mut group = Group {
        name: container.name,
        attributes: attributes_of(&container.tags).unwrap_or_default(),
        types: types_of(&container.tags).unwrap_or_default(),
        ..Group::default()
    };
    for array in container.arrays {
        if let Ok(variable) = variable_of(&array.name, &array.info, &array.tags) {
            group.variables.push(variable);
        }
    }
    group
        .variables
        .sort_by_cached_key(|one| order.key(&one.name));
    for below in container.containers {
        let path = joined(path, &below.name);
        group.groups.push(self::group(below, &path, tags)?);
    }
    group.groups.sort_by_cached_key(|one| order.key(&one.name));
    tags.insert(path.to_owned(), container.tags);
    Ok(group)
}

/// No axis of the file can grow.
fn fixed(group: &mut Group) {
    for variable in &mut group.variables {
        variable
            .dims
            .iter_mut()
            .for_each(|dim| dim.dim.unlimited = false);
    }
    group.groups.iter_mut().for_each(fixed);
}

/// Takes the names of axes away that have another length than the dimension of that name, which is that of a coordinate or
/// of the first variable that has it, here or above.
fn agreed(group: &mut Group, above: &mut Vec<HashMap<String, u64>>) {
    above.push(HashMap::new());
    let mut order: Vec<usize> = (0..group.variables.len()).collect();
    let is_coordinate = |at: &usize| {
        let variable = &group.variables[*at];
        variable.dims.len() == 1 && variable.dims[0].dim.name == variable.name
    };
    order.sort_by_key(|at| !is_coordinate(at));
    for at in order {
        for axis in &mut group.variables[at].dims {
            let name = axis.dim.name.clone();
            if name.is_empty() {
                continue;
            }
            let known = above.iter().rev().find_map(|dims| dims.get(&name).copied());
            match (known, above.last_mut()) {
                (Some(len), _) if len != axis.dim.len => axis.dim.name.clear(),
                (None, Some(own)) => {
                    own.insert(name, axis.dim.len);
                }
                _ => {}
            }
        }
    }
    for below in &mut group.groups {
        agreed(below, above);
    }
    above.pop();
}

fn unnamed(group: &mut Group) {
    for variable in &mut group.variables {
        for dim in &mut variable.dims {
            dim.dim.name.clear();
            dim.up = 0;
        }
    }
    group.groups.iter_mut().for_each(unnamed);
}
