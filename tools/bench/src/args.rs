//! The command line of the benchmark.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::systems::Kind;

/// Measures slabfs against FUSE ceilings, bindfs and the plain disk.
#[derive(Debug, Parser)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Run it by tools/bench/run, e.g. `tools/bench/run --quick` or
`tools/bench/run --groups seq --systems null,up --rounds 9`."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    args: Args,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// One of the benchmark's own filesystems
    #[command(hide = true)]
    Fs(crate::fuse::FsArgs),
    /// Search, tags and names of the metadata service, compared with SQLite on the same data
    Search(crate::search::SearchArgs),
    /// MPI programs on two mounts, compared with other distributed filesystems
    Mpi(crate::mpi::MpiArgs),
    /// Transfers and batches of the client library, compared with the mount and plain sockets
    Transfer(crate::transfer::TransferArgs),
    /// Cost of one small request as arrays, directories and mounts grow
    Growth(crate::growth::GrowthArgs),
    /// A process that sends and receives plain bytes
    #[command(hide = true)]
    Raw(crate::transfer::RawArgs),
}

/// The parameters of the benchmark.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Systems to measure
    #[arg(long, value_delimiter = ',', default_values = ["null", "memory", "bindfs", "ext4", "up", "split"])]
    pub(crate) systems: Vec<Kind>,
    /// Groups to measure
    #[arg(long, value_delimiter = ',', default_values = ["seq", "iops", "meta", "columns", "memory"])]
    pub(crate) groups: Vec<Group>,
    /// Kinds of objects: plain bytes, 2-D arrays by complete rows (aligned), 2-D arrays of fixed chunks
    #[arg(long, value_delimiter = ',', default_values = ["bytes", "rows"])]
    pub(crate) forms: Vec<Form>,
    /// Sizes of requests of the group seq, in KiB
    #[arg(long, value_delimiter = ',', default_values = ["128", "1024", "4096"])]
    pub(crate) requests: Vec<u64>,
    /// Numbers of concurrent jobs
    #[arg(long, value_delimiter = ',', default_values = ["1", "4"])]
    pub(crate) jobs: Vec<usize>,
    /// How often every case is measured on every system
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: u32,
    /// MiB of data of the cases with large requests, all jobs together
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = clap::value_parser!(u64).range(16..=65536))]
    pub(crate) size: u64,
    /// A run of a minute: little data, 1 MiB requests only, fewer rounds and smaller groups
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print all samples as JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// The slabfs binary (default: the one next to this program)
    #[arg(long, value_name = "PATH")]
    pub(crate) slabfs: Option<PathBuf>,
    /// Directory for data, in memory, preferably a tmpfs (default: a new one in /dev/shm)
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
    /// A directory on the disk, for the system ext4 (default: next to this program)
    #[arg(long, value_name = "DIR")]
    pub(crate) disk: Option<PathBuf>,
}

/// A group of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Large requests one after the other.
    Seq,
    /// The same with fio, to check this program's own numbers; needs fio.
    Fio,
    /// 4 KiB requests at random offsets.
    Iops,
    /// Names: create, stat, unlink, mkdir, rmdir.
    Meta,
    /// A large array written in misaligned blocks and read by columns.
    Columns,
    /// Memory of the mount with a file larger than its limit.
    Memory,
}

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Form {
    /// A plain file.
    Bytes,
    /// A 2-D array of 4-byte elements in the layout `aligned`, read and written by complete rows.
    Rows,
    /// A 2-D array of 4-byte elements in chunks of 1024 × 1024, read and written by complete rows.
    Grid,
}

impl Form {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Form::Bytes => "bytes",
            Form::Rows => "rows",
            Form::Grid => "grid",
        }
    }
}

impl Args {
    /// The arguments of this process, with `--quick` applied.
    pub(crate) fn from_cli() -> anyhow::Result<Args> {
        let mut args = Cli::parse().args;
        if args.quick {
            args.requests = vec![1024];
            args.size = args.size.min(256);
            args.rounds = args.rounds.min(3);
        }
        anyhow::ensure!(
            args.requests
                .iter()
                .all(|&kib| kib.is_power_of_two() && (4..=65536).contains(&kib)),
            "--requests are powers of two from 4 to 65536 KiB"
        );
        anyhow::ensure!(
            args.jobs.iter().all(|&jobs| (1..=64).contains(&jobs)),
            "--jobs are numbers from 1 to 64"
        );
        Ok(args)
    }

    /// Rounds of cases that take long.
    pub(crate) fn heavy_rounds(&self) -> u32 {
        self.rounds.min(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["slabfs-bench", "--systems", "null,up", "--groups", "seq"]);
        assert_eq!(cli.args.systems, [Kind::Null, Kind::Up]);
        assert_eq!(cli.args.groups, [Group::Seq]);
        assert_eq!(cli.args.jobs, [1, 4]);
    }
}
