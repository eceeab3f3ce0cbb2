//! `slabfs man`: manual pages of all commands, made of their help.

use std::path::PathBuf;

use anyhow::Context;

use crate::output;

/// Write the manual pages of all commands into a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs man ~/.local/share/man/man1 && man slabfs-find
  slabfs man pages && man pages/slabfs-create.1")]
pub(crate) struct Args {
    /// The directory; it is created if it is missing
    directory: PathBuf,
}

pub(crate) fn run(args: &Args, command: clap::Command) -> anyhow::Result<()> {
    let shown = args.directory.display();
    std::fs::create_dir_all(&args.directory).with_context(|| format!("cannot create {shown}"))?;
    clap_mangen::generate_to(command, &args.directory)
        .with_context(|| format!("cannot write manual pages into {shown}"))?;
    output::print(&format!(
        "manual pages are in {shown}; `man {shown}/slabfs.1` shows the first one\n"
    ))
}
