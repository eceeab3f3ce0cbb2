//! Dimensions as dimension scales, by the conventions of NetCDF-4.
//!
//! A dimension is stored as its coordinate variable, if its group has one, or as a dataset without data.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::put::Putter;
use super::{
    CLASS, COORDINATES, DIM_ID, Dialect, NAME, NO_COORDINATE, NO_VARIABLE, SCALE, bad, joined,
};
use crate::Result;
use crate::hdf5::{Attributed, Creation, Dataset, Datatype, Group, Space};
use crate::tree::{self, Attribute, Dim, Value, Variable};
use crate::types::{Hdf5Type, Pad};

/// The scales of a file that is being written.
#[derive(Debug, Default)]
pub(super) struct Scales {
    /// By the path of the defining group and the name.
    scales: HashMap<(String, String), Scale>,
    /// Unlimited dimensions that a variable is as long as.
    reached: HashSet<(String, String)>,
}

#[derive(Debug)]
struct Scale {
    id: i32,
    /// When it was created.
    dataset: Option<(Dataset, u64)>,
    /// The addresses of the datasets along it, and their axes.
    users: Vec<(u64, u32)>,
}

impl Scales {
    /// Numbers the dimensions of all groups.
    pub(super) fn of(tree: &tree::Group) -> Scales {
        let mut scales = Scales::default();
        tree.each(&mut |path, group| {
            for dim in &group.dims {
                let id = scales.scales.len() as i32;
                let scale = Scale {
                    id,
                    dataset: None,
                    users: Vec::new(),
                };
                scales
                    .scales
                    .insert((path.to_owned(), dim.name.clone()), scale);
            }
            for variable in &group.variables {
                let unlimited = variable.dims.iter().filter(|dim| dim.dim.unlimited);
                let reached = unlimited.filter_map(|dim| {
                    let group = above(path, dim.up)?;
                    Some((group.to_owned(), dim.dim.name.clone()))
                });
                scales.reached.extend(reached);
            }
        });
        scales
    }

    /// Creates a dimension that has no coordinate variable.
    pub(super) fn create(&mut self, file: &Path, to: &Group, path: &str, dim: &Dim) -> Result<()> {
        let creation = Creation::new(file)?;
        if dim.unlimited {
            creation.set_chunk(&[1024])?;
        }
        // The data along an unlimited dimension says how long it is, and the NetCDF library leaves it at 0 here.
        let reached = self.reached.contains(&(path.to_owned(), dim.name.clone()));
        let space = Space::Simple {
            dims: vec![if reached { 0 } else { dim.len }],
            max_dims: vec![(!dim.unlimited).then_some(dim.len)],
        };
        // As the NetCDF library has it.
        let datatype = Datatype::number(file, crate::hdf5::Class::Float, 4, true)?;
        let dataset = to.create_dataset(&dim.name, &datatype, &space, &creation)?;
        let name = format!("{NO_VARIABLE}{:10}", dim.len);
        self.made(file, path, &dim.name, dataset, Some(&name))
    }

    /// Marks a dataset as the scale of the dimension of this name. `name` is its attribute of this name, unless it has one.
    pub(super) fn made(
        &mut self,
        file: &Path,
        path: &str,
        dim: &str,
        dataset: Dataset,
        name: Option<&str>,
    ) -> Result<()> {
        let key = (path.to_owned(), dim.to_owned());
        let Some(scale) = self.scales.get_mut(&key) else {
            return Err(bad(file, &joined(path, dim), "is no dimension"));
        };
        put_text(file, &dataset, CLASS, SCALE)?;
        if let Some(name) = name {
            put_text(file, &dataset, NAME, name.as_bytes())?;
        }
        let id = Datatype::number(file, crate::hdf5::Class::Integer { signed: true }, 4, false)?;
        dataset.put_attribute(DIM_ID, &id, &Space::Scalar, &scale.id.to_le_bytes())?;
        let address = dataset.address()?;
        scale.dataset = Some((dataset, address));
        Ok(())
    }

    /// Connects a dataset with the scales of its axes; `groups` are the paths of its group and those above, the outermost
    /// first.
    pub(super) fn connect(
        &mut self,
        file: &Path,
        dataset: &Dataset,
        variable: &Variable,
        groups: &[String],
    ) -> Result<()> {
        let address = dataset.address()?;
        let mut found = Vec::new();
        for (axis, dim) in variable.dims.iter().enumerate() {
            if dim.dim.name.is_empty() {
                found.push(Vec::new());
                continue;
            }
            let scale = defining(groups, dim.up)
                .and_then(|group| self.scales.get_mut(&(group.clone(), dim.dim.name.clone())));
            let Some((scale, of)) = scale.and_then(|scale| {
                let of = scale.dataset.as_ref()?.1;
                Some((scale, of))
            }) else {
                let what = dataset.name().to_owned();
                return Err(bad(
                    file,
                    &what,
                    format!("has no dimension {}", dim.dim.name),
                ));
            };
            scale.users.push((address, axis as u32));
            found.push(vec![of]);
        }
        match found.iter().all(Vec::is_empty) {
            true => Ok(()),
            false => dataset.set_scales(&found),
        }
    }

    /// Gives a coordinate variable with several axes the numbers of its dimensions.
    pub(super) fn coordinates(
        &self,
        file: &Path,
        dataset: &Dataset,
        variable: &Variable,
        groups: &[String],
    ) -> Result<()> {
        let ids = variable.dims.iter().map(|dim| {
            let group = defining(groups, dim.up)?;
            let scale = self.scales.get(&(group.clone(), dim.dim.name.clone()))?;
            Some(scale.id)
        });
        let Some(ids) = ids.collect::<Option<Vec<i32>>>() else {
            return Ok(());
        };
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let typ = Datatype::number(file, crate::hdf5::Class::Integer { signed: true }, 4, false)?;
        let space = Space::fixed(&[ids.len() as u64]);
        dataset.put_attribute(COORDINATES, &typ, &space, &bytes)
    }

    /// Completes the scales, when all datasets are connected.
    pub(super) fn finish(&mut self) -> Result<()> {
        for scale in self.scales.values_mut() {
            if let Some((dataset, _)) = scale.dataset.take()
                && !scale.users.is_empty()
            {
                dataset.set_users(&scale.users)?;
            }
        }
        Ok(())
    }
}

fn defining(groups: &[String], up: usize) -> Option<&String> {
    groups.get(groups.len().checked_sub(1 + up)?)
}

/// The path of the group that is so many levels above.
fn above(path: &str, up: usize) -> Option<&str> {
    let mut path = path;
    for _ in 0..up {
        if path.is_empty() {
            return None;
        }
        path = path.rsplit_once('/').map_or("", |(above, _)| above);
    }
    Some(path)
}

fn put_text(file: &Path, dataset: &Dataset, name: &str, text: &[u8]) -> Result<()> {
    let mut value = text.to_vec();
    value.push(0);
    let putter = Putter {
        lenient: false,
        file,
        dialect: Dialect::NetCdf,
        named: &[],
    };
    let typ = Hdf5Type::String {
        len: u32::try_from(value.len()).ok(),
        pad: Pad::NullTerm,
        utf8: false,
    };
    let value = Value::Hdf5(Box::new(tree::Hdf5Value {
        typ,
        space: tree::Space::Scalar,
        elements: Value::Chars(value),
    }));
    let name = name.to_owned();
    putter.one(dataset, "", &Attribute { name, value })
}

/// How a variable and the dimensions of its group are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It is the scale of the dimension of its name.
    Coordinate,
    /// It has the name of a dimension that is stored as another dataset.
    Other,
    /// There is no dimension of its name in its group.
    None,
}

/// The role of a variable in its group.
pub(super) fn role(group: &tree::Group, variable: &Variable) -> Role {
    if !group.dims.iter().any(|dim| dim.name == variable.name) {
        return Role::None;
    }
    match variable.dims.first() {
        Some(first) if first.up == 0 && first.dim.name == variable.name => Role::Coordinate,
        _ => Role::Other,
    }
}

/// The name of the dataset of a variable.
pub(super) fn stored_name(group: &tree::Group, variable: &Variable) -> String {
    match role(group, variable) {
        Role::Other => format!("{NO_COORDINATE}{}", variable.name),
        _ => variable.name.clone(),
    }
}
