//! The `slabfs` command: one binary for the services, the mount and the user commands.
//!
//! Each subcommand has a file; `cli` lists them. This file only converts the outcome to an exit status: 0 for
//! success, 1 for failure, 2 for a wrong command line or config. Errors are printed here and nowhere else, as
//! one chain: what was wrong, and what to do about it.

mod args;
mod call;
mod cli;
mod completions;
mod config;
mod couple;
mod create;
mod created;
mod daemon;
mod demo;
mod drain;
mod draw;
mod failure;
mod find;
mod fsck;
mod groups;
mod import;
mod info;
mod layout;
mod lifecycle;
mod locks;
mod logging;
mod man;
mod mdserver;
mod meta;
mod mount;
mod mountpoint;
mod node;
mod objserver;
mod onmount;
mod output;
mod owner;
mod pidfile;
mod process;
mod programs;
mod progress;
mod rules;
mod servers;
mod set;
mod stats;
mod status;
mod stop;
mod table;
mod tag;
mod tags;
mod umount;
mod untag;
mod up;
mod view;

use std::process::ExitCode;

/// The services allocate and free small blocks all the time, from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = match cli::parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are "errors" of clap that belong on stdout with status 0. If the terminal is
            // gone the error cannot be reported.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() {
                failure::USAGE
            } else {
                0
            });
        }
    };
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
