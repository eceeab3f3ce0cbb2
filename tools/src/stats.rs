//! `slabfs stats`: shows the counters of a mount.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::args::{parse_time, show_size};
use crate::onmount::Mount;
use crate::{output, table};

/// Show the counters of a mount since its start.
///
/// They are transfers, operations on servers, and bytes.
///
/// A transfer is one read or write of a selection. `bytes_selected` are the bytes requested by programs,
/// `bytes_sent` those sent to or received from servers, `bytes_touched` the sizes of the chunks that contain
/// them: selected/sent and selected/touched are the efficiency of the workload.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs stats mnt
  slabfs stats mnt --watch | head -n 3    # rates, a line a second
  slabfs stats mnt --json | jq .write.bytes_sent")]
pub(crate) struct Args {
    /// The mount point, or any path below it
    mountpoint: PathBuf,
    /// As JSON, for programs
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// Print rates, a line each second or each TIME, until Ctrl-C
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", value_parser = parse_time)]
    watch: Option<Duration>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mount = Mount::of(&args.mountpoint)?;
    let mut stats = sample(&mount)?;
    if let Some(span) = args.watch {
        loop {
            std::thread::sleep(span);
            let now = sample(&mount)?;
            let line = format!("{}\n", Rates::between(&stats, &now, span));
            if !output::bytes(line.as_bytes())? {
                return Ok(());
            }
            stats = now;
        }
    }
    if args.json {
        return output::json(&stats);
    }
    for direction in ["read", "write"] {
        if let Some(part) = stats.get_mut(direction) {
            add_efficiency(part);
        }
    }
    output::print(&table::lines(&stats))
}

/// The counters of a mount.
pub(crate) fn sample(mount: &Mount) -> anyhow::Result<Value> {
    Ok(flat(mount.report("stats".as_ref())?))
}

/// What a mount does, a second.
pub(crate) struct Rates {
    read: u64,
    written: u64,
    messages: u64,
    metadata: u64,
}

impl Rates {
    /// The rates between two samples.
    pub(crate) fn between(before: &Value, now: &Value, span: Duration) -> Rates {
        let rate = |path: &str| {
            let count = |sample: &Value| sample.pointer(path).and_then(Value::as_u64).unwrap_or(0);
            let count = count(now).saturating_sub(count(before));
            (count as f64 / span.as_secs_f64().max(0.001)).round() as u64
        };
        Rates {
            read: rate("/read/bytes_selected"),
            written: rate("/write/bytes_selected"),
            messages: rate("/messages"),
            metadata: rate("/metadata_requests"),
        }
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "read {}/s, written {}/s; {} messages/s to data servers, {} requests/s to the metadata service",
            show_size(self.read),
            show_size(self.written),
            self.messages,
            self.metadata
        )
    }
}

/// Moves the counters of reads and writes to the top level.
fn flat(mut stats: Value) -> Value {
    if let Some(map) = stats.as_object_mut()
        && let Some(Value::Object(counters)) = map.remove("counters")
    {
        map.extend(counters);
    }
    stats
}

/// Adds the two ratios to a direction's counters, where the divisor is not 0.
fn add_efficiency(part: &mut Value) {
    let count = |key: &str| part.get(key).and_then(Value::as_u64).unwrap_or(0);
    let selected = count("bytes_selected");
    let ratios: Vec<(&str, String)> = [
        ("selected/sent", count("bytes_sent")),
        ("selected/touched", count("bytes_touched")),
    ]
    .into_iter()
    .filter(|&(_, moved)| moved > 0)
    .map(|(name, moved)| (name, percent(selected, moved)))
    .collect();
    if let Value::Object(map) = part {
        for (name, text) in ratios {
            map.insert(name.to_owned(), json!(text));
        }
    }
}

/// `part` of `total` in percent, with two decimal places as in the document.
pub(crate) fn percent(part: u64, total: u64) -> String {
    if total == 0 {
        return "-".to_owned();
    }
    if part == total {
        return "100 %".to_owned();
    }
    format!("{:.2} %", part as f64 * 100.0 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documents_percentages() {
        let shown: Vec<String> = [(360, 1024), (196, 256), (216, 512), (252, 512), (5, 5)]
            .map(|(part, total)| percent(part, total))
            .to_vec();
        assert_eq!(shown, ["35.16 %", "76.56 %", "42.19 %", "49.22 %", "100 %"]);
        assert_eq!(percent(1, 0), "-");
    }

    #[test]
    fn counters_are_moved_to_the_top_level() {
        let stats = json!({"counters": {"write": {"bytes_sent": 5}}, "session": 1});
        assert_eq!(
            flat(stats),
            json!({"write": {"bytes_sent": 5}, "session": 1})
        );
        assert_eq!(flat(json!({"session": 1})), json!({"session": 1}));
    }

    #[test]
    fn ratios_only_where_something_moved() {
        let mut part = json!({"bytes_selected": 360, "bytes_sent": 360, "bytes_touched": 1024});
        add_efficiency(&mut part);
        assert_eq!(part["selected/sent"], "100 %");
        assert_eq!(part["selected/touched"], "35.16 %");
        let mut idle = json!({"bytes_selected": 0, "bytes_sent": 0});
        add_efficiency(&mut idle);
        assert_eq!(idle.as_object().map(serde_json::Map::len), Some(2));
    }
}
