//! `slabfs locks`: who holds locks on files of a mount, and who waits for them.

use std::path::PathBuf;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use crate::onmount::{Mount, explain, selected};
use crate::tags::one_line;
use crate::{output, table};

/// Show who holds locks, and who waits for them.
///
/// Locks of fcntl(2) and flock(2) by programs on all mounts of the filesystem: a line each, the holders of a file before
/// those that wait, and these in the order in which they are served. "bytes" is the locked range; the process id is
/// that on its host, and the program's name is shown if it runs on this machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs locks mnt
  slabfs locks mnt/run1/temp
  slabfs locks mnt --json | jq '.locks[] | select(.waits)'

A program that holds a lock and hangs ends with `kill PID` on its host; its locks end with it.")]
pub(crate) struct Args {
    /// A file, or the mount point for all locks
    path: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let meta = std::fs::metadata(&args.path).map_err(|error| explain(&args.path, error))?;
    let mount = Mount::of(&args.path)?;
    let mut request = json!({ "op": "locks" });
    match meta.is_dir() {
        true if args.path.canonicalize()? != mount.root() => bail!(
            "{} is a directory; give a file in it, or {} for all locks",
            args.path.display(),
            mount.root().display()
        ),
        true => {}
        // Those of a selection are listed with the others of its array.
        false => {
            let array = selected(&args.path).map(|(array, _)| array);
            request["path"] = json!(mount.inside(array.as_ref().unwrap_or(&args.path))?);
        }
    }
    let reply = mount.call(&request)?;
    if args.json {
        return output::json(&reply);
    }
    let locks = reply
        .get("locks")
        .and_then(Value::as_array)
        .context("the mount sent no list of locks")?;
    let left = reply.get("left").and_then(Value::as_u64).unwrap_or(0);
    output::print(&show(locks, left))
}

fn show(locks: &[Value], left: u64) -> String {
    if locks.is_empty() {
        return "no locks\n".to_owned();
    }
    let here = nix::unistd::gethostname().unwrap_or_default();
    let rows: Vec<Vec<String>> = locks
        .iter()
        .map(|lock| row(lock, &here.to_string_lossy()))
        .collect();
    let heading = [
        "state", "host", "pid", "program", "lock", "bytes", "since", "file",
    ];
    let mut text = table::rows(&heading, &rows);
    if left > 0 {
        text.push_str(&format!("… and {left} more\n"));
    }
    text
}

fn row(lock: &Value, here: &str) -> Vec<String> {
    let text = |key: &str| lock.get(key).and_then(Value::as_str);
    let number = |key: &str| lock.get(key).and_then(Value::as_u64);
    let host = text("host").unwrap_or_default();
    let pid = number("pid").unwrap_or(0);
    let program = match host == here {
        // Of a mount in another process namespace the number means another process, or none.
        true => std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default(),
        false => String::new(),
    };
    let waits = lock.get("waits").and_then(Value::as_bool) == Some(true);
    let mode = text("mode").unwrap_or_default();
    let bytes = match (number("first").unwrap_or(0), number("last")) {
        (0, None) => "all".to_owned(),
        (first, None) => format!("{first}-"),
        (first, Some(last)) => format!("{first}-{last}"),
    };
    vec![
        if waits { "waits" } else { "holds" }.to_owned(),
        one_line(host),
        pid.to_string(),
        one_line(program.trim_end()),
        format!("{} {mode}", text("kind").unwrap_or_default()),
        bytes,
        since(number("for_ms").unwrap_or(0)),
        file(lock),
    ]
}

/// How long ago.
fn since(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{:.1} s", ms as f64 / 1e3),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

/// The file's path, with its selection.
fn file(lock: &Value) -> String {
    let path = match lock.get("path") {
        Some(Value::String(path)) => path.clone(),
        Some(Value::Array(bytes)) => {
            let bytes = bytes
                .iter()
                .filter_map(Value::as_u64)
                .map(|byte| byte as u8);
            String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
        }
        _ => format!(
            "inode {}",
            lock.get("ino").map(table::show).unwrap_or_default()
        ),
    };
    match lock.get("selection").and_then(Value::as_str) {
        Some(selection) => one_line(&format!("{path}@{selection}")),
        None => one_line(&path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_lock() {
        let locks = [
            json!({"path": "a/b", "ino": 7, "selection": null, "kind": "fcntl", "mode": "exclusive", "waits": false,
                   "host": "elsewhere", "session": 3, "pid": 42, "first": 0, "last": 99, "for_ms": 2500}),
            json!({"path": null, "ino": 8, "selection": "[0:2]", "kind": "flock", "mode": "shared", "waits": true,
                   "host": "elsewhere", "session": 3, "pid": 43, "first": 0, "last": null, "for_ms": 10}),
        ];
        let shown = show(&locks, 2);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let first = "holds elsewhere 42 fcntl exclusive 0-99 2.5 s a/b";
        let second = "waits elsewhere 43 flock shared all 10 ms inode 8@[0:2]";
        assert_eq!(lines[1].join(" "), first, "{shown}");
        assert_eq!(lines[2].join(" "), second, "{shown}");
        assert!(lines[3].contains(&"2"), "{shown}");
        assert_eq!(show(&[], 0), "no locks\n");
    }
}
