//! `slabfs-bench search`: compares the metadata service with SQLite on the same objects and tags.
//!
//! For each size: load both (`data`), run the same queries on both from several clients (`clients`), set tags,
//! create and open objects; then restart the service and measure its memory. slabfs is a process of its own
//! behind a Unix socket (`slabfs`), SQLite runs in this one (`sqlite`) and so has no socket overhead. Every
//! result is counted. The numbers are printed with the targets (`table`).

mod clients;
mod data;
mod measure;
mod slabfs;
mod sqlite;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::{cleanup, systems};
use data::{Data, PER_CONTAINER};
use table::Table;

/// Search, tags and names of the metadata service, compared with SQLite on the same data.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct SearchArgs {
    /// Numbers of objects, with ten tags each; multiples of 1000
    #[arg(long, value_delimiter = ',', default_values = ["10000", "100000", "1000000"])]
    sizes: Vec<u64>,
    /// Number of concurrent clients
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: u64,
    /// Seconds for which each rate is measured; sessions expire if SQLite takes longer for one
    #[arg(long, default_value = "3", value_parser = clap::value_parser!(u64).range(1..=20))]
    seconds: u64,
    /// Omit SQLite
    #[arg(long)]
    no_sqlite: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// The slabfs binary (default: the one next to this program)
    #[arg(long, value_name = "PATH")]
    slabfs: Option<PathBuf>,
    /// Directory for data, in memory (default: a new one in /dev/shm)
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

/// Measures all sizes and prints the table, also of the measurements before an error.
pub(crate) fn run(args: &SearchArgs) -> anyhow::Result<()> {
    let valid = |size: &u64| *size > 0 && size.is_multiple_of(PER_CONTAINER) && *size <= 10_000_000;
    ensure!(
        args.sizes.iter().all(valid),
        "--sizes are multiples of {PER_CONTAINER}, up to 10000000"
    );
    cleanup::on_signals()?;
    let binary = systems::binary(args.slabfs.as_deref())?;
    let work = args.work.as_deref().unwrap_or(Path::new("/dev/shm"));
    let mut table = Table::default();
    let measured = args.sizes.iter().try_for_each(|&objects| {
        let dir = work.join(format!("slabfs-bench-{}-{objects}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        cleanup::directory(dir.clone());
        let dir = dir.canonicalize().context("finding the directory")?;
        let measured = measure::size(args, &binary, &dir, Data { objects }, &mut table);
        measured.and(cleanup::run())
    });
    let cleaned = cleanup::run();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table.json())?);
    } else {
        print!("{}", table.text());
    }
    measured.and(cleaned)
}

impl SearchArgs {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
