//! The command line of the benchmark.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand, ValueEnum};

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
    pub(crate) groups: crate::groups::GroupArgs,
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
    /// The metadata service over etcd, compared with the local one
    Engines(crate::engines::EnginesArgs),
    Standby(crate::engines::StandbyArgs),
    /// The chunk store over a bucket, compared with the object store alone
    Buckets(crate::buckets::BucketsArgs),
    /// Slices by the client library, for tools/bench/python
    Slices(crate::slices::SlicesArgs),
}

/// What all commands take.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Common {
    /// Print JSON, where there are several rounds with all samples, instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// The slabfs binary (default: the one next to this program)
    #[arg(long, value_name = "PATH")]
    slabfs: Option<PathBuf>,
    /// Directory for data, in memory, preferably a tmpfs (default: a new one in /dev/shm)
    #[arg(long, value_name = "DIR")]
    pub(crate) work: Option<PathBuf>,
}

impl Common {
    /// The slabfs binary: the given one, or the one next to this program.
    pub(crate) fn slabfs(&self) -> anyhow::Result<PathBuf> {
        needed(
            self.slabfs.as_ref(),
            "slabfs",
            "build it or give --slabfs PATH",
        )
    }
}

/// The given program, or the one next to this program; an error says how to get it.
pub(crate) fn needed(given: Option<&PathBuf>, name: &str, how: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program")?;
    let path = given.map_or_else(|| own.with_file_name(name), PathBuf::to_owned);
    ensure!(path.is_file(), "there is no {}: {how}", path.display());
    path.canonicalize().context("finding a program")
}

/// A value as on the command line and in the tables.
pub(crate) fn name(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::Kind;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let cli = Cli::parse_from(["slabfs-bench", "--systems", "null,up", "--groups", "seq"]);
        assert_eq!(cli.groups.systems, [Kind::Null, Kind::Up]);
        assert_eq!(cli.groups.groups, [crate::groups::Group::Seq]);
        assert_eq!(cli.groups.jobs, [1, 4]);
    }
}
