//! `slabfs servers`: lists the data servers of a mount.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

use crate::args::show_size;
use crate::onmount::Mount;
use crate::{output, table};

/// Show the data servers: their state, contents and space.
///
/// States: online; away (not heard for some seconds, or, of `slabfs up`, not started); draining (being emptied, or
/// empty after that, see `slabfs drain`); full (nearly: new chunks go elsewhere). "in flight" are bytes that mounts may
/// still write there. Bytes and chunks are those of the last report of a server, at most some seconds old. The metadata
/// service has a line too while it cannot store changes: failed, with the error. A server over a bucket has another line: its
/// requests and bytes since its start, the size of its cache, and the chunks that are not in the bucket yet.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs servers mnt
  slabfs servers mnt --json | jq '.[] | select(.online | not)'

Next: `slabfs drain 3 mnt` moves everything off server 3.")]
pub(crate) struct Args {
    /// The mount point, or any path below it
    mountpoint: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let status = Mount::of(&args.mountpoint)?.report("status".as_ref())?;
    let mut servers = status
        .get("servers")
        .and_then(Value::as_array)
        .context("the mount's status has no list of servers")?
        .clone();
    servers.extend(failed_metadata(&status));
    let servers = Value::Array(servers);
    match args.json {
        true => output::json(&servers),
        false => output::print(&show(&servers)),
    }
}

/// The metadata service as a row, if it cannot store changes.
fn failed_metadata(status: &Value) -> Option<Value> {
    let error = status.get("metadata_error").filter(|e| e.is_string())?;
    Some(json!({
        "id": null,
        "host": "metadata service",
        "state": "failed",
        "online": false,
        "addr": status.get("metadata"),
        "error": error,
    }))
}

fn show(servers: &Value) -> String {
    let Some(servers) = servers.as_array().filter(|list| !list.is_empty()) else {
        return "no data server has registered yet\n".to_owned();
    };
    let size = |server: &Value, key: &str| {
        server
            .get(key)
            .and_then(Value::as_u64)
            .map_or_else(|| "-".to_owned(), show_size)
    };
    let rows: Vec<Vec<String>> = servers
        .iter()
        .map(|server| {
            let text = |key: &str| server.get(key).and_then(Value::as_str).unwrap_or("-");
            let online = server.get("online").and_then(Value::as_bool) != Some(false);
            let place = match server.get("addr") {
                Some(Value::String(addr)) => addr.clone(),
                _ if online => "in the mount's process".to_owned(),
                _ => "not started".to_owned(),
            };
            vec![
                server.get("id").map(table::show).unwrap_or_default(),
                text("host").to_owned(),
                state(server),
                size(server, "bytes"),
                server.get("chunks").map(table::show).unwrap_or_default(),
                size(server, "in_flight"),
                size(server, "free"),
                size(server, "total"),
                match server.get("error").and_then(Value::as_str) {
                    Some(error) => format!("{place}: {error}"),
                    None => place,
                },
            ]
        })
        .collect();
    let mut text = table::rows(
        &[
            "server",
            "host",
            "state",
            "bytes",
            "chunks",
            "in flight",
            "free",
            "total",
            "address",
        ],
        &rows,
    );
    let engines = servers.iter().filter_map(|server| {
        let counts = server.get("engine")?.as_object()?.iter();
        let counts: Vec<String> = counts
            .map(|(name, count)| format!("{name} {}", table::show(count)))
            .collect();
        Some(format!(
            "engine of server {}: {}\n",
            server.get("id").map(table::show).unwrap_or_default(),
            counts.join(", ")
        ))
    });
    text.extend(engines);
    text
}

/// The state; with "draining" added where it is another one.
fn state(server: &Value) -> String {
    let state = server.get("state").and_then(Value::as_str).unwrap_or("-");
    let draining = server.get("draining").and_then(Value::as_bool) == Some(true);
    match draining && state != "draining" {
        true => format!("{state}, draining"),
        false => state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_server() {
        let servers = json!([
            {"id": 1, "host": "node1", "state": "online", "bytes": 1024, "chunks": 3, "free": 2048,
             "total": 3072, "addr": null},
            {"id": 2, "host": "node2", "state": "away", "draining": true, "addr": "unix:/tmp/os2.sock"},
            {"id": 3, "host": "node1", "state": "away", "online": false, "addr": null},
        ]);
        let text = show(&servers);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("online") && lines[1].contains("in the mount's process"));
        assert!(lines[2].contains("away, draining") && lines[2].contains("unix:/tmp/os2.sock"));
        assert!(lines[3].contains("away") && lines[3].ends_with("not started"));
        assert!(show(&json!([])).contains("no data server"));
        assert!(failed_metadata(&json!({"metadata_error": null})).is_none());
        let status = json!({"metadata": "unix:/md", "metadata_error": "the journal"});
        let text = show(&json!([failed_metadata(&status)]));
        assert!(
            text.contains("failed") && text.contains("unix:/md: the journal"),
            "{text}"
        );
    }
}
