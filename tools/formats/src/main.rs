//! `slabfs-formats`: what `slabfs import`, `slabfs export` and `slabfs collate` run.
//!
//! `args` are the command lines, which `slabfs` shares for its help; `mount` requests to the mount, `blocks` boxes of arrays on it, `encoded` their chunks; `lock` and `rights` what commands may
//! do to each other's files; `import`, `export`, `collate`
//! and `cdl` the commands; `progress` and `signals` what they share. Everything goes through the mount with the caller's own
//! rights.

mod args;
mod blocks;
mod cdl;
mod collate;
mod encoded;
mod export;
mod import;
mod lock;
mod mount;
mod progress;
mod rights;
mod signals;
mod skeleton;

use std::process::ExitCode;

use clap::Parser;

/// The command line of `slabfs`, with these subcommands.
#[derive(Debug, Parser)]
#[command(name = "slabfs", version, args_override_self = true)]
struct Cli {
    /// Accepted because `slabfs` has it; there is no log here. `collate` says more with it.
    #[arg(short, long, global = true, hide = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// The same; `collate` says less with it.
    #[arg(short, long, global = true, hide = true)]
    quiet: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Import(args::Import),
    Export(args::Export),
    Collate(args::Collate),
    #[command(hide = true)]
    Cdl(cdl::Cdl),
    #[command(hide = true)]
    Skeleton(skeleton::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let success = |()| ExitCode::SUCCESS;
    let done = match cli.command {
        Command::Import(args) => import::run(&args).map(success),
        Command::Export(args) => export::run(&args).map(success),
        Command::Collate(args) => collate::run(&args, cli.verbose > 0, cli.quiet),
        Command::Cdl(args) => cdl::run(&args).map(success),
        Command::Skeleton(args) => skeleton::run(&args).map(success),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("slabfs: {}", plain(&format!("{error:#}")));
            match error.downcast_ref::<signals::Interrupted>() {
                Some(interrupted) => ExitCode::from(interrupted.status()),
                None => ExitCode::FAILURE,
            }
        }
    }
}

/// A text for a terminal: names in files may have control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|char| match char.is_control() {
            true => char.escape_default().to_string(),
            false => char.to_string(),
        })
        .collect()
}
