//! Runs the MPI program compiled from `mpirun.c`, by `mpirun.mpich`.

use std::ffi::OsStr;
use std::path::Path;

use anyhow::Context;

use crate::cleanup::{self, command};

/// The program's name, and how to get it.
pub(crate) const PROGRAM: (&str, &str) = ("slabfs-bench-mpi", "tools/bench/run compiles it");

/// Runs the program by this many ranks; returns the seconds that it prints.
pub(crate) fn seconds(
    program: &Path,
    ranks: u32,
    args: &[&dyn AsRef<OsStr>],
) -> anyhow::Result<f64> {
    // On this machine only, bound to no processor, over shared memory.
    let mut mpirun = command("mpirun.mpich", &[&"-launcher", &"fork", &"-iface", &"lo"]);
    mpirun.args(["-bind-to", "none", "-genv", "UCX_TLS", "self,sm"]);
    mpirun.args(["-n", &ranks.to_string()]).arg(program);
    mpirun.args(args.iter().map(|arg| arg.as_ref()));
    let text = cleanup::output(&mut mpirun)?;
    let seconds = text.lines().find_map(|line| line.trim().parse().ok());
    seconds.with_context(|| format!("the ranks printed no time but: {text}"))
}
