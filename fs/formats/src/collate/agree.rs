//! Which tiles fit together: pure comparisons of their descriptions, with errors that name the file and the variable.

use std::collections::{HashMap, HashSet};

use super::inspect::refused;
use super::tile::{DECOMPOSITION, Format, Tile, TileVariable, shown};
use crate::Result;

/// Fails if a file is there twice.
pub(super) fn different_files(tiles: &[Tile]) -> Result<()> {
    let mut seen = HashMap::new();
    for tile in tiles {
        if let Some(other) = seen.insert(tile.identity.inode, &tile.path) {
            let why = format!("is given twice, also as {}", other.display());
            return Err(refused(&tile.path, "", why));
        }
    }
    Ok(())
}

/// Fails unless both tiles have the same dimensions: lengths of those that are not decomposed, ranges of those that are.
pub(super) fn same_dims(first: &Tile, tile: &Tile) -> Result<()> {
    let user = |path: &str| {
        let mut users = tile
            .variables
            .iter()
            .filter(|one| one.dims.iter().any(|dim| dim == path));
        let user = users.find(|one| one.dims.len() > 1 && one.path != path);
        user.map_or(String::new(), |user| {
            format!(", the dimension of {},", shown(&user.path))
        })
    };
    let other = first.path.display();
    if matches!(first.format, Format::Classic) != matches!(tile.format, Format::Classic) {
        let why =
            format!("it is a file of another kind than {other}: one is NetCDF-3, the other HDF5");
        return Err(refused(&tile.path, "", why));
    }
    for (path, model) in &first.dims {
        let fail = |why: String| Err(refused(&tile.path, &format!("{path}{}", user(path)), why));
        let Some(dim) = tile.dims.get(path) else {
            return fail(format!("is missing; {other} has it"));
        };
        if dim.unlimited != model.unlimited {
            return fail(format!(
                "is unlimited in one file and fixed in the other, {other}"
            ));
        }
        match (model.decomposition, dim.decomposition) {
            (None, None) if dim.len != model.len => {
                return fail(format!(
                    "has {} elements, and {} in {other}",
                    dim.len, model.len
                ));
            }
            (None, None) => {}
            (Some(all), Some(own)) => {
                if all[..2] != own[..2] {
                    let why = format!(
                        "has a {DECOMPOSITION} of {own:?}, and in {other} it is {all:?}: other ranges"
                    );
                    return fail(why);
                }
                let [first, last, start, end] = own.map(i128::from);
                let inside = first <= start && start <= end && end <= last;
                let len = u64::try_from(end - start + 1).ok();
                if !inside || len != Some(dim.len) {
                    let why = format!("has {} elements, and a {DECOMPOSITION} of {own:?}", dim.len);
                    return fail(why);
                }
            }
            _ => {
                return fail(format!(
                    "has a {DECOMPOSITION} in one file and not in the other, {other}"
                ));
            }
        }
    }
    match tile
        .dims
        .keys()
        .find(|path| !first.dims.contains_key(*path))
    {
        Some(path) => Err(refused(
            &tile.path,
            path,
            format!("is a dimension that {other} does not have"),
        )),
        None => Ok(()),
    }
}

/// Fails unless both tiles have the same variables, but for lengths and storage.
pub(super) fn same_variables(first: &Tile, tile: &Tile) -> Result<()> {
    let other = first.path.display();
    let own: HashMap<&str, &TileVariable> = tile
        .variables
        .iter()
        .map(|one| (one.path.as_str(), one))
        .collect();
    for model in &first.variables {
        let fail = |why: String| Err(refused(&tile.path, &model.path, why));
        let Some(variable) = own.get(model.path.as_str()) else {
            return fail(format!("is missing; {other} has it"));
        };
        if variable.element.key != model.element.key || variable.bare_dim != model.bare_dim {
            return fail(format!("has another type than in {other}"));
        }
        if variable.dims != model.dims || variable.growing.len() != model.growing.len() {
            return fail(format!("has other dimensions than in {other}"));
        }
        let names = model.packing.keys().chain(variable.packing.keys());
        if let Some(name) = names
            .clone()
            .find(|name| model.packing.get(*name) != variable.packing.get(*name))
        {
            return fail(format!(
                "has another {name} than in {other}: its numbers mean something else"
            ));
        }
        let unnamed = (0..model.shape.len())
            .find(|&axis| model.dims[axis].is_empty() && model.shape[axis] != variable.shape[axis]);
        if let Some(axis) = unnamed {
            let (here, there) = (variable.shape[axis], model.shape[axis]);
            return fail(format!(
                "has {here} elements along axis {axis}, and {there} in {other}"
            ));
        }
    }
    if own.len() > first.variables.len() {
        let known: HashSet<&str> = first
            .variables
            .iter()
            .map(|one| one.path.as_str())
            .collect();
        if let Some(more) = tile
            .variables
            .iter()
            .find(|one| !known.contains(one.path.as_str()))
        {
            return Err(refused(
                &tile.path,
                &more.path,
                format!("is not in {other}"),
            ));
        }
    }
    Ok(())
}
