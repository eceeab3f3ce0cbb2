//! `slabfs import`, `slabfs export`, `slabfs collate` and `slabfs info --cdl`: run `slabfs-formats`, which needs the
//! libraries of the formats.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, bail};

#[path = "../formats/src/args.rs"]
mod args;

pub(crate) use args::{Collate, Export, Import};

/// The program, in the directory of this one.
const PROGRAM: &str = "slabfs-formats";

/// Runs it with the command line of this process.
pub(crate) fn run() -> anyhow::Result<()> {
    exec(std::env::args_os().skip(1))
}

/// Runs it with this command line.
pub(crate) fn exec(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Result<()> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let program: PathBuf = this.with_file_name(PROGRAM);
    if !program.exists() {
        bail!(
            "{} is missing; build it with `cargo build --release -p slabfs-formats-tool`, and put it into the directory of {}",
            program.display(),
            this.display()
        );
    }
    // Returns only if that fails.
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
