//! Flags that several subcommands share, and the parsers of their values. One name means the same in every
//! subcommand. The parsers are pure, and their error messages explain what is allowed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use slabfs_fs::client::{ClientOptions, Consistency};
use slabfs_fs::mount::Pages;
use slabfs_mdserver::api::{MAX_SHARDS, Shard};
use slabfs_model::ShardId;
use slabfs_objstore::addr::AddrError;
use slabfs_objstore::{Addr, Addrs};

/// Log level flags; every subcommand has these.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Verbosity {
    /// Log more; twice for everything (RUST_LOG chooses exactly)
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = 900)]
    pub(crate) verbose: u8,
    /// Log only errors
    #[arg(short, long, global = true, display_order = 901)]
    pub(crate) quiet: bool,
}

/// The flags of the commands that run as services.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct ServiceArgs {
    /// Take flags from a TOML file whose keys are the flags' names, e.g. `data = "/srv/slabfs"`;
    /// flags on the command line win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Run in the background once everything is ready; the exit status reports whether it is. `slabfs stop`
    /// (for a mount `slabfs umount`) stops it
    #[arg(long, overrides_with = "foreground")]
    pub(crate) daemon: bool,
    /// Stay in the foreground (the default)
    #[arg(long, overrides_with = "daemon")]
    pub(crate) foreground: bool,
    /// Write the log to this file instead of stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Size at which the log file is renamed to FILE.old and a new one begins
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_log_size)]
    pub(crate) log_size: u64,
}

/// The flags of everything that connects to another process.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Connections")]
pub(crate) struct NetArgs {
    /// File with the shared key (16 bytes or more, readable by its owner only); required for tcp:
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// How long to retry when a server is unreachable before an operation fails; seconds without a unit, at
    /// least 100ms
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_patience)]
    pub(crate) io_timeout: Duration,
}

/// Flags of the metadata service, in a process of its own or not.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Metadata")]
pub(crate) struct MetaArgs {
    /// Start although a part of the metadata is damaged beyond repair; the lost entries are listed
    #[arg(long)]
    pub(crate) accept_loss: bool,
    /// Memory for cached metadata, and a quarter of it in addition for the tag index; the process takes some hundred MB
    /// more while it checks its index after a start, and while it writes a checkpoint
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) meta_cache: u64,
    /// What to do when the journal cannot be synced any more, as on a broken disk: `stay` refuses every change (also to
    /// open a file) until a restart, and answers the rest; `exit` ends the process with status 3, for a supervisor that
    /// starts it again
    #[arg(long, value_name = "ACTION", default_value = "stay", value_parser = parse_on_journal_error)]
    pub(crate) on_journal_error: OnJournalError,
}

/// What a metadata service does when its journal cannot be synced any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnJournalError {
    /// It refuses every change.
    Stay,
    /// It ends its process.
    Exit,
}

/// Parses `stay` or `exit`.
fn parse_on_journal_error(text: &str) -> Result<OnJournalError, String> {
    match text {
        "stay" => Ok(OnJournalError::Stay),
        "exit" => Ok(OnJournalError::Exit),
        _ => Err(format!("{text:?} is neither; write stay or exit")),
    }
}

/// The flags of a mount, in any process.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Mount")]
pub(crate) struct MountArgs {
    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users access the mount, as mounts of root do anyway; the kernel checks modes and owners
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Dirty data in memory at which writers block; write-back starts at half of it. Bytes without a unit, at
    /// least 1M
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_dirty_limit)]
    pub(crate) dirty_limit: u64,
    /// Memory for the read cache
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    pub(crate) cache: u64,
    /// Memory for the tilings of arrays (which chunks are where); what does not fit is fetched again when
    /// needed
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    pub(crate) tilings: u64,
    /// Most memory for what programs on this mount write to objects that are coupled in memory; it is taken as it is
    /// used (default: half of the machine's)
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) coupled_memory: Option<u64>,
    /// What this mount and others see of each other: `strict`, each read returns the last write on any mount;
    /// or `commit`, data is visible after the writer's `fsync` or `close` and the reader's next `open` or
    /// `fsync`, without messages between mounts. With `commit` locks do not make reads current: not for
    /// databases, nor for anything that takes a lock and then reads
    #[arg(long, value_name = "MODE", value_parser = parse_consistency, default_value = DEFAULT_CONSISTENCY)]
    pub(crate) consistency: Consistency,
    /// Which files are read through the kernel's page cache: `auto`, of those that are open for reading only the ones that are
    /// small, or are expected to be read in small pieces; `always`, all of these; or `never`. With
    /// `--consistency commit`, `auto` is `never`
    #[arg(long, value_name = "WHICH", value_enum, default_value = "auto")]
    pub(crate) pages: PagesArg,
    /// The name of this machine, by which placement `local` finds the data servers on it (default: the host
    /// name)
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Let programs on this mount open objects of coupled containers before their writers have made them: a lookup of
    /// such a name waits for it. For mounts of reading programs; `slabfs help couple` says more
    #[arg(long)]
    pub(crate) await_names: bool,
    /// Threads that serve FUSE requests (default: one per processor, at least 2)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(crate) threads: Option<u16>,
}

/// Values of `--pages`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PagesArg {
    Auto,
    Always,
    Never,
}

impl From<PagesArg> for Pages {
    fn from(arg: PagesArg) -> Pages {
        match arg {
            PagesArg::Auto => Pages::Auto,
            PagesArg::Always => Pages::Always,
            PagesArg::Never => Pages::Never,
        }
    }
}

const DEFAULT_CONSISTENCY: &str = match Consistency::DEFAULT {
    Consistency::Strict => "strict",
    Consistency::Commit => "commit",
};

/// Parses `strict` or `commit`.
pub(crate) fn parse_consistency(text: &str) -> Result<Consistency, String> {
    match text {
        "strict" => Ok(Consistency::Strict),
        "commit" => Ok(Consistency::Commit),
        _ => Err(format!(
            "{text:?} is no consistency; write strict or commit"
        )),
    }
}

/// Parses `unix:PATH` or `tcp:HOST:PORT`. A socket's path is made absolute, because the address is sent to
/// processes with other working directories.
pub(crate) fn parse_addr(text: &str) -> Result<Addr, String> {
    match text.parse().map_err(|error| too_long(text, &error))? {
        Addr::Unix(path) => {
            let full = std::path::absolute(&path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            let full = format!("unix:{}", full.display());
            full.parse().map_err(|error| too_long(&full, &error))
        }
        tcp => Ok(tcp),
    }
}

/// Parses `2/4`: shard 2 of 4, counted from 0.
pub(crate) fn parse_shard(text: &str) -> Result<Shard, String> {
    let wrong = || {
        format!(
            "{text:?} is no shard; write 0/4 for the first of four, which has the names, 1/4 to 3/4 for the others; at most {MAX_SHARDS}"
        )
    };
    let (index, of) = text.split_once('/').ok_or_else(wrong)?;
    let (index, of): (u8, u8) = match (index.parse(), of.parse()) {
        (Ok(index), Ok(of)) => (index, of),
        _ => return Err(wrong()),
    };
    match index < of && of <= MAX_SHARDS {
        true => Ok(Shard {
            index: ShardId(index),
            of,
        }),
        false => Err(wrong()),
    }
}

/// Parses addresses of one service, separated by commas.
pub(crate) fn parse_addrs(text: &str) -> Result<Addrs, String> {
    let all: Result<Vec<String>, String> = text
        .split(',')
        .map(|one| parse_addr(one).map(|addr| addr.to_string()))
        .collect();
    all?.join(",").parse().map_err(|error| format!("{error}"))
}

/// The error text for an address, with advice where its path is too long.
fn too_long(text: &str, error: &AddrError) -> String {
    if text.len() > 107 && text.starts_with("unix:") {
        return format!(
            "{error}; this path is too long, choose a shorter one, e.g. in /run or /tmp"
        );
    }
    error.to_string()
}

/// Parses a duration: `30`, `30s`, `500ms`, `2m`.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no length of time; write 30s, 500ms or 2m");
    let (number, unit) = split_unit(text);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let scale = match unit {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let time = Duration::try_from_secs_f64(number * scale).map_err(|_| wrong())?;
    if time.is_zero() || time > Duration::from_secs(365 * 86_400) {
        return Err(format!(
            "{text:?} must be more than nothing and less than a year"
        ));
    }
    Ok(time)
}

/// Parses how long an operation waits for a server. A shorter timeout than a healthy server may need would fail
/// working operations.
pub(crate) fn parse_patience(text: &str) -> Result<Duration, String> {
    let zero = text.trim().parse() == Ok(0.0);
    let time = if zero {
        Duration::ZERO
    } else {
        parse_time(text)?
    };
    match time >= ClientOptions::LEAST_TIMEOUT {
        true => Ok(time),
        false => Err(format!(
            "{text:?} is too short: servers that are well may take longer to answer; write 100ms or more, as 30s or 5m (there is no timeout of none)"
        )),
    }
}

/// Parses the limit of dirty data. With less than the size of one kernel request, each write would wait for the
/// servers.
pub(crate) fn parse_dirty_limit(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    match bytes >= ClientOptions::LEAST_DIRTY {
        true => Ok(bytes),
        false => Err(format!(
            "{text:?} is {bytes} bytes, less than one write may have; write 1M or more (without a unit it is bytes)"
        )),
    }
}

/// Parses a number of bytes: `65536`, `64K`, `128M`, `2G`, with or without `iB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "{text:?} is no size; write an integer number of bytes, or of 1024 with K, 1024² with M, G or T, as 65536, 64K, 512M or 2G, less than 8388608T"
        )
    };
    let (number, unit) = split_unit(text);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = unit
        .strip_suffix("iB")
        .or_else(|| unit.strip_suffix('B'))
        .unwrap_or(unit);
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(1 << shift)
        .filter(|&bytes| bytes < 1 << 63)
        .ok_or_else(wrong)
}

fn parse_log_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        less if less < 64 << 10 => Err(format!(
            "{text:?} is too small for a log; write 64K or more"
        )),
        size => Ok(size),
    }
}

/// Splits a text after its number.
fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number, unit.trim_start())
}

/// Formats a number of bytes: `512 B`, `64.0 KiB`, `1.5 GiB`.
pub(crate) fn show_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_paths_become_absolute() {
        let Ok(Addr::Unix(path)) = parse_addr("unix:md.sock") else {
            panic!("an address")
        };
        assert!(path.is_absolute() && path.ends_with("md.sock"));
        assert!(parse_addr("tcp:node7:7070").is_ok());
        assert!(parse_addr("md.sock").is_err());
        assert!(parse_addr(&format!("unix:/{}", "x".repeat(120))).is_err());
    }

    #[test]
    fn shards() {
        let shard = parse_shard("3/4").unwrap();
        assert_eq!((shard.index, shard.of), (ShardId(3), 4));
        assert!(!parse_shard("0/1").unwrap().divided());
        for wrong in ["", "2", "4/4", "0/0", "-1/2", "0/65", "a/b", "1/2/3"] {
            assert!(parse_shard(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_time("2 m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "s", "-1", "1x", "0", "9e99", "1e400", "999999h"] {
            assert!(parse_time(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("65536"), Ok(65536));
        assert_eq!(parse_size("64K"), Ok(64 << 10));
        assert_eq!(parse_size("128MiB"), Ok(128 << 20));
        assert_eq!(parse_size("2GB"), Ok(2 << 30));
        for wrong in [
            "",
            "K",
            "-1",
            "1.5M",
            "1X",
            "99999999999T",
            "9223372036854775808",
        ] {
            assert!(parse_size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_for_people() {
        assert_eq!(show_size(0), "0 B");
        assert_eq!(show_size(1023), "1023 B");
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(1 << 30), "1.0 GiB");
        assert_eq!(show_size((1 << 20) - 1), "1.0 MiB");
        assert_eq!(show_size(u64::MAX), "16.0 EiB");
    }
}
