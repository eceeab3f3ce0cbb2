//! `slabfs man`: manual pages of all commands, made of their help.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::output;

/// Write the manual pages of all commands into a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs man ~/.local/share/man/man1 && man slabfs-find
      for those with ~/.local/bin in PATH
  slabfs man pages && man pages/slabfs-create.1")]
pub(crate) struct Args {
    /// The directory; it is created if it is missing
    directory: PathBuf,
}

pub(crate) fn run(args: &Args, command: clap::Command) -> anyhow::Result<()> {
    let shown = args.directory.display();
    std::fs::create_dir_all(&args.directory).with_context(|| format!("cannot create {shown}"))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(&command, &args.directory)
        .with_context(|| format!("cannot write manual pages into {shown}"))?;
    output::print(&format!(
        "manual pages are in {shown}; `man {shown}/slabfs.1` shows the first one\n"
    ))
}

/// Writes the page of a command, and those of its subcommands.
fn write(command: &clap::Command, directory: &Path) -> anyhow::Result<()> {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        write(sub, directory)?;
    }
    let man = clap_mangen::Man::new(command.clone());
    let mut page = Vec::new();
    man.render(&mut page)?;
    // All text after the options is one section of no name that `man` readers look for.
    let page = String::from_utf8(page)?
        .replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n")
        .replace(".SH EXTRA\nFirst steps:\n", ".SH EXAMPLES\n");
    std::fs::write(directory.join(man.get_filename()), page)?;
    Ok(())
}
