//! Tags of a new array: those of `--tag`, and those that it copies from another.

use std::path::Path;

use serde_json::{Map, Value, json};
use slabfs_model::Tag;

use crate::failure::usage;
use crate::onmount::Mount;

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

/// The tag with the names of an array's dimensions.
pub(crate) const DIM_NAMES: &str = "dim_names";

/// The value of that tag for `time,lat,lon`, of an array with `rank` axes.
pub(super) fn dim_names(text: &str, rank: Option<usize>) -> anyhow::Result<Value> {
    let names: Vec<&str> = text.split(',').map(str::trim).collect();
    if let Some(at) = names.iter().position(|name| name.is_empty()) {
        return Err(usage(format!(
            "--dim-names: the name of axis {at} is empty"
        )));
    }
    if rank.is_some_and(|rank| rank != names.len()) {
        return Err(usage(format!(
            "--dim-names gives {} names, and the array has {} axes",
            names.len(),
            rank.unwrap_or(0)
        )));
    }
    Ok(json!({ "string[]": json!(names).to_string() }))
}

/// The given tags, and those of `other` with other keys.
pub(super) fn with(
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
