//! `defaults`: the properties that a container gives to objects created in it.

use serde::Deserialize;
use serde_json::{Map, Value};
use slabfs_mdserver::api::{DefaultsChange, MdError, op};

use super::access::Want;
use super::path::{PathText, Walk};
use super::{CallError, Context};
use crate::view::defaults;

/// `{"op": "defaults", "path": …, "clear": ["dtype", "tag:x"], "set": {"dtype": "f4", "tags": {…}}}` →
/// the resulting defaults.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    path: PathText,
    #[serde(default)]
    clear: Vec<String>,
    #[serde(default)]
    set: Map<String, Value>,
}

pub(super) fn run(context: &Context, request: Request) -> Result<Value, CallError> {
    let Request { path, clear, set } = request;
    let md = context.client.names().md();
    let walk = Walk::new(context, &path);
    let now = if clear.is_empty() && set.is_empty() {
        let ino = walk.find_for(Want::Read)?.attr.ino;
        md.call(op::GetDefaults { ino })
    } else {
        let ino = walk.find_for(Want::Write)?.attr.ino;
        let clear: Result<Vec<_>, String> = clear.iter().map(|text| defaults::key(text)).collect();
        let change = DefaultsChange {
            clear: clear.map_err(CallError::Invalid)?,
            set: defaults::from_json(set).map_err(CallError::Invalid)?,
        };
        context.changed.lock().inodes.push(ino);
        md.call(op::SetDefaults { ino, change })
    };
    match now {
        Ok(now) => Ok(defaults::to_json(&now)),
        Err(MdError::NotDirectory) => Err(CallError::NotDirectory(path.to_string())),
        Err(error) => Err(error.into()),
    }
}
