//! Properties and tags that a new array copies from another, and the parser of `--tag`.

use std::path::Path;

use serde_json::{Map, Value, json};
use slabfs_fs::view::attributes::{json_of_spec, spec_of_json};
use slabfs_fs::view::like::like;
use slabfs_model::Tag;

use crate::failure::usage;
use crate::onmount::{self, Mount};

/// The given properties, and those of the array `other` where none is given ([`like`]).
pub(super) fn with(given: Map<String, Value>, other: &Path) -> anyhow::Result<Map<String, Value>> {
    let other = onmount::spec(other)?;
    let read = |map: &Map<String, Value>| spec_of_json(map).map_err(anyhow::Error::msg);
    Ok(json_of_spec(&like(read(&given)?, read(&other)?)))
}

/// Parses `key=value` texts into tags in JSON.
pub(crate) fn assigned(texts: &[String]) -> anyhow::Result<Map<String, Value>> {
    let mut tags = Map::new();
    for text in texts {
        let (key, tag) = Tag::parse_assignment(text).map_err(|error| usage(error.to_string()))?;
        if tags.insert(key.clone(), tag.to_typed_json()).is_some() {
            return Err(usage(format!(
                "the tag {key} is given twice; give each one value"
            )));
        }
    }
    Ok(tags)
}

/// The given tags, and those of `other` with other keys.
pub(super) fn tags_with(
    mut tags: Map<String, Value>,
    other: &Path,
) -> anyhow::Result<Map<String, Value>> {
    let mount = Mount::of(other)?;
    let there =
        mount.call(&json!({ "op": "tags", "path": mount.inside(other)?, "typed": true }))?;
    if let Value::Object(there) = there {
        for (key, value) in there {
            tags.entry(key).or_insert(value);
        }
    }
    Ok(tags)
}
