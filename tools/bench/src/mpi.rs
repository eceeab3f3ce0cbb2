//! `slabfs-bench mpi`: four ranks of an MPI program on two mounts, on slabfs and on other distributed
//! filesystems with two servers, bindfs and ext4.
//!
//! Each rank writes and then reads (`mpirun.c`, the same program with the same hints everywhere) its misaligned
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
//! (`systems/network`), so ports are free, no other process reaches them, and MooseFS gets an address other than
//! 127.0.0.1, which it refuses. Needs root.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use clap::ValueEnum;

use crate::args::{self, Common, needed};
use crate::systems::{Kind, Place, System, in_rotation, network};
use crate::table::{Brackets, Format, Table};
use crate::{cleanup, memory, mpirun};

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
    /// The compiled mpirun.c (default: slabfs-bench-mpi next to this program)
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// The access pattern of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// A misaligned box of a 2-D array per rank.
    Box,
    /// Pieces of 4 KiB of the ranks, in round-robin order.
    Strided,
    /// A file per rank.
    Own,
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

/// Measures everything and prints the table.
pub(crate) fn run(mut args: MpiArgs) -> anyhow::Result<()> {
    if args.quick {
        args.size = args.size.min(128);
        args.rounds = 1;
    }
    ensure!(
        nix::unistd::geteuid().is_root(),
        "dropping caches and mounting need root"
    );
    network::enter()?;
    let (name, how) = mpirun::PROGRAM;
    let program = needed(args.worker.as_ref(), name, how)?;
    let table = Table::new(
        "mpi",
        &["pattern", "what"],
        args.systems.iter().map(|&system| args::name(system)),
        Brackets::Empty,
        Format::Systems,
    );
    crate::report(&args.common, table, |table| {
        for round in 0..args.rounds {
            eprintln!("round {} of {}", round + 1, args.rounds);
            for &kind in in_rotation(&args.systems, round) {
                let measured = measure(&args, kind, &program, round, table)
                    .with_context(|| format!("measuring {}", args::name(kind)));
                measured.and(cleanup::run())?;
            }
        }
        Ok(())
    })
}

/// Starts a system, and lets the ranks write and read all patterns on it; the caller stops it.
fn measure(
    args: &MpiArgs,
    kind: Kind,
    program: &Path,
    round: u32,
    table: &mut Table,
) -> anyhow::Result<()> {
    let mut place = Place::new(&args.common, kind)?;
    // All patterns, and as much again for the structures of an ext4.
    place.image = 4 * args.size + 512;
    let mut system = System::start(kind, place)?;
    let calls = if args.collective {
        "collective"
    } else {
        "independent"
    };
    let sieving = if args.sieving { "sieving" } else { "exact" };
    let [rows, columns] = args.dims().map(|axis| axis.to_string());
    for &pattern in &args.patterns {
        let name = args::name(pattern);
        let files: Vec<PathBuf> = system.dirs.iter().map(|dir| dir.join(&name)).collect();
        if let Some(dims) = args.declared(pattern).filter(|_| kind.is_slabfs()) {
            system.declare(&files[0], &dims, "aligned")?;
        }
        for what in ["write", "read"] {
            if what == "read" {
                system.remount()?;
                drop_kernel_caches()?;
            }
            // The ranks' own memory, the stored data, and the data in flight.
            memory::touch(3 * (args.size << 20))?;
            let seed = round.to_string();
            let (first, last) = (&files[0], &files[files.len() - 1]);
            let options: [&dyn AsRef<OsStr>; 9] = [
                &what, &name, &rows, &columns, &calls, &sieving, &seed, first, last,
            ];
            let seconds =
                mpirun::seconds(program, 4, &options).with_context(|| format!("{name} {what}"))?;
            let labels = [name.as_str().into(), what.into()];
            let speed = args.size as f64 / seconds;
            table.add(&labels, "MiB/s", &args::name(kind), speed);
        }
    }
    Ok(())
}

/// Drops clean pages, names and inodes.
fn drop_kernel_caches() -> anyhow::Result<()> {
    nix::unistd::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the kernel's caches")
}
