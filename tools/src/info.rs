//! `slabfs info`: what is known of a file.

use std::path::PathBuf;

use crate::{onmount, output, table};

/// Show what a file is: dims, element type, layout, size, chunks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs info mnt/temp
  slabfs info mnt/temp --json | jq .dims")]
pub(crate) struct Args {
    /// A file on a slabfs mount
    path: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let info = onmount::info(&args.path)?;
    if args.json {
        output::json(&info)
    } else {
        output::print(&table::lines(&info))
    }
}
