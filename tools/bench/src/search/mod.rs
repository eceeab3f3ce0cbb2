//! `slabfs-bench search`: compares the metadata service with SQLite on the same objects and tags.
//!
//! For each size: load both (`data`), run the same queries on both from several clients, set tags,
//! create and open objects; then restart the service and measure its memory. slabfs is a process of its own
//! behind a Unix socket (`slabfs`), SQLite runs in this one (`sqlite`) and so has no socket overhead. Every
//! result is counted.

mod data;
mod measure;
mod slabfs;
mod sqlite;

use std::time::Duration;

use anyhow::ensure;

use crate::args::Common;
use crate::cleanup;
use crate::table::{Brackets, Format, Table};
use data::{Data, PER_CONTAINER};

pub(crate) use data::mix;

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
    #[command(flatten)]
    common: Common,
}

/// Measures all sizes and prints the table.
pub(crate) fn run(args: &SearchArgs) -> anyhow::Result<()> {
    let valid = |size: &u64| *size > 0 && size.is_multiple_of(PER_CONTAINER) && *size <= 10_000_000;
    ensure!(
        args.sizes.iter().all(valid),
        "--sizes are multiples of {PER_CONTAINER}, up to 10000000"
    );
    let labels = &["objects", "what"];
    let columns = ["slabfs", "sqlite"];
    let table = Table::new("search", labels, columns, Brackets::Empty, Format::Medians);
    crate::report(&args.common, table, |table| {
        args.sizes.iter().try_for_each(|&objects| {
            let measured = measure::size(args, Data { objects }, table);
            measured.and(cleanup::run())
        })
    })
}

impl SearchArgs {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}
