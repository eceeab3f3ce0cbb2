//! `slabfs couple status`: who has a coupled file open, where its data is, and which reads wait for what. As text, JSON
//! or a picture of the boxes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use slabfs_fs::client::LayoutView;

use crate::draw::{self, CutArgs, Format, Mark, Waits};
use crate::onmount::Mount;
use crate::tags::one_line;
use crate::{output, table};

/// Show who has a coupled file open, where its data is, and which reads wait for what
///
/// The picture of --svg has the chunks that are there, in the colours of their servers, and over them what each waiting
/// read asks for (dashed outline) and what of it is missing (red).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs couple status mnt/field
  slabfs couple status mnt/field --json | jq .reads
  slabfs couple status mnt/field --svg field.svg")]
pub(super) struct Args {
    /// A coupled file
    path: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
    /// Write an SVG drawing to this file instead
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    cut: CutArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut reply = super::call(&args.path, false)?;
    let mount = Mount::of(&args.path)?;
    let view: LayoutView = draw::view(mount.layout_of(&args.path)?)?;
    if let Some(file) = &args.svg {
        return picture(args, file, &reply, &view);
    }
    reply["held"] = held(&view, &mount.report("status".as_ref())?["servers"]);
    match args.json {
        true => output::json(&reply),
        false => output::print(&show(&reply, view.elem.max(1))?),
    }
}

fn picture(args: &Args, file: &Path, reply: &Value, view: &LayoutView) -> anyhow::Result<()> {
    let mut marks = Vec::new();
    for read in list(reply, "reads")? {
        let text = format!("session {}, for {}", text(read, "session"), seconds(read));
        for (key, waits) in [("cells", Waits::Asked), ("missing", Waits::Missing)] {
            marks.extend(regions(read, key).map(|(offset, shape)| Mark {
                offset,
                shape,
                waits,
                text: text.clone(),
            }));
        }
    }
    let picture = args.cut.picture(view, &marks)?;
    let written = draw::write_picture(file, &args.path, Format::Svg, &picture)?;
    output::print(&format!(
        "{written}, {} waiting reads\n",
        list(reply, "reads")?.len()
    ))
}

/// Chunks and bytes by server.
fn held(view: &LayoutView, servers: &Value) -> Value {
    let mut held: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for chunk in &view.chunks {
        if let Some(server) = chunk.server {
            let (chunks, bytes) = held.entry(server).or_default();
            *chunks += 1;
            *bytes = bytes.saturating_add(chunk.bytes);
        }
    }
    let rows = held.into_iter().map(|(id, (chunks, bytes))| {
        let servers = servers.as_array().into_iter().flatten();
        let server = servers.into_iter().find(|server| server["id"] == id);
        let of = |key: &str| server.map_or(Value::Null, |server| server[key].clone());
        json!({
            "server": id, "host": of("host"), "memory": of("memory"), "state": of("state"), "chunks": chunks,
            "bytes": bytes,
        })
    });
    rows.collect()
}

fn show(reply: &Value, elem: u64) -> anyhow::Result<String> {
    let ended = reply.get("ended").and_then(Value::as_bool) == Some(true);
    let mut shown = format!(
        "{}, {} bytes, {}\n",
        text(reply, "couple"),
        text(reply, "size"),
        if ended { "ended" } else { "not ended" },
    );
    let opens = rows(list(reply, "opens")?, |open| {
        let numbers = ["session", "writers", "readers"].map(|key| text(open, key));
        let [session, writers, readers] = numbers;
        vec![name(open, "host"), session, writers, readers]
    });
    if opens.is_empty() {
        shown.push_str("no program has it open\n");
    } else {
        let heading = ["host", "session", "writers", "readers"];
        shown.push_str(&table::rows(&heading, &opens));
    }
    let held = rows(list(reply, "held")?, |server| {
        let place = match server["memory"] == true {
            true => "memory of a mount",
            false => "data server",
        };
        let numbers = ["server", "chunks", "bytes"].map(|key| text(server, key));
        let [number, chunks, bytes] = numbers;
        let state = name(server, "state");
        vec![
            number,
            name(server, "host"),
            place.to_owned(),
            state,
            chunks,
            bytes,
        ]
    });
    if !held.is_empty() {
        let heading = [
            "server",
            "host",
            "holds data in",
            "state",
            "chunks",
            "bytes",
        ];
        shown.push_str(&table::rows(&heading, &held));
    }
    let reads = rows(list(reply, "reads")?, |read| {
        let boxes = ["cells", "missing"].map(|key| selections(read, key, elem));
        let [cells, missing] = boxes;
        vec![text(read, "session"), seconds(read), cells, missing]
    });
    if !reads.is_empty() {
        let heading = ["session", "waits", "reads", "of which are missing"];
        shown.push_str(&table::rows(&heading, &reads));
    }
    Ok(shown)
}

fn list<'a>(reply: &'a Value, key: &str) -> anyhow::Result<&'a Vec<Value>> {
    let list = reply.get(key).and_then(Value::as_array);
    list.with_context(|| format!("the mount sent no {key}"))
}

fn rows(list: &[Value], row: impl Fn(&Value) -> Vec<String>) -> Vec<Vec<String>> {
    list.iter().map(row).collect()
}

fn text(value: &Value, key: &str) -> String {
    value.get(key).map(table::show).unwrap_or_default()
}

/// A text of another machine, on one line.
fn name(value: &Value, key: &str) -> String {
    one_line(value.get(key).and_then(Value::as_str).unwrap_or("-"))
}

fn seconds(read: &Value) -> String {
    let since = read.get("for_ms").and_then(Value::as_u64).unwrap_or(0);
    format!("{:.1} s", since as f64 / 1e3)
}

/// Boxes of a read: offsets and shapes; the last axis counts bytes.
fn regions(read: &Value, key: &str) -> impl Iterator<Item = (Vec<u64>, Vec<u64>)> {
    let numbers = |region: &Value, key: &str| -> Vec<u64> {
        let list = region.get(key).and_then(Value::as_array);
        let list = list.into_iter().flatten();
        list.filter_map(Value::as_u64).collect()
    };
    let list = read.get(key).and_then(Value::as_array);
    let list = list.into_iter().flatten();
    list.map(move |region| (numbers(region, "offset"), numbers(region, "shape")))
}

/// Boxes as selections, in elements.
fn selections(read: &Value, key: &str, elem: u64) -> String {
    const MOST: usize = 4;
    let all = regions(read, key).map(|(offset, shape)| {
        let axes = offset.iter().zip(&shape).enumerate();
        let axes = axes.map(|(axis, (&at, &len))| {
            let unit = if axis + 1 == offset.len() { elem } else { 1 };
            format!("{}:{}", at / unit, at.saturating_add(len).div_ceil(unit))
        });
        format!("[{}]", axes.collect::<Vec<_>>().join(","))
    });
    let mut shown: Vec<String> = all.collect();
    let more = shown.len().saturating_sub(MOST);
    shown.truncate(MOST);
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_what_waits() {
        let reply = json!({
            "couple": "keep=memory,timeout=60s,matchers=auto", "size": 128, "ended": false, "matchers": 1,
            "opens": [{"host": "node1", "session": 3, "writers": 2, "readers": 0}],
            "held": [{"server": 7, "host": "node2", "memory": true, "state": "online", "chunks": 5, "bytes": 64}],
            "reads": [{"session": 4, "for_ms": 1500, "cells": [{"offset": [0, 0], "shape": [4, 8]}],
                       "missing": [{"offset": [2, 0], "shape": [2, 8]}]}],
        });
        let text = show(&reply, 8).expect("a status");
        let parts = [
            "not ended",
            "node1",
            "node2",
            "memory of a mount",
            "1.5 s",
            "[0:4,0:1]",
            "[2:4,0:1]",
        ];
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
    }
}
