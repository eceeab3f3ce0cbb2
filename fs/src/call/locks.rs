//! `locks`: who holds locks, and who waits for them.

use serde::Deserialize;
use serde_json::{Value, json};
use slabfs_mdserver::api::{LockKind, LockList, LockMode, LockRow, LockSpan};

use super::find::{path_of_hit, who};
use super::path::{PathText, Walk};
use super::{CallError, Context};

/// `{"op": "locks", "path": …}` → `{"locks": [{"path": …, "host": …, …}, …], "left": 0}`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Only those of this file.
    #[serde(default)]
    path: Option<PathText>,
}

pub(super) fn run(context: &Context, request: &Request) -> Result<Value, CallError> {
    let ino = match &request.path {
        Some(path) => Some(Walk::new(context, path).find()?.attr.ino),
        None => None,
    };
    let who = Some(who(&context.caller));
    let LockList { locks, left } = context.client.locks(ino, who)?;
    let locks: Vec<Value> = locks.iter().map(shown).collect();
    Ok(json!({ "locks": locks, "left": left }))
}

fn shown(row: &LockRow) -> Value {
    let LockSpan { first, last } = row.span;
    json!({
        "path": row.path.as_deref().map(|path| PathText::of_bytes(path_of_hit(path))),
        "ino": row.file.ino.0,
        "selection": row.file.selection.as_ref().map(ToString::to_string),
        "kind": match row.kind {
            LockKind::Record => "fcntl",
            LockKind::File => "flock",
        },
        "mode": match row.mode {
            LockMode::Shared => "shared",
            LockMode::Exclusive => "exclusive",
        },
        "waits": row.waits,
        "host": row.host,
        "session": row.session.0,
        "pid": row.pid,
        "first": first,
        // A lock to the end of the file, however long it becomes.
        "last": (last < i64::MAX as u64).then_some(last),
        "for_ms": row.for_ms,
    })
}
