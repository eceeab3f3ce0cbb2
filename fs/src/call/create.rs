//! `create`: many objects in one request.
//!
//! They are sent to the metadata service in batches of at most [`MAX_CREATE`]; each batch is atomic, and so is a
//! request that fits into one batch. All objects are checked before the first batch is sent, as far as that is possible
//! without the service.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Value, json};
use slabfs_mdserver::api::{Ino, MAX_CREATE, MdError, NewObject, ROOT, SpecChange, op};
use slabfs_model::Tag;

use super::access::Want;
use super::path::{PathText, Walk};
use super::{CallError, Context};
use crate::view::attributes::spec_of_json;
use crate::view::defaults::tags_of_json;

/// `{"op": "create", "in": …, "mode": 420, "objects": [{"path": …, "dims": …, …, "tags": {…}}, …]}` →
/// `{"created": N}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The container that the objects' paths are relative to; the root by default.
    #[serde(default, rename = "in")]
    within: Option<PathText>,
    /// Permission bits, with the umask applied.
    #[serde(default = "usual_mode")]
    mode: u32,
    objects: Vec<Value>,
}

/// The set-group-id bit. A directory with it gives its group to entries created in it.
const SETGID: u32 = 0o2000;

fn usual_mode() -> u32 {
    0o644
}

/// An object to create, as described in JSON.
#[derive(Debug)]
pub struct Described {
    /// Its path.
    pub path: PathText,
    /// Its properties.
    pub spec: SpecChange,
    /// Its tags.
    pub tags: Vec<(String, Tag)>,
}

impl Described {
    /// Reads `{"path": "x", "dims": [4, 4], "dtype": "f4", "tags": {"step": 3}}`.
    ///
    /// # Errors
    /// A text that describes the error.
    pub fn of_json(object: Value) -> Result<Described, String> {
        let example = "{\"path\": \"x\", \"dims\": [4, 4], \"dtype\": \"f4\"}";
        let Value::Object(mut map) = object else {
            return Err(format!("an object is written {example}, not {object}"));
        };
        let path = match map.remove("path") {
            Some(path) => PathText::deserialize(path).map_err(|_| {
                "\"path\" is a text, or a list of bytes where it is no UTF-8".to_owned()
            })?,
            None => {
                return Err(format!(
                    "\"path\" is missing; an object is written {example}"
                ));
            }
        };
        let tags = match map.remove("tags") {
            Some(Value::Null) | None => Vec::new(),
            Some(tags) => tags_of_json(&tags)?,
        };
        let spec = spec_of_json(&map).map_err(|why| match why.contains("no part of a spec") {
            true => format!("{why}; an object has path and tags, too"),
            false => why,
        })?;
        Ok(Described { path, spec, tags })
    }
}

pub(super) fn run(context: &Context, request: Request) -> Result<Value, CallError> {
    let within = request.within.unwrap_or(PathText::Text(String::new()));
    let described = request
        .objects
        .into_iter()
        .map(|object| Described::of_json(object).map_err(CallError::Invalid))
        .map(|described| described.map(|described| (described, request.mode)));
    let created = make(context, Within::Path(within), described)?;
    Ok(json!({ "created": created.len() }))
}

/// The container that the paths of new objects are relative to.
pub(crate) enum Within {
    /// The container with this path.
    Path(PathText),
    /// This container, whatever its path is now; error messages use this path.
    Container(Ino, PathText),
}

impl Within {
    fn path(&self) -> &PathText {
        match self {
            Self::Path(path) | Self::Container(_, path) => path,
        }
    }
}

/// Creates the described objects with these permission bits, and returns their inodes in order.
pub(crate) fn make(
    context: &Context,
    within: Within,
    described: impl Iterator<Item = Result<(Described, u32), CallError>>,
) -> Result<Vec<Ino>, CallError> {
    let mut start = Start {
        context,
        within,
        parents: HashMap::new(),
    };
    let mut objects = Vec::new();
    for (index, described) in described.enumerate() {
        let object = described.and_then(|(described, mode)| start.object(described, mode & 0o7777));
        objects.push(object.map_err(|error| error.at(index))?);
    }
    let mut created = Vec::new();
    let mut rest = objects;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(MAX_CREATE));
        let names: Vec<(Ino, Vec<u8>)> = rest
            .iter()
            .map(|object| (object.parent, object.name.clone()))
            .collect();
        match context.client.create_many(rest) {
            Ok(made) => {
                created.extend(made);
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
                    index: created.len() + index as usize,
                    path: name.map_or_else(String::new, |name| format!("{name}: ")),
                    error: Box::new(CallError::from(*error)),
                });
            }
            Err(error) => return Err(error.into()),
        }
        rest = later;
    }
    Ok(created)
}

/// State shared by all objects of a request.
struct Start<'a> {
    context: &'a Context,
    within: Within,
    /// Containers by their path.
    parents: HashMap<Vec<u8>, Parent>,
}

/// The properties of a container that affect entries created in it.
#[derive(Debug, Clone, Copy)]
struct Parent {
    ino: Ino,
    has_dtype: bool,
    /// It gives its group to new entries, and the caller is not in that group: set-group-id is cleared on them.
    foreign_group: bool,
}

impl Start<'_> {
    fn object(&mut self, described: Described, mode: u32) -> Result<NewObject, CallError> {
        let Described { path, spec, tags } = described;
        path.check_new().map_err(CallError::Invalid)?;
        let within = self.within.path();
        if path.bytes().starts_with(b"/") && !within.bytes().is_empty() {
            return Err(CallError::Invalid(format!(
                "{path} begins with /, and the paths of objects begin in {within}; leave the / out"
            )));
        }
        let relative = path.clone();
        let path = path.within(within);
        let (parent, name) = match self.within {
            Within::Path(_) => self.place(&path, ROOT, &path)?,
            Within::Container(ino, _) => self.place(&path, ino, &relative)?,
        };
        if spec.dims.is_some() && spec.dtype.is_none() && !parent.has_dtype {
            return Err(CallError::Invalid(format!(
                "{path}: an array needs a dtype, as \"f4\"; its container has no default"
            )));
        }
        Ok(NewObject {
            parent: parent.ino,
            name,
            mode: match parent.foreign_group {
                true => mode & !SETGID,
                false => mode,
            },
            uid: self.context.caller.uid,
            gid: self.context.caller.gid,
            spec,
            tags,
        })
    }

    /// The container and the stored name of an object with this path, which is `relative` from the container `from`.
    fn place(
        &mut self,
        path: &PathText,
        from: Ino,
        relative: &PathText,
    ) -> Result<(Parent, Vec<u8>), CallError> {
        let (directory, name) = relative.split();
        let walk = Walk {
            context: self.context,
            path,
            from,
            relative: relative.bytes(),
        };
        if let Some(&parent) = self.parents.get(directory) {
            return Ok((parent, walk.stored(parent.ino, name)?));
        }
        let (entry, name) = walk.find_parent()?;
        walk.check(&entry, Want::Make)?;
        let ino = entry.attr.ino;
        let caller = &self.context.caller;
        let parent = Parent {
            ino,
            has_dtype: self
                .context
                .client
                .names()
                .md()
                .call(op::GetDefaults { ino })?
                .spec
                .dtype
                .is_some(),
            foreign_group: entry.attr.mode & SETGID != 0
                && !caller.is_root()
                && !caller.in_group(entry.attr.gid),
        };
        self.parents.insert(directory.to_vec(), parent);
        Ok((parent, name))
    }
}
