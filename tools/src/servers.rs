//! `slabfs servers`: the data servers a mount knows.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;

use crate::args::show_size;
use crate::onmount::Mount;
use crate::{output, table};

/// Show the data servers behind a mount, whether they answer, and their space.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs servers mnt
  slabfs servers mnt --json | jq '.[] | select(.online | not)'")]
pub(crate) struct Args {
    /// The mount point, or anything below it
    mountpoint: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let status = Mount::of(&args.mountpoint)?.report("status".as_ref())?;
    let servers = status
        .get("servers")
        .context("the mount tells nothing of its servers")?;
    if args.json {
        output::json(servers)
    } else {
        output::print(&show(servers))
    }
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
            let online = server
                .get("online")
                .and_then(Value::as_bool)
                .unwrap_or(false);
            let place = match server.get("addr") {
                Some(Value::String(addr)) => addr.clone(),
                _ => "in the mount's process".to_owned(),
            };
            vec![
                server.get("id").map(table::show).unwrap_or_default(),
                if online { "online" } else { "away" }.to_owned(),
                size(server, "used"),
                size(server, "free"),
                size(server, "total"),
                place,
            ]
        })
        .collect();
    table::rows(
        &["server", "state", "used", "free", "total", "address"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_line_a_server() {
        let servers = json!([
            {"id": 1, "online": true, "used": 1024, "free": 2048, "total": 3072, "addr": null},
            {"id": 2, "online": false, "addr": "unix:/tmp/os2.sock"},
        ]);
        let text = show(&servers);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("online") && lines[1].contains("in the mount's process"));
        assert!(lines[2].contains("away") && lines[2].contains("unix:/tmp/os2.sock"));
        assert!(show(&json!([])).contains("no data server"));
    }
}
