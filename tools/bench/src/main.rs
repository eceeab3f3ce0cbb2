//! `slabfs-bench`: compares slabfs with its ceilings and other filesystems, in one run.
//!
//! Systems (`systems`): a FUSE filesystem that stores nothing (`null`), one that stores files in memory with
//! one copy (`memory`), both with the settings of the slabfs mount; bindfs over the same directory; a plain
//! directory of the disk; `slabfs up`; slabfs as separate processes. Groups of cases (`groups`): large
//! requests, small requests, names, columns of an array, memory of a large file. Every case runs on one system
//! after the other, once per round, so that all of them run under the same conditions; medians of the rounds
//! and their ratios are printed with the targets (`table`).
//!
//! `slabfs-bench search` compares the metadata service with SQLite (`search`); `slabfs-bench mpi` compares MPI
//! programs on two mounts with other distributed filesystems (`mpi`); `slabfs-bench transfer` compares region
//! transfers and batches of the client library with the mount and plain sockets (`transfer`); `slabfs-bench
//! growth` measures the cost of a small request as arrays, directories and mounts grow (`growth`); `slabfs-bench engines`
//! compares metadata services over etcd with local ones, `slabfs-bench standby` their starts (`engines`), `slabfs-bench buckets` chunks in a bucket with the
//! object store alone (`buckets`).
//!
//! Run it by `tools/bench/run`, which builds it and installs the programs it needs. It starts the `slabfs`
//! binary, so that it measures what users run; of its crates `search` uses the client of the metadata service,
//! and `transfer` and `growth` the client library.

mod args;
mod buckets;
mod cleanup;
mod clients;
mod engines;
mod fuse;
mod groups;
mod growth;
mod memory;
mod mpi;
mod mpirun;
mod search;
mod slices;
mod systems;
mod table;
mod targets;
mod transfer;

use std::process::ExitCode;

use clap::Parser;

use args::Command;
use table::Table;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    let result = match cli.command {
        Some(Command::Fs(fs)) => fuse::serve(&fs),
        Some(Command::Search(search)) => search::run(&search),
        Some(Command::Mpi(mpi)) => mpi::run(mpi),
        Some(Command::Transfer(transfer)) => transfer::run(transfer),
        Some(Command::Growth(growth)) => growth::run(&growth),
        Some(Command::Engines(engines)) => engines::run(&engines),
        Some(Command::Standby(standby)) => engines::standby(&standby),
        Some(Command::Buckets(buckets)) => buckets::run(&buckets),
        Some(Command::Slices(slices)) => slices::run(&slices),
        None => groups::run(cli.groups),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slabfs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, cleans up, and prints the table, also of the measurements before an error.
fn report(
    args: &args::Common,
    mut table: Table,
    measure: impl FnOnce(&mut Table) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    cleanup::on_signals()?;
    let measured = measure(&mut table);
    let cleaned = cleanup::run();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table.json())?);
    } else {
        print!("{}", table.text());
    }
    measured.and(cleaned)
}
