//! The JSON of a node: a group or an array, of version 2 or 3.

use serde_json::{Map, Value as Json};
use slabfs_datamodel::zarr::words::with_words;

use super::ARRAY_DIMENSIONS;
use super::store::Store;

/// Longest metadata of a node.
const LONGEST: u64 = 64 << 20;

/// A group or an array.
#[derive(Debug)]
pub(super) struct Node {
    /// The metadata of an array; `None` for a group.
    pub(super) array: Option<Json>,
    pub(super) attributes: Map<String, Json>,
    /// The names of an array's dimensions, empty where there is none; `None` if it has no names.
    pub(super) dims: Option<Vec<String>>,
}

impl Node {
    /// Reads the node of a directory, if it is one; an error says what is wrong. `prefix` ends in `/` if it is not empty.
    pub(super) fn read(store: &Store, prefix: &str) -> Result<Option<Node>, String> {
        if let Some(json) = json(store, &format!("{prefix}zarr.json"))? {
            return Node::version3(json).map(Some);
        }
        let array = json(store, &format!("{prefix}.zarray"))?;
        if array.is_none() && json(store, &format!("{prefix}.zgroup"))?.is_none() {
            return Ok(None);
        }
        let mut attributes = json(store, &format!("{prefix}.zattrs"))?.unwrap_or_default();
        let dims = match array {
            Some(_) => attributes.remove(ARRAY_DIMENSIONS),
            None => None,
        };
        Ok(Some(Node {
            array: array.map(Json::Object),
            dims: names(dims.as_ref())?,
            attributes,
        }))
    }

    fn version3(mut json: Map<String, Json>) -> Result<Node, String> {
        let attributes = json.remove("attributes").unwrap_or_default();
        let attributes = match attributes {
            Json::Null => Map::new(),
            attributes => object_of(attributes, "attributes")?,
        };
        match json.get("node_type").and_then(Json::as_str) {
            Some("group") => Ok(Node {
                array: None,
                attributes,
                dims: None,
            }),
            Some("array") => Ok(Node {
                dims: names(json.get("dimension_names"))?,
                attributes,
                array: Some(Json::Object(json)),
            }),
            _ => Err("zarr.json has no node_type that is group or array".to_owned()),
        }
    }
}

fn names(dims: Option<&Json>) -> Result<Option<Vec<String>>, String> {
    let Some(dims) = dims.filter(|dims| !dims.is_null()) else {
        return Ok(None);
    };
    let wrong = || "names of dimensions are no list of texts".to_owned();
    let names = dims.as_array().ok_or_else(wrong)?.iter();
    let names = names.map(|name| match name {
        Json::Null => Ok(String::new()),
        Json::String(name) => Ok(name.clone()),
        _ => Err(wrong()),
    });
    names.collect::<Result<_, _>>().map(Some)
}

/// An object in a file, if there is one.
fn json(store: &Store, name: &str) -> Result<Option<Map<String, Json>>, String> {
    let bytes = store
        .text(name, LONGEST)
        .map_err(|error| error.to_string())?;
    let Some(bytes) = bytes else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes).map_err(|_| format!("{name} is not UTF-8"))?;
    let json = serde_json::from_str(&text).or_else(|_| serde_json::from_str(&with_words(&text)));
    object_of(
        json.map_err(|error| format!("{name} is no JSON: {error}"))?,
        name,
    )
    .map(Some)
}

fn object_of(json: Json, name: &str) -> Result<Map<String, Json>, String> {
    match json {
        Json::Object(object) => Ok(object),
        _ => Err(format!("{name} is not an object of JSON")),
    }
}
