//! `slabfs status`: what is mounted on this machine, and how its services are.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use serde_json::{Value, json};

use crate::args::show_size;
use crate::mountpoint::{mounts, process_of};
use crate::onmount::Mount;
use crate::output;
use crate::stats::{self, Rates};

/// Show what is mounted, and how its services are.
///
/// One paragraph for each slabfs mount of this machine, or for the given one: its metadata service and data servers,
/// space, open objects and data that is not written back, locks, and the rates of the next second.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs status
  slabfs status mnt
  slabfs status mnt --json | jq .status.servers

Next: `slabfs servers mnt` has a line for each data server, `slabfs stats mnt --watch` shows rates all the time.")]
pub(crate) struct Args {
    /// A mount point, or any path below it; without it all mounts of this machine
    mountpoint: Option<PathBuf>,
    /// As JSON, for programs: the mount's status and counters
    #[arg(long)]
    json: bool,
}

/// Over which time rates are measured.
const SPAN: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let places: Vec<PathBuf> = match &args.mountpoint {
        Some(place) => vec![place.clone()],
        None => {
            let all = mounts()?.into_iter();
            all.filter(|mounted| mounted.kind == "fuse.slabfs")
                .map(|mounted| mounted.at)
                .collect()
        }
    };
    if places.is_empty() {
        bail!("no slabfs is mounted on this machine; `slabfs up MOUNTPOINT` starts one");
    }
    let mut looks = Vec::new();
    let mut failed = None;
    for place in &places {
        match look(place) {
            Ok(look) => looks.push(look),
            Err(error) if args.mountpoint.is_some() => return Err(error),
            // One that does not answer must not hide the others.
            Err(error) => {
                output::error_line(&format!("slabfs: {}: {error:#}", place.display()));
                failed = Some(error);
            }
        }
    }
    if args.json {
        let all: Vec<Value> = looks.into_iter().map(|look| look.json).collect();
        return match (all.as_slice(), &args.mountpoint) {
            ([one], Some(_)) => output::json(one),
            _ => output::json(&all),
        };
    }
    let text: Vec<String> = looks.iter().map(|look| look.text.clone()).collect();
    output::print(&text.join("\n"))?;
    match failed {
        Some(_) => bail!("not every mount answered"),
        None => Ok(()),
    }
}

struct Look {
    json: Value,
    text: String,
}

fn look(place: &std::path::Path) -> anyhow::Result<Look> {
    let mount = Mount::of(place)?;
    let status = mount.report("status".as_ref())?;
    let before = stats::sample(&mount)?;
    std::thread::sleep(SPAN);
    let now = stats::sample(&mount)?;
    // Unknown while the metadata service does not serve this mount; the status says why.
    let space = nix::sys::statvfs::statvfs(mount.root()).ok().map(|space| {
        let unit = space.fragment_size();
        (space.blocks() * unit, space.blocks_available() * unit)
    });
    let (total, free) = space.unzip();
    let mounted = mounts()?.into_iter();
    let process = mounted
        .filter(|mounted| mounted.at == mount.root())
        .find_map(|mounted| process_of(&mounted));
    let rates = Rates::between(&before, &now, SPAN);
    let json = json!({
        "mount": mount.root(),
        "process": process,
        "total": total,
        "free": free,
        "status": status,
        "stats": now,
    });
    let mut text = format!("{}\n", mount.root().display());
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("  {name:<12}{value}\n"));
    };
    let number = process.map_or_else(String::new, |process| format!(", process {process}"));
    line("served by", format!("{}{number}", served_by(&status)));
    line("metadata", metadata(&status, &now));
    if let Some(engine) = engine(&status) {
        line("engine", engine);
    }
    line("servers", servers(&status));
    let space = space.map(|(total, free)| {
        let (total, free) = (show_size(total), show_size(free));
        format!("{free} free of {total}")
    });
    line("space", space.unwrap_or_else(|| "unknown".to_owned()));
    let count = |name: &str| now.get(name).and_then(Value::as_u64).unwrap_or(0);
    line(
        "open",
        format!(
            "{} objects; {} not written back",
            count("open_objects"),
            show_size(count("dirty_bytes"))
        ),
    );
    line(
        "locks",
        format!(
            "{} held, {} waiting",
            count("locks_held"),
            count("locks_waiting")
        ),
    );
    line("now", rates.to_string());
    Ok(Look { json, text })
}

fn served_by(status: &Value) -> String {
    let in_process = status.get("in_process").and_then(Value::as_bool) == Some(true);
    match (in_process, status.get("metadata").and_then(Value::as_str)) {
        (true, None) => "everything in one process".to_owned(),
        (true, Some(address)) => {
            format!("everything in one process; others mount it with --md {address}")
        }
        (false, Some(address)) => format!("the metadata service at {address}"),
        (false, None) => "a metadata service".to_owned(),
    }
}

fn metadata(status: &Value, stats: &Value) -> String {
    if let Some(error) = status.get("metadata_error").and_then(Value::as_str) {
        return format!("FAILS: {error}");
    }
    let is = |name: &str| stats.get(name).and_then(Value::as_bool) == Some(true);
    let text = match (is("lapsed"), is("strict"), is("alone")) {
        (true, _, _) => "DOES NOT ANSWER; operations wait up to --io-timeout",
        (false, true, true) => "answers; strict, this is the only mount",
        (false, true, false) => "answers; strict, with other mounts",
        (false, false, _) => "answers; consistency on commit",
    };
    text.to_owned()
}

/// The state of the engine that the metadata is on, if that is not the service's directory.
fn engine(status: &Value) -> Option<String> {
    let engine = status.get("metadata_engine")?;
    let text = |name: &str| engine.get(name).and_then(Value::as_str).unwrap_or("?");
    engine.get("engine")?;
    let alarms = match text("alarms") {
        "none" => String::new(),
        alarms => format!("; ALARM: {alarms}"),
    };
    Some(format!(
        "{}, {}; leader {}; database {}; {} bytes of journal since the checkpoint ({}){alarms}",
        text("address"),
        text("members"),
        text("etcd_leader"),
        text("database"),
        text("bytes_since_checkpoint"),
        text("checkpoint"),
    ))
}

fn servers(status: &Value) -> String {
    let all: &[Value] = status
        .get("servers")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice);
    let online = |server: &&Value| server.get("online").and_then(Value::as_bool) == Some(true);
    let away: Vec<String> = all
        .iter()
        .filter(|server| !online(server))
        .filter_map(|server| Some(server.get("id")?.to_string()))
        .collect();
    let count = |name: &str| -> u64 {
        let values = all.iter().filter_map(|server| server.get(name)?.as_u64());
        values.sum()
    };
    let (chunks, bytes) = (count("chunks"), show_size(count("bytes")));
    match (all.len(), away.as_slice()) {
        (0, _) => "NONE HAS REGISTERED; nothing can be stored".to_owned(),
        (number, []) => format!("{number}, all online; {bytes} in {chunks} chunks"),
        (number, away) => format!(
            "{number}, AWAY: {}; {bytes} in {chunks} chunks",
            away.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_said() {
        let status = json!({"in_process": false, "metadata": "unix:/md", "servers": [
            {"id": 1, "online": true, "bytes": 2048, "chunks": 1},
            {"id": 7, "online": false, "bytes": 0, "chunks": 0},
        ]});
        assert_eq!(servers(&status), "2, AWAY: 7; 2.0 KiB in 1 chunks");
        assert!(served_by(&status).contains("unix:/md"));
        assert!(servers(&json!({"servers": []})).contains("NONE"));
        let metadata = |stats: Value| metadata(&json!({"metadata_error": null}), &stats);
        assert!(metadata(json!({"lapsed": true})).contains("NOT ANSWER"));
        assert!(metadata(json!({"strict": true, "alone": true})).contains("only mount"));
        assert_eq!(engine(&json!({"metadata_engine": {}})), None);
        let full = json!({"metadata_engine": {"engine": "etcd", "alarms": "NoSpace of 1f"}});
        assert!(engine(&full).is_some_and(|text| text.ends_with("; ALARM: NoSpace of 1f")));
        let failed = json!({"metadata_error": "the journal"});
        assert!(super::metadata(&failed, &json!({})).contains("FAILS: the journal"));
    }
}
