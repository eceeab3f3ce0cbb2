//! The dimensions of groups and variables that are exported, from the tags `dim_names` and `_slabfs_dims`.

use std::collections::HashMap;

use crate::error::{In, invalid};
use crate::tree::{Dim, Group};
use serde_json::{Map, Value as Json};
use slabfs_model::Tag;

use super::{DIM_NAMES, DIMS, joined};

/// The names that an array's tag gives its axes; empty ones where it has none.
pub(super) fn names(tags: &Map<String, Json>, rank: usize) -> crate::Result<Vec<String>> {
    let Some(json) = tags.get(DIM_NAMES) else {
        return Ok(vec![String::new(); rank]);
    };
    let tag = Tag::from_json(json)?;
    let names: Vec<String> = serde_json::from_slice(&tag.bytes)
        .map_err(|_| invalid(format!("its tag {DIM_NAMES} is not a list of names")))?;
    if names.len() != rank {
        return Err(invalid(format!(
            "its tag {DIM_NAMES} has {} names, and it has {rank} axes; set it with `slabfs tag`",
            names.len()
        )));
    }
    Ok(names)
}

/// Gives names to axes without: NetCDF has none of these.
pub fn name_axes(group: &mut Group) {
    for variable in &mut group.variables {
        for (axis, dim) in variable.dims.iter_mut().enumerate() {
            if dim.dim.name.is_empty() {
                let kind = match dim.dim.unlimited {
                    true => "unlimited",
                    false => "dim",
                };
                dim.dim.name = format!("{kind}_{axis}_{}", dim.dim.len);
            }
        }
    }
    group.groups.iter_mut().for_each(name_axes);
}

/// Gives each group the dimensions that its tag [`DIMS`] lists or its variables use, and each variable the group that
/// defines its dimensions. `defined` are the tags of the containers by path.
pub fn define_dims(
    group: &mut Group,
    path: &str,
    defined: &HashMap<String, Map<String, Json>>,
    above: &mut Vec<Vec<Dim>>,
) -> crate::Result<()> {
    let mut own = Vec::new();
    if let Some(json) = defined.get(path).and_then(|tags| tags.get(DIMS)) {
        let tag = Tag::from_json(json)?;
        let texts: Vec<String> = serde_json::from_slice(&tag.bytes)
            .map_err(|_| invalid(format!("/{path}: its tag {DIMS} is not a list")))?;
        for text in texts {
            let (name, len) = text
                .split_once('=')
                .within(|| format!("/{path}: {text:?} in its tag {DIMS} is not NAME=LENGTH"))?;
            own.push(Dim {
                name: name.to_owned(),
                len: len.parse().unwrap_or(0),
                unlimited: len == "unlimited",
            });
        }
    }
    above.push(own);
    let level = above.len() - 1;
    for variable in &mut group.variables {
        for axis in &mut variable.dims {
            if axis.dim.name.is_empty() {
                continue;
            }
            let found = (0..=level).rev().find_map(|at| {
                above[at]
                    .iter()
                    .position(|dim| dim.name == axis.dim.name)
                    .map(|i| (at, i))
            });
            let Some((at, index)) = found else {
                above[level].push(axis.dim.clone());
                continue;
            };
            let known = &mut above[at][index];
            axis.up = level - at;
            if known.unlimited {
                known.len = known.len.max(axis.dim.len);
            } else if known.len != axis.dim.len {
                return Err(invalid(format!(
                    "{}: dimension {} has {} elements, and {} elsewhere; give it another name: slabfs tag {} 'dim_names:string[]=[…]'",
                    joined(path, &variable.name),
                    axis.dim.name,
                    axis.dim.len,
                    known.len,
                    variable.name
                )));
            }
        }
    }
    for below in &mut group.groups {
        define_dims(below, &joined(path, &below.name.clone()), defined, above)?;
    }
    group.dims = above.pop().unwrap_or_default();
    Ok(())
}
