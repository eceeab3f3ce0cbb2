//! `tag` and `tags`: the tags of objects and containers.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use slabfs_mdserver::api::{Entry, Ino, Kind, MdError, TagChange, op};

use super::access::Want;
use super::path::{PathText, Walk};
use super::{CallError, Context};
use crate::view::defaults::tags_of_json;

/// `{"op": "tag", "changes": [{"path": …, "set": {"step": 3}, "remove": ["note"]}, …]}` →
/// `{"tagged": N}`, in one atomic step.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tag {
    changes: Vec<Change>,
}

/// The tags of one object or container.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    path: PathText,
    #[serde(default)]
    set: Map<String, Value>,
    #[serde(default)]
    remove: Vec<String>,
}

pub(super) fn tag(context: &Context, request: Tag) -> Result<Value, CallError> {
    let count = request.changes.len();
    let changes: Result<Vec<TagChange>, CallError> = request
        .changes
        .into_iter()
        .enumerate()
        .map(|(index, change)| resolved(context, change).map_err(|error| error.at(index)))
        .collect();
    let changes = changes?;
    let inodes: Vec<Ino> = changes.iter().map(|change| change.ino).collect();
    context.client.tag(changes)?;
    context.changed.lock().inodes.extend(inodes);
    Ok(json!({ "tagged": count }))
}

fn resolved(context: &Context, change: Change) -> Result<TagChange, CallError> {
    let Change { path, set, remove } = change;
    let entry = Walk::new(context, &path).find_for(Want::Write)?;
    tagged(&path, &entry)?;
    Ok(TagChange {
        ino: entry.attr.ino,
        set: tags_of_json(&Value::Object(set)).map_err(CallError::Invalid)?,
        remove,
    })
}

/// Refuses entries that cannot have tags.
pub(crate) fn tagged(path: &PathText, entry: &Entry) -> Result<(), CallError> {
    match entry.attr.kind {
        Kind::Object | Kind::Directory => Ok(()),
        _ => Err(CallError::Invalid(format!(
            "{path} cannot have tags; files and directories can"
        ))),
    }
}

/// `{"op": "tags", "path": …, "keys": ["step"]}` → `{"step": 3}`; without `keys` all tags. With
/// `"after": KEY` a page of the tags with greater keys: `{"tags": {"step": 3}, "next": KEY}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tags {
    path: PathText,
    #[serde(default)]
    keys: Option<Vec<String>>,
    /// A page after this key; the first page if it is empty.
    #[serde(default)]
    after: Option<String>,
    /// Return tags without a type as `{"auto": …}`, so that they can be set unchanged.
    #[serde(default)]
    typed: bool,
}

pub(super) fn tags(context: &Context, request: &Tags) -> Result<Value, CallError> {
    let entry = Walk::new(context, &request.path).find_for(Want::Read)?;
    let ino = entry.attr.ino;
    let md = context.client.md(ino);
    let read = match &request.after {
        None => md.tags(ino).map(|tags| (tags, false)),
        Some(after) => {
            let after = Some(after.clone()).filter(|after| !after.is_empty());
            md.call(op::Tags { ino, after })
                .map(|page| (page.tags, page.more))
        }
    };
    let (tags, more) = match read {
        Err(MdError::NotFound) => return Err(CallError::Missing(request.path.to_string())),
        other => other?,
    };
    let last = tags.last().filter(|_| more).map(|(key, _)| key.clone());
    let wanted = |key: &String| request.keys.as_ref().is_none_or(|keys| keys.contains(key));
    let map: Map<String, Value> = tags
        .into_iter()
        .filter(|(key, _)| wanted(key))
        .map(|(key, tag)| match request.typed {
            true => (key, tag.to_typed_json()),
            false => (key, tag.to_json()),
        })
        .collect();
    Ok(match request.after {
        None => Value::Object(map),
        Some(_) => json!({ "tags": map, "next": last }),
    })
}
