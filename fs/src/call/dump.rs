//! `dump`: a consistent dump of all metadata, page by page (`slabfs meta dump`).

use serde::Deserialize;
use serde_json::{Value, json};
use slabfs_mdserver::api::{MdError, op};
use slabfs_model::hex;

use super::{CallError, Context};

/// A page of a dump.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// The ticket from the first reply; `None` starts a new dump.
    #[serde(default)]
    ticket: Option<u64>,
    /// The first byte wanted.
    #[serde(default)]
    offset: u64,
}

/// `{"op": "dump", "ticket": T, "offset": N}` → `{"ticket": T, "total": BYTES, "hex": TEXT}`; `total` is
/// null while the dump is being made.
pub(super) fn run(context: &Context, request: &Request) -> Result<Value, CallError> {
    if !context.caller.administers() {
        return Err(CallError::Denied(
            "a dump contains the names and tags of all users: only root and the user who mounted may have it"
                .to_owned(),
        ));
    }
    if context.client.divided() {
        return Err(MdError::NotSupported(
            "the metadata is in several shards, and a dump would have the names only: copy the directories of the stopped services, \
             or keep the journals in etcd"
                .to_owned(),
        )
        .into());
    }
    let page = context.client.names().md().call(op::Dump {
        ticket: request.ticket,
        offset: request.offset,
    })?;
    Ok(json!({"ticket": page.ticket, "total": page.total, "hex": hex(&page.bytes)}))
}
