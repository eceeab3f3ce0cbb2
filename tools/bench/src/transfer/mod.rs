//! `slabfs-bench transfer`: the advantage of programs that name in one request the pieces or regions they need.
//!
//! Two data servers and a metadata service run as processes over Unix sockets, and a mount (`house`); this
//! program attaches to them through the client library. For comparison two processes (`raw`) send and receive
//! plain bytes through sockets with the same settings, which is the machine's limit. All data is in `work`,
//! which should be a tmpfs.
//!
//! - `nested`: a nested-strided read as one batch, as one `pread` a piece on the mount, by ROMIO's data sieving
//!   on the mount (`sieve.c`), and as the packed bytes from `raw`'s memory;
//! - `regions`: 64 regions of 4 MiB by `start_all` and `wait_all`, compared with the same bytes by `raw`, and
//!   how much of a write a sleep of that length hides;
//! - `small`: regions of 3 KiB, 64 per start.
//!
//! In each round everything is measured once, another first each round; medians of the rounds are printed.

mod house;
mod nested;
mod raw;
mod regions;
mod small;
mod table;

use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;

use crate::cleanup;
use house::Cluster;
use table::Table;

pub(crate) use raw::{RawArgs, serve as serve_raw};

/// Transfers and batches of the client library, compared with the mount and plain sockets.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TransferArgs {
    /// Cases to measure
    #[arg(long, value_delimiter = ',', default_values = ["nested", "regions", "small"])]
    cases: Vec<Kind>,
    /// Bytes of a piece of the nested-strided read
    #[arg(long, value_delimiter = ',', default_values = ["8", "64", "512", "4096"])]
    pieces: Vec<u64>,
    /// Read every N-th piece
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(2..=64))]
    every: u64,
    /// MiB that the nested-strided read returns
    #[arg(long, value_name = "MIB", default_value = "256", value_parser = clap::value_parser!(u64).range(16..=1024))]
    size: u64,
    /// At most this many pieces are read by `pread`, from the start; rates are compared
    #[arg(long, default_value = "65536", value_parser = clap::value_parser!(u64).range(1024..))]
    preads: u64,
    /// Seconds for which small regions are written, and read, per round
    #[arg(long, default_value = "2", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// How often everything is measured
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// A run of a minute: one round
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// The slabfs binary (default: the one next to this program)
    #[arg(long, value_name = "PATH")]
    slabfs: Option<PathBuf>,
    /// The compiled sieve.c (default: slabfs-bench-sieve next to this program)
    #[arg(long, value_name = "PATH")]
    sieve: Option<PathBuf>,
    /// Directory for data, in memory (default: a new one in /dev/shm)
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

/// The cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Pieces of a nested strided pattern.
    Nested,
    /// Large regions, and the hidden part of a write.
    Regions,
    /// Small regions.
    Small,
}

/// Measures everything and prints the table, also of the measurements before an error.
pub(crate) fn run(args: &TransferArgs) -> anyhow::Result<()> {
    let mut args = args.clone();
    if args.quick {
        args.rounds = 1;
        args.seconds = 1;
    }
    cleanup::on_signals()?;
    let mut table = Table::default();
    let measured = Cluster::start(&args).and_then(|cluster| {
        let measured = rounds(&args, &cluster, &mut table);
        measured.and(cluster.stop())
    });
    let cleaned = cleanup::run();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table.json())?);
    } else {
        print!("{}", table.text());
    }
    measured.and(cleaned)
}

fn rounds(args: &TransferArgs, cluster: &Cluster, table: &mut Table) -> anyhow::Result<()> {
    let mut cases = args
        .cases
        .iter()
        .map(|kind| {
            let case: Box<dyn Case> = match kind {
                Kind::Nested => Box::new(nested::Nested::new(args, cluster)?),
                Kind::Regions => Box::new(regions::Regions::new(cluster)?),
                Kind::Small => Box::new(small::Small::new(args, cluster)?),
            };
            Ok(case)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for case in &mut cases {
            case.round(round, table).context("measuring")?;
        }
    }
    Ok(())
}

/// How often the closely compared systems are measured in a round, alternately.
const REPEATS: u32 = 3;

/// A case that is measured once per round.
trait Case {
    fn round(&mut self, round: u32, table: &mut Table) -> anyhow::Result<()>;
}

/// MiB a second.
fn rate(bytes: u64, time: std::time::Duration) -> f64 {
    bytes as f64 / (1 << 20) as f64 / time.as_secs_f64()
}
