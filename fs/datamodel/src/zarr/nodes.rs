//! The metadata of groups and arrays, version 3.

use serde_json::{Value as Json, json};
use slabfs_model::{ByteOrder, DTypeKind};

use super::attributes::{self, coded_fill};
use super::{FILL, types};
use crate::tree::{Attribute, Exact, Group, Variable};

/// What Zarr cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Its name in the group or array: `:NAME` for an attribute; empty for the group or array itself.
    pub of: String,
    /// Why.
    pub why: String,
}

impl Misfit {
    fn new(of: impl Into<String>, why: impl Into<String>) -> Misfit {
        Misfit {
            of: of.into(),
            why: why.into(),
        }
    }
}

fn attributes(list: &[Attribute]) -> Result<Json, Misfit> {
    let written = attributes::write(list).map(Json::Object);
    written.map_err(|(name, why)| Misfit::new(format!(":{name}"), why))
}

/// `zarr.json` of a group, without what is in it.
///
/// # Errors
/// An attribute, a link or a name that Zarr cannot have.
pub fn group(group: &Group) -> Result<Json, Misfit> {
    if let Some(link) = group.links.first() {
        let why = "is a symbolic link, which Zarr has not";
        return Err(Misfit::new(&*link.name, why));
    }
    let names = group.groups.iter().map(|group| &group.name);
    let mut names = names.chain(group.variables.iter().map(|variable| &variable.name));
    if let Some(name) = names.find(|name| name.starts_with("__")) {
        return Err(Misfit::new(&**name, "has a name that Zarr reserves"));
    }
    let attributes = attributes(&group.attributes)?;
    Ok(json!({ "zarr_format": 3, "node_type": "group", "attributes": attributes }))
}

/// `zarr.json` of an array with a regular grid of chunks.
///
/// # Errors
/// A type or an attribute that Zarr cannot have.
pub fn array(variable: &Variable, chunk: &[u64], codecs: Json) -> Result<Json, Misfit> {
    let (data_type, fill_value) = types::written(variable).map_err(|why| Misfit::new("", why))?;
    let mut json = json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": variable.shape(),
        "data_type": data_type,
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": chunk } },
        "chunk_key_encoding": { "name": "default", "configuration": { "separator": "/" } },
        "fill_value": fill_value,
        "codecs": codecs,
        "attributes": attributes(&variable.attributes)?,
    });
    let fill = variable.attributes.iter().find(|one| one.name == FILL);
    if let Some(fill) = fill.and_then(|one| coded_fill(&variable.dtype, &one.value)) {
        json["attributes"][FILL] = fill;
    }
    if variable.dims.iter().any(|dim| !dim.dim.name.is_empty()) {
        let names = variable
            .dims
            .iter()
            .map(|dim| match dim.dim.name.is_empty() {
                true => Json::Null,
                false => json!(dim.dim.name),
            });
        json["dimension_names"] = names.collect();
    }
    Ok(json)
}

/// The codec that makes bytes of the elements of a variable.
pub fn bytes_codec(variable: &Variable) -> Json {
    let strings = matches!(variable.exact, Some(Exact::Strings { .. }));
    let elem = variable.dtype.size();
    match (strings, elem, variable.dtype.kind()) {
        (true, ..) => json!({ "name": "vlen-utf8" }),
        (_, 1, _) | (_, _, DTypeKind::Bytes | DTypeKind::Void) => json!({ "name": "bytes" }),
        _ => {
            let endian = match variable.dtype.order() {
                ByteOrder::Little => "little",
                ByteOrder::Big => "big",
            };
            json!({ "name": "bytes", "configuration": { "endian": endian } })
        }
    }
}
