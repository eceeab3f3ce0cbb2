//! The commands of `.slabfs/call`: JSON in, JSON out, one op a file.
//!
//! A request is an object with the key `op` and the arguments of that op; [`run`] answers it with the value
//! that stands under `ok` in the reply, or with a [`CallError`] that the mount turns into `error` and
//! `errno` (`mount/ops/call.rs` moves the bytes, `docs/formats/call.md` has the ops).
//!
//! What an op does with a path, and asks of the caller for it, the library's sessions (`session`) do as well, without
//! the JSON.
//!
//! Unlike every other request of a mount these do not come through a path that the kernel has checked. So
//! an op finds what it works on by `path` alone, which asks of the caller what the kernel would ask.

pub(crate) mod access;
mod caller;
pub(crate) mod create;
mod cursor;
mod defaults;
mod drain;
mod dump;
pub(crate) mod find;
pub(crate) mod meaning;
pub(crate) mod path;
mod servers;
mod sync;
pub(crate) mod tags;

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use slabfs_mdserver::api::{Ino, MdError};
use thiserror::Error;

use crate::client::{Client, FsError};
use crate::view::name::NameError;

pub use caller::Caller;
pub use create::Described;
pub use path::PathText;

/// Bytes of a request.
pub const REQUEST_LIMIT: usize = 4 << 20;
/// Bytes of a reply; an op with more to say gives it in pages.
pub const REPLY_LIMIT: usize = 8 << 20;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum CallError {
    /// The client library says so.
    #[error(transparent)]
    Client(#[from] FsError),
    /// A name on the way means nothing.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The request makes no sense; the text says what would.
    #[error("{0}")]
    Invalid(String),
    /// Nothing is there.
    #[error("{0} does not exist")]
    Missing(String),
    /// Something on the way is no directory.
    #[error("{0} is not a directory")]
    NotDirectory(String),
    /// The caller may not.
    #[error("{0}")]
    Denied(String),
    /// One of several things that were asked for.
    #[error("{path}{error}")]
    At {
        /// Which, from 0.
        index: usize,
        /// What it is about, where the error does not say: a path with ": " behind it, or nothing.
        path: String,
        /// What is wrong with it.
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
    /// Which of several things it is about, from 0.
    pub fn index(&self) -> Option<usize> {
        match self {
            Self::At { index, .. } => Some(*index),
            _ => None,
        }
    }
}

impl From<MdError> for CallError {
    fn from(error: MdError) -> Self {
        Self::Client(FsError::Md(error))
    }
}

/// What an op works with.
pub struct Context {
    /// The session of the mount.
    pub client: Arc<Client>,
    /// Who asks.
    pub caller: Caller,
    /// What ops have changed behind the kernel's back since it was last taken.
    pub changed: Mutex<Changed>,
}

/// What the kernel may know otherwise.
#[derive(Debug, Default)]
pub struct Changed {
    /// Stored names that have appeared or gone, with their directories.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// Inodes with other attributes.
    pub inodes: Vec<Ino>,
}

impl Context {
    /// Of a call by `caller`.
    pub fn new(client: Arc<Client>, caller: Caller) -> Context {
        Context {
            client,
            caller,
            changed: Mutex::default(),
        }
    }
}

/// Answers one request.
///
/// # Errors
/// Says what was wrong with the request, or what failed.
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
        "servers" => servers::run(context, &arguments.read()?),
        "sync" => sync::run(context, &arguments.read()?),
        "tag" => tags::tag(context, arguments.read()?),
        "tags" => tags::tags(context, &arguments.read()?),
        _ => Err(CallError::Unknown(op)),
    }
}

/// What stands beside `op` in a request.
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
