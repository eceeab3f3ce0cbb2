//! `drain` and `drain_slice`: move all data off a data server.

use serde::Deserialize;
use serde_json::{Value, json};
use slabfs_model::ServerId;

use super::{CallError, Context};

/// Arguments of `drain`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    server: u32,
    /// Remove the mark instead.
    #[serde(default)]
    cancel: bool,
}

/// Arguments of `drain_slice`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Slice {
    server: u32,
    /// Continue after this object.
    #[serde(default)]
    after: u64,
    /// The result of the previous slice: no object so far had data on the server.
    #[serde(default)]
    clean: bool,
}

/// Marks the server, so that it gets no new chunks, or removes the mark.
pub(super) fn mark(context: &Context, arguments: &Mark) -> Result<Value, CallError> {
    allow(context)?;
    let server = ServerId(arguments.server);
    let draining = !arguments.cancel;
    context.client.set_draining(server, draining)?;
    Ok(json!({"server": server.0, "draining": draining}))
}

/// Moves chunks off the server for a short time.
pub(super) fn slice(context: &Context, arguments: &Slice) -> Result<Value, CallError> {
    allow(context)?;
    let server = ServerId(arguments.server);
    let drained = context
        .client
        .drain_slice(server, arguments.after, arguments.clean)?;
    serde_json::to_value(drained).map_err(|error| CallError::Invalid(error.to_string()))
}

/// Only root and the user who mounted may drain servers.
fn allow(context: &Context) -> Result<(), CallError> {
    if context.caller.administers() {
        return Ok(());
    }
    Err(CallError::Denied(
        "only root, or the user whose mount this is, may drain a data server".to_owned(),
    ))
}
