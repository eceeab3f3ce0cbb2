//! `servers`: lists the data servers, as `.slabfs/status` does.

use serde_json::Value;
use slabfs_mdserver::api::op;

use super::{CallError, Context, Nothing};
use crate::view::hidden;

/// `{"op": "servers"}` → a list.
pub(super) fn run(context: &Context, _: &Nothing) -> Result<Value, CallError> {
    Ok(hidden::servers(&context.client.md().call(op::Servers {})?))
}
