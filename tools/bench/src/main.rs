//! `slabfs-bench`: compares slabfs with its ceilings and other filesystems, in one run.
//!
//! Systems (`systems`): a FUSE filesystem that stores nothing (`null`), one that stores files in memory with
//! one copy (`memory`), both with the settings of the slabfs mount; bindfs over the same directory; a plain
//! directory of the disk; `slabfs up`; slabfs as separate processes. Groups of cases (`groups`): large
//! requests, small requests, names, columns of an array, memory of a large file. Every case runs on one system
//! after the other, once per round, so that all of them run under the same conditions; medians of the rounds
//! and their ratios are printed with the targets (`results`).
//!
//! `slabfs-bench search` compares the metadata service with SQLite (`search`); `slabfs-bench mpi` compares MPI
//! programs on two mounts with other distributed filesystems (`mpi`); `slabfs-bench transfer` compares region
//! transfers and batches of the client library with the mount and plain sockets (`transfer`); `slabfs-bench
//! growth` measures the cost of a small request as arrays, directories and mounts grow (`growth`).
//!
//! Run it by `tools/bench/run`, which builds it and installs the programs it needs. It starts the `slabfs`
//! binary, so that it measures what users run; of its crates `search` uses the client of the metadata service,
//! and `transfer` the client library.

mod args;
mod backing;
mod cleanup;
mod fuse;
mod groups;
mod growth;
mod load;
mod mpi;
mod results;
mod search;
mod systems;
mod targets;
mod transfer;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let result = match args::Cli::parse().command {
        Some(args::Command::Fs(fs)) => fuse::serve(&fs),
        Some(args::Command::Search(search)) => search::run(&search),
        Some(args::Command::Mpi(mpi)) => mpi::run(&mpi),
        Some(args::Command::Transfer(transfer)) => transfer::run(&transfer),
        Some(args::Command::Growth(growth)) => growth::run(&growth),
        Some(args::Command::Raw(raw)) => transfer::serve_raw(&raw),
        None => args::Args::from_cli().and_then(run),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("slabfs-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: args::Args) -> anyhow::Result<()> {
    cleanup::on_signals()?;
    let mut results = results::Results::default();
    let mut systems = systems::Systems::start(&args)?;
    let measured = groups::run_all(&args, &systems, &mut results);
    let stopped = systems.stop();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&results.json())?);
    } else {
        print!("{}", results.table(&args.systems));
    }
    measured.and(stopped)
}
