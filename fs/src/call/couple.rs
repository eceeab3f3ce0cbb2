//! `couple`: who exchanges the data of a coupled object; and the end of its stream.

use serde::Deserialize;
use serde_json::{Value, json};
use slabfs_mdserver::api::{CoupledSession, WaitingRead, op};
use slabfs_model::Region;

use super::access::{Want, allows};
use super::path::{PathText, Walk};
use super::{CallError, Context};

/// `{"op": "couple", "path": …}` → `{"couple": …, "ended": …, "opens": […], "reads": […]}`; `{"end": true}` ends the
/// stream first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    path: PathText,
    #[serde(default)]
    end: bool,
}

pub(super) fn run(context: &Context, request: &Request) -> Result<Value, CallError> {
    let entry = Walk::new(context, &request.path).find()?;
    let want = match request.end {
        true => Want::Write,
        false => Want::Read,
    };
    if !allows(&entry.attr, &context.caller, want) {
        return Err(CallError::Denied(request.path.to_string()));
    }
    let ino = entry.attr.ino;
    if request.end {
        context.client.md(ino).call(op::EndStream { ino })?;
    }
    let status = context.client.md(ino).call(op::CoupleStatus { ino })?;
    let info = status.entry.info.as_ref();
    Ok(json!({
        "ino": ino.0,
        "couple": info.map(|info| info.couple.to_string()),
        "size": status.entry.attr.size,
        "matchers": status.matchers,
        "ended": status.ended,
        "opens": status.opens.iter().map(open).collect::<Vec<_>>(),
        "reads": status.reads.iter().map(read).collect::<Vec<_>>(),
    }))
}

fn open(one: &CoupledSession) -> Value {
    json!({
        "session": one.session.0,
        "host": one.host,
        "writers": one.open.writers.len(),
        "readers": one.open.readers,
    })
}

fn read(one: &WaitingRead) -> Value {
    json!({
        "session": one.session.0,
        "cells": one.cells.iter().map(region).collect::<Vec<_>>(),
        "missing": one.missing.iter().map(region).collect::<Vec<_>>(),
        "for_ms": one.for_ms,
    })
}

/// First cell and shape; the last axis counts bytes.
fn region(region: &Region) -> Value {
    json!({ "offset": region.offset.as_slice(), "shape": region.shape.as_slice() })
}
