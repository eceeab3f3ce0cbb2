//! `slabfs-bench mpi`: four ranks of an MPI program on two mounts, on slabfs and on other distributed
//! filesystems with two servers, bindfs and ext4.
//!
//! Each rank writes and then reads (`worker.c`, the same program with the same hints everywhere) its misaligned
//! box of a 2-D array, every fourth piece of 4 KiB, or a file of its own. Between the two every cache is
//! dropped: all mounts are unmounted and mounted again, and the kernel's caches are dropped. All data is in
//! memory (`work` should be a tmpfs), also the image of the ext4, so that software is measured.
//!
//! slabfs is measured twice: over TCP, compared with the distributed filesystems, which use TCP too; and over
//! Unix sockets, as its processes on one node communicate, compared with bindfs, which works on one node and
//! has no network.
//!
//! One system runs at a time (`systems`): in each round each is started from scratch, measured, and stopped,
//! another first each round. Everything that uses TCP does so in a network namespace of this program
//! (`network`), so ports are free, no other process reaches them, and MooseFS gets an address other than
//! 127.0.0.1, which it refuses. Needs root.

mod gluster;
mod local;
mod moose;
mod network;
mod slabfs;
mod systems;
mod table;
mod worker;

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::ValueEnum;

use crate::{backing, cleanup};
use systems::{Kind, Place};
use table::Table;
use worker::Worker;

/// MPI programs on two mounts, compared with other distributed filesystems.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MpiArgs {
    /// Systems to measure
    #[arg(long, value_delimiter = ',', default_values = ["ext4", "bindfs", "glusterfs", "moosefs", "slabfs", "slabfs-unix"])]
    systems: Vec<Kind>,
    /// Access patterns of the ranks
    #[arg(long, value_delimiter = ',', default_values = ["box", "strided", "own"])]
    patterns: Vec<Pattern>,
    /// MiB of data, all ranks together
    #[arg(long, value_name = "MIB", default_value = "1024", value_parser = clap::value_parser!(u64).range(16..=4096))]
    size: u64,
    /// How often everything is measured on every system
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// A run of a minute: little data, one round
    #[arg(long)]
    quick: bool,
    /// Collective calls, instead of independent ones
    #[arg(long)]
    collective: bool,
    /// Let the MPI library sieve: read more than requested, and read, modify and write back under a lock
    #[arg(long)]
    sieving: bool,
    /// The type of the strided pattern's file on slabfs
    #[arg(long, default_value = "line")]
    strided_as: StridedAs,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// The slabfs binary (default: the one next to this program)
    #[arg(long, value_name = "PATH")]
    slabfs: Option<PathBuf>,
    /// The compiled worker.c (default: slabfs-bench-mpi next to this program)
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,
    /// Directory for data, in memory (default: a new one in /dev/shm)
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

/// The access pattern of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Pattern {
    /// A misaligned box of a 2-D array per rank.
    Box,
    /// Pieces of 4 KiB of the ranks, in round-robin order.
    Strided,
    /// A file per rank.
    Own,
}

impl Pattern {
    /// As on the command line.
    fn name(self) -> &'static str {
        match self {
            Pattern::Box => "box",
            Pattern::Strided => "strided",
            Pattern::Own => "own",
        }
    }
}

/// The type of the strided pattern's file on slabfs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StridedAs {
    /// An array of one axis.
    Line,
    /// The 2-D array; every piece is a part of one of its rows.
    Rows,
    /// A plain file.
    Bytes,
}

/// Elements of a row of the array, of 4 bytes each; there are as many rows in the default size.
const COLUMNS: u64 = 16_384;

impl MpiArgs {
    /// Rows and columns of the array.
    fn dims(&self) -> [u64; 2] {
        [(self.size << 20) / (COLUMNS * 4), COLUMNS]
    }

    /// How slabfs declares the file of a pattern; the files of single ranks are plain.
    fn declared(&self, pattern: Pattern) -> Option<String> {
        let [rows, columns] = self.dims();
        match (pattern, self.strided_as) {
            (Pattern::Box, _) | (Pattern::Strided, StridedAs::Rows) => {
                Some(format!("{rows},{columns}"))
            }
            (Pattern::Strided, StridedAs::Line) => Some((rows * columns).to_string()),
            (Pattern::Strided, StridedAs::Bytes) | (Pattern::Own, _) => None,
        }
    }
}

/// Measures everything and prints the table, also of the measurements before an error.
pub(crate) fn run(args: &MpiArgs) -> anyhow::Result<()> {
    let mut args = args.clone();
    if args.quick {
        args.size = args.size.min(128);
        args.rounds = 1;
    }
    ensure!(
        nix::unistd::geteuid().is_root(),
        "dropping caches and mounting need root"
    );
    network::enter()?;
    cleanup::on_signals()?;
    let worker = Worker::new(&args)?;
    let mut table = Table::default();
    let measured = rounds(&args, &worker, &mut table);
    let cleaned = cleanup::run();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table.json())?);
    } else {
        print!("{}", table.text(&args.systems));
    }
    measured.and(cleaned)
}

fn rounds(args: &MpiArgs, worker: &Worker, table: &mut Table) -> anyhow::Result<()> {
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        let first = round as usize % args.systems.len();
        for &kind in args.systems[first..].iter().chain(&args.systems[..first]) {
            let measured = Place::new(args, kind)
                .and_then(|place| measure(args, &place, worker, round, table))
                .with_context(|| format!("measuring {}", kind.name()));
            measured.and(cleanup::run())?;
        }
    }
    Ok(())
}

/// Starts a system, and lets the ranks write and read all patterns on it; the caller stops it.
fn measure(
    args: &MpiArgs,
    place: &Place,
    worker: &Worker,
    round: u32,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut system = systems::start(place)?;
    for &pattern in &args.patterns {
        let paths = system.dirs().map(|dir| dir.join(pattern.name()));
        system.declare(&paths[0], args.declared(pattern).as_deref())?;
        for what in ["write", "read"] {
            if what == "read" {
                system.forget()?;
                drop_kernel_caches()?;
            }
            // The ranks' own memory, the stored data, and the data in flight.
            backing::touch(3 * (args.size << 20))?;
            let seconds = worker
                .run(what, pattern, round, &paths)
                .with_context(|| format!("{} {what}", pattern.name()))?;
            table.add(pattern, what, place.kind, args.size as f64 / seconds);
        }
    }
    Ok(())
}

/// Drops clean pages, names and inodes.
fn drop_kernel_caches() -> anyhow::Result<()> {
    nix::unistd::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")
}

/// Checks that a path is a file; an error says how to get it.
fn needed(path: &Path, what: &str) -> anyhow::Result<PathBuf> {
    ensure!(path.is_file(), "there is no {}: {what}", path.display());
    path.canonicalize().context("finding a program")
}
