//! `slabfs-bench transfer`: the advantage of programs that name in one request the pieces or regions they need.
//!
//! Two data servers, a metadata service and a mount run as processes over Unix sockets; this program attaches to
//! them through the client library. For comparison two threads (`raw`) send and receive plain bytes through
//! sockets with the same settings, which is the machine's limit. All data is in `work`, which should be a tmpfs.
//!
//! - `nested`: a nested-strided read as one batch, as one `pread` a piece on the mount, by ROMIO's data sieving
//!   on the mount (`mpirun.c`), and as the packed bytes from `raw`'s memory;
//! - `regions`: 64 regions of 4 MiB by `start_all` and `wait_all`, compared with the same bytes by `raw`, and
//!   how much of a write a sleep of that length hides;
//! - `small`: regions of 3 KiB, 64 per start.
//!
//! In each round everything is measured once, another first each round; medians of the rounds are printed.

mod nested;
mod raw;
mod regions;
mod small;

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use serde_json::Value;
use slabfs_fs::session::{ConnectOptions, Memory, Object, ObjectSpec, Session, Transfer, wait_all};
use slabfs_model::Region;

use crate::args::Common;
use crate::cleanup;
use crate::systems::Cluster;
use crate::table::{Brackets, Format, Table};
use raw::Raw;

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
    /// The compiled mpirun.c (default: slabfs-bench-mpi next to this program)
    #[arg(long, value_name = "PATH")]
    sieve: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
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

/// What the cases use.
struct Setup {
    session: Session,
    mountpoint: PathBuf,
    raw: RefCell<Raw>,
}

/// Measures everything and prints the table.
pub(crate) fn run(mut args: TransferArgs) -> anyhow::Result<()> {
    if args.quick {
        args.rounds = 1;
        args.seconds = 1;
    }
    let columns = ["slabfs", "pread", "sieving", "raw", "p50 ms", "p99 ms"];
    let labels = &["case", "bytes"];
    let table = Table::new(
        "transfer",
        labels,
        columns,
        Brackets::Empty,
        Format::Samples,
    );
    crate::report(&args.common, table, |table| {
        let setup = Setup::start(&args)?;
        let measured = rounds(&args, &setup, table);
        measured.and(Ok(setup.session.close()?))
    })
}

impl Setup {
    /// Starts everything; on an error, what was started is recorded with `cleanup`.
    fn start(args: &TransferArgs) -> anyhow::Result<Setup> {
        let dir = cleanup::new_directory(args.common.work.as_deref(), "")?;
        let cluster = Cluster::start(&args.common.slabfs()?, &dir, 2, false)?;
        let (mountpoint, _) = cluster.mount("mnt")?;
        Ok(Setup {
            session: Session::connect(&ConnectOptions::to(cluster.md()))?,
            mountpoint,
            raw: RefCell::new(Raw::new((args.size as usize).max(256) << 20)?),
        })
    }

    /// Creates an `aligned` array of bytes, whose chunks go to both servers.
    fn create(&self, name: &str, dims: &[u64]) -> anyhow::Result<Object> {
        let spec = ObjectSpec::array(dims, "u1".parse().context("a dtype")?)
            .with("layout", "aligned")?
            .with("placement", "dynamic")?;
        Ok(self.session.create(name, &spec)?)
    }
}

fn rounds(args: &TransferArgs, setup: &Setup, table: &mut Table) -> anyhow::Result<()> {
    let mut cases = args
        .cases
        .iter()
        .map(|kind| {
            let case: Box<dyn Case> = match kind {
                Kind::Nested => Box::new(nested::Nested::new(args, setup)?),
                Kind::Regions => Box::new(regions::Regions::new(setup)?),
                Kind::Small => Box::new(small::Small::new(args, setup)?),
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

/// The labels of a case with pieces or regions of `bytes` bytes.
fn labels(case: &str, bytes: u64) -> [Value; 2] {
    [case.into(), bytes.into()]
}

/// Transfers of complete rows of a 2-D array from `first` on, not started.
pub(crate) fn rows(
    object: &Object,
    first: u64,
    buffers: Vec<Vec<u8>>,
    is_write: bool,
) -> anyhow::Result<Vec<Transfer<Vec<u8>>>> {
    let one = |(number, buffer): (u64, Vec<u8>)| {
        let row = Region::new(&[number, 0], &[1, buffer.len() as u64]);
        let transfer = match is_write {
            true => object.write_transfer(row, &Memory::packed(), buffer),
            false => object.read_transfer(row, &Memory::packed(), buffer),
        };
        Ok(transfer.map_err(|failed| failed.error)?)
    };
    (first..).zip(buffers).map(one).collect()
}

/// Starts those that are not started and waits for all of them; returns the buffers.
pub(crate) fn through(all: Vec<Transfer<Vec<u8>>>) -> anyhow::Result<Vec<Vec<u8>>> {
    let ends = wait_all(all)?.into_iter();
    ends.map(|end| end.map_err(|failed| failed.error.into()))
        .collect()
}

/// MiB a second.
fn rate(bytes: u64, time: std::time::Duration) -> f64 {
    bytes as f64 / (1 << 20) as f64 / time.as_secs_f64()
}
