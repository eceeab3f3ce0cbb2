//! Types that a dtype does not say: the tags `_slabfs_type` of arrays and `_slabfs_types` of containers.
//!
//! `_slabfs_type` is JSON: `{"hdf5": TYPE}` ([`Hdf5Type`]), `{"strings": "utf-8"}` for texts of any length,
//! `{"numpy": "[('a', '<i4')]"}`, and `{"null": true}` for an array of HDF5 without elements and axes.

use crate::error::{In, invalid};
use crate::tree::{Exact, NamedType, Variable};
use crate::types::Hdf5Type;
use serde_json::{Map, Value as Json, json};
use slabfs_model::Tag;

/// The tag with an array's exact type.
pub(super) const TYPE: &str = "_slabfs_type";
/// The tag with the types that a container defines.
pub(super) const TYPES: &str = "_slabfs_types";

/// The tag of an exact type.
pub(super) fn tag(exact: &Exact) -> Json {
    let json = match exact {
        Exact::Hdf5(typ) => json!({ "hdf5": typ.to_json() }),
        Exact::Strings { utf8: true } => json!({ "strings": "utf-8" }),
        Exact::Strings { utf8: false } => json!({ "strings": "ascii" }),
        Exact::Numpy(descr) => json!({ "numpy": descr }),
        Exact::Null(None) => json!({ "null": true }),
        Exact::Null(Some(typ)) => json!({ "null": true, "hdf5": typ.to_json() }),
    };
    json!(json.to_string())
}

/// The exact type of an array with such a tag; none if the tag does not fit the array's dtype, which users can change.
pub(super) fn of_tag(tag: &Json, variable: &Variable) -> crate::Result<Option<Exact>> {
    let tag = Tag::from_json(tag)?;
    let what = || format!("its tag {TYPE} is not understood; remove it with `slabfs tag`");
    let json: Json = serde_json::from_slice(&tag.bytes).within(what)?;
    let typ = match json.get("hdf5") {
        None => None,
        Some(typ) => Some(Hdf5Type::from_json(typ).within(what)?),
    };
    if json.get("null").is_some() {
        return Ok((variable.shape() == [0]).then_some(Exact::Null(typ)));
    }
    if let Some(typ) = typ {
        let fits = typ.dtype() == Some(variable.dtype);
        return Ok(fits.then_some(Exact::Hdf5(typ)));
    }
    if let Some(descr) = json.get("numpy").and_then(Json::as_str) {
        let fits = crate::npy::is_descr_of(descr, &variable.dtype);
        return Ok(fits.then(|| Exact::Numpy(descr.to_owned())));
    }
    let bytes = variable.dtype.kind() == slabfs_model::DTypeKind::Bytes;
    match json.get("strings").and_then(Json::as_str) {
        Some(set @ ("utf-8" | "ascii")) => Ok(bytes.then_some(Exact::Strings {
            utf8: set == "utf-8",
        })),
        _ => Err(invalid(what())),
    }
}

/// The tag of types.
pub(super) fn types_tag(types: &[NamedType]) -> Json {
    let types = types.iter().map(|one| json!([one.name, one.typ.to_json()]));
    json!(Json::from(types.collect::<Vec<Json>>()).to_string())
}

/// The types that a container's tags define.
pub fn types_of(tags: &Map<String, Json>) -> crate::Result<Vec<NamedType>> {
    let Some(tag) = tags.get(TYPES) else {
        return Ok(Vec::new());
    };
    let tag = Tag::from_json(tag)?;
    let what = || format!("its tag {TYPES} is not understood; remove it with `slabfs tag`");
    let list: Vec<(String, Json)> = serde_json::from_slice(&tag.bytes).within(what)?;
    let types = list.into_iter().map(|(name, json)| {
        let typ = Hdf5Type::from_json(&json).within(what)?;
        Ok(NamedType { name, typ })
    });
    types.collect()
}
