//! `sync`: syncs all data written through this mount to the servers' disks.

use serde_json::{Value, json};

use super::{CallError, Context, Nothing};

/// `{"op": "sync"}` → `{}`; as `fsync` of every file, with the first error.
pub(super) fn run(context: &Context, _: &Nothing) -> Result<Value, CallError> {
    context.client.sync_all()?;
    Ok(json!({}))
}
