//! The commands of `.slabfs/call`: JSON in, JSON out, one op a file; the shortest are in [`run`].
//!
//! A request is an object with the key `op` and the arguments of that op. [`run`] returns the value of `ok` in the
//! reply, or a [`CallError`] that the mount converts to `error` and `errno` (`mount/call.rs` moves the bytes,
//! `docs/formats/call.md` lists the ops).
//!
//! The path walk of an op, and the permissions it checks, are shared with the library's sessions (`session`), without
//! the JSON.
//!
//! Unlike every other request of a mount, these do not come through a path that the kernel has checked. So an op finds
//! its inodes by `path` alone, which makes the checks that the kernel would make.

pub(crate) mod access;
pub(crate) mod caller;
mod couple;
pub(crate) mod create;
mod cursor;
mod defaults;
mod drain;
mod dump;
pub(crate) mod find;
mod locks;
pub(crate) mod meaning;
pub(crate) mod path;
pub(crate) mod tags;

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use slabfs_mdserver::api::{Ino, MdError};
use thiserror::Error;

use crate::client::FsError;
use crate::clients::Clients;
use crate::view::hidden;
use crate::view::name::NameError;

pub use caller::{Caller, umask};
pub use create::Described;
pub use path::PathText;

/// Maximum size of a request in bytes.
pub const REQUEST_LIMIT: usize = 4 << 20;
/// Maximum size of a reply in bytes; an op with more data returns it in pages.
pub const REPLY_LIMIT: usize = 8 << 20;

/// The reason why a call failed.
#[derive(Debug, Error)]
pub enum CallError {
    /// An error of the client library.
    #[error(transparent)]
    Client(#[from] FsError),
    /// A name in a path is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The request makes no sense; the text gives an alternative.
    #[error("{0}")]
    Invalid(String),
    /// No entry has this path.
    #[error("{0} does not exist")]
    Missing(String),
    /// A component of a path is not a directory.
    #[error("{0} is not a directory")]
    NotDirectory(String),
    /// The caller lacks the permission.
    #[error("{0}")]
    Denied(String),
    /// An error of one of several requested items.
    #[error("{path}{error}")]
    At {
        /// The item, from 0.
        index: usize,
        /// Its subject, if the error does not name it: a path followed by ": ", or empty.
        path: String,
        /// Its error.
        error: Box<CallError>,
    },
    /// There is no such op.
    #[error("this mount knows no op {0:?}; is it of an older version than the command?")]
    Unknown(String),
    /// The reply would be too large.
    #[error("the answer has more than {REPLY_LIMIT} bytes; ask for less at a time")]
    TooLarge,
}

impl CallError {
    /// The index of the failed item, from 0.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::At { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// The error of the item `index` of several.
    fn at(self, index: usize) -> CallError {
        Self::At {
            index,
            path: String::new(),
            error: Box::new(self),
        }
    }
}

impl From<MdError> for CallError {
    fn from(error: MdError) -> Self {
        Self::Client(FsError::Md(error))
    }
}

/// The environment of an op.
pub struct Context {
    /// The session of the mount.
    pub client: Arc<Clients>,
    /// The caller.
    pub caller: Caller,
    /// Changes made by ops since they were last taken, to invalidate in the kernel's caches.
    pub changed: Mutex<Changed>,
}

/// Entries in the kernel's caches that may be stale.
#[derive(Debug, Default)]
pub struct Changed {
    /// Stored names that were added or removed, with their directories.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Inodes with other attributes.
    pub inodes: Vec<Ino>,
}

impl Context {
    /// The context of a call by `caller`.
    pub fn new(client: Arc<Clients>, caller: Caller) -> Context {
        Context {
            client,
            caller,
            changed: Mutex::default(),
        }
    }
}

/// Runs one request.
///
/// # Errors
/// An invalid request, or the error of the op.
pub fn run(context: &Context, request: &[u8]) -> Result<Value, CallError> {
    if request.is_empty() {
        return Err(CallError::Invalid(
            "write a request first, {\"op\": \"servers\"} for one, and then read the reply"
                .to_owned(),
        ));
    }
    let mut request: Map<String, Value> = serde_json::from_slice(request)
        .map_err(|error| CallError::Invalid(format!("the request is no JSON object: {error}")))?;
    let Some(Value::String(op)) = request.remove("op") else {
        return Err(CallError::Invalid(
            "a request names its op: {\"op\": \"servers\"}".to_owned(),
        ));
    };
    let arguments = Arguments {
        op: &op,
        map: request,
    };
    match op.as_str() {
        "find" => find::run(context, arguments.read()?),
        "dump" => dump::run(context, &arguments.read()?),
        "create" => create::run(context, arguments.read()?),
        "defaults" => defaults::run(context, arguments.read()?),
        "drain" => drain::mark(context, &arguments.read()?),
        "drain_slice" => drain::slice(context, &arguments.read()?),
        // The data servers, as `.slabfs/status` lists them.
        "servers" => {
            let Nothing {} = arguments.read()?;
            Ok(hidden::servers(&context.client.servers()?))
        }
        "couple" => couple::run(context, &arguments.read()?),
        "locks" => locks::run(context, &arguments.read()?),
        // As `fsync` of every file, with the first error.
        "sync" => {
            let Nothing {} = arguments.read()?;
            context.client.sync_all()?;
            Ok(json!({}))
        }
        "tag" => tags::tag(context, arguments.read()?),
        "tags" => tags::tags(context, &arguments.read()?),
        _ => Err(CallError::Unknown(op)),
    }
}

/// The arguments of a request other than `op`.
struct Arguments<'a> {
    op: &'a str,
    map: Map<String, Value>,
}

impl Arguments<'_> {
    fn read<T: DeserializeOwned>(self) -> Result<T, CallError> {
        let op = self.op;
        T::deserialize(Value::Object(self.map))
            .map_err(|error| CallError::Invalid(format!("op {op}: {error}")))
    }
}

/// The arguments of an op that has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let read = |text: &str| {
            Arguments {
                op: "servers",
                map: serde_json::from_str(text).unwrap(),
            }
            .read::<Nothing>()
        };
        assert!(read("{}").is_ok());
        let error = read("{\"x\": 1}").unwrap_err().to_string();
        assert!(
            error.contains("op servers") && error.contains("`x`"),
            "{error}"
        );
    }
}
