//! `create`: many objects in one request.
//!
//! They go to the metadata service in batches of at most [`MAX_CREATE`]; each batch happens wholly or not at
//! all. So does a whole request that fits into one batch. What is wrong with an object is looked for in all
//! of them before the first batch is sent, as far as that can be seen without the service.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use slabfs_mdserver::api::{Ino, MAX_CREATE, MdError, NewObject};

use super::access::Want;
use super::path::{PathText, check, find_parent, stored};
use super::{CallError, Context};
use crate::view::attributes::spec_of_json;
use crate::view::defaults::tags_of_json;

/// `{"op": "create", "in": …, "mode": 420, "objects": [{"path": …, "dims": …, …, "tags": {…}}, …]}` →
/// `{"created": N}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Where the objects' paths begin; the root if it is not given.
    #[serde(default, rename = "in")]
    within: Option<PathText>,
    /// Permission bits; the umask is already taken off.
    #[serde(default = "usual_mode")]
    mode: u32,
    objects: Vec<Value>,
}

/// The set-group-id bit. A directory with it gives its group to what is made in it.
const SETGID: u32 = 0o2000;

fn usual_mode() -> u32 {
    0o644
}

/// What of an object is no property.
#[derive(Debug, Deserialize)]
struct Named {
    path: PathText,
    tags: Option<Value>,
    #[serde(flatten)]
    spec: Map<String, Value>,
}

pub(super) fn run(context: &Context, request: Request) -> Result<Value, CallError> {
    let mut start = Start {
        context,
        within: request.within.unwrap_or(PathText::Text(String::new())),
        mode: request.mode & 0o7777,
        parents: HashMap::new(),
    };
    let mut objects = Vec::with_capacity(request.objects.len());
    for (index, object) in request.objects.into_iter().enumerate() {
        let object = start.object(object).map_err(|error| CallError::At {
            index,
            path: String::new(),
            error: Box::new(error),
        })?;
        objects.push(object);
    }
    let mut created = 0;
    let mut rest = objects;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(MAX_CREATE));
        let names: Vec<(Ino, Vec<u8>)> = rest
            .iter()
            .map(|object| (object.parent, object.name.clone()))
            .collect();
        match context.client.md().create_many(rest) {
            Ok(made) => {
                created += made.len();
                let mut changed = context.changed.lock();
                changed
                    .inodes
                    .extend(names.iter().map(|(parent, _)| *parent));
                changed.names.extend(names);
            }
            Err(MdError::At { index, error }) => {
                let name = names
                    .get(index as usize)
                    .map(|(_, name)| name.escape_ascii());
                return Err(CallError::At {
                    index: created + index as usize,
                    path: name.map_or_else(String::new, |name| format!("{name}: ")),
                    error: Box::new(CallError::from(*error)),
                });
            }
            Err(error) => return Err(error.into()),
        }
        rest = later;
    }
    Ok(json!({ "created": created }))
}

/// What is found out once for all objects.
struct Start<'a> {
    context: &'a Context,
    within: PathText,
    mode: u32,
    /// Containers by their path.
    parents: HashMap<Vec<u8>, Parent>,
}

/// What of a container matters for what is made in it.
#[derive(Debug, Clone, Copy)]
struct Parent {
    ino: Ino,
    has_dtype: bool,
    /// It gives its group, which the caller is not in: he makes nothing that runs as that group.
    foreign_group: bool,
}

impl Start<'_> {
    fn object(&mut self, object: Value) -> Result<NewObject, CallError> {
        let wrong = |error: serde_json::Error| {
            CallError::Invalid(format!(
                "an object is {{\"path\": \"x\", \"dims\": [4, 4], \"dtype\": \"f4\"}}: {error}"
            ))
        };
        let Named { path, tags, spec } = Named::deserialize(object).map_err(wrong)?;
        let spec = spec_of_json(&spec).map_err(CallError::Invalid)?;
        let tags = match tags {
            Some(tags) => tags_of_json(&tags).map_err(CallError::Invalid)?,
            None => Vec::new(),
        };
        let path = path.within(&self.within);
        let (parent, name) = self.place(&path)?;
        if spec.dims.is_some() && spec.dtype.is_none() && !parent.has_dtype {
            return Err(CallError::Invalid(format!(
                "{path}: an array needs a dtype, as \"f4\"; its container has no default"
            )));
        }
        Ok(NewObject {
            parent: parent.ino,
            name,
            mode: match parent.foreign_group {
                true => self.mode & !SETGID,
                false => self.mode,
            },
            uid: self.context.caller.uid,
            gid: self.context.caller.gid,
            spec,
            tags,
        })
    }

    fn place(&mut self, path: &PathText) -> Result<(Parent, Vec<u8>), CallError> {
        let (directory, name) = path.split();
        if let Some(&parent) = self.parents.get(directory) {
            return Ok((parent, stored(path, name)?));
        }
        let (entry, name) = find_parent(self.context, path)?;
        check(self.context, path, &entry, Want::Make)?;
        let ino = entry.attr.ino;
        let caller = &self.context.caller;
        let parent = Parent {
            ino,
            has_dtype: self.context.client.md().defaults(ino)?.spec.dtype.is_some(),
            foreign_group: entry.attr.mode & SETGID != 0
                && !caller.is_root()
                && !caller.in_group(entry.attr.gid),
        };
        self.parents.insert(directory.to_vec(), parent);
        Ok((parent, name))
    }
}
