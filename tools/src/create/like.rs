//! What a new array takes from another one, and tags as they are given.

use std::path::Path;

use serde_json::{Map, Value, json};
use slabfs_model::{DType, Fill, Layout, Tag, parse_dims, parse_max_dims};

use crate::failure::usage;
use crate::onmount::{self, Mount};

/// The given fields, and those of the array `other` where nothing is given. What does not go with the
/// given ones is left out: limits below the dims, the chunk of a grid of another rank, a fill value that the
/// dtype cannot have, a codec beside a grid.
pub(super) fn with(given: Map<String, Value>, other: &Path) -> anyhow::Result<Map<String, Value>> {
    let mut all = onmount::spec(other)?;
    all.retain(|key, _| !given.contains_key(key));
    let fields = |key: &str| given.get(key).and_then(Value::as_str);
    if let Some(dims) = fields("dims").and_then(|text| parse_dims(text).ok()) {
        let text = |all: &Map<String, Value>, key: &str| {
            all.get(key).and_then(Value::as_str).map(str::to_owned)
        };
        let limits = text(&all, "max_dims").and_then(|text| parse_max_dims(&text).ok());
        let allowed = limits.is_some_and(|limits| {
            limits.len() == dims.len() && dims.iter().zip(&limits).all(|(&n, max)| max.allows(n))
        });
        if !allowed {
            all.remove("max_dims");
        }
        if let Some(Layout::Grid(chunk)) = text(&all, "layout").and_then(|text| text.parse().ok())
            && chunk.len() != dims.len()
        {
            all.remove("layout");
        }
    }
    if let Some(dtype) = fields("dtype").and_then(|text| text.parse::<DType>().ok())
        && let Some(fill) = all.get("fill").and_then(Value::as_str)
        && Fill::parse(fill, &dtype).is_err()
    {
        all.remove("fill");
    }
    let aligned = |layout: &str| layout == "aligned";
    if fields("layout").is_some_and(|layout| !aligned(layout)) {
        all.remove("codec");
    } else if fields("codec").is_some_and(|codec| codec != "none") {
        let grid = all.get("layout").and_then(Value::as_str);
        if grid.is_some_and(|layout| !aligned(layout)) {
            all.remove("layout");
        }
    }
    all.extend(given);
    Ok(all)
}

/// `key=value` texts as tags in JSON.
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

/// Those tags, and the ones of `other` that are not among them.
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
