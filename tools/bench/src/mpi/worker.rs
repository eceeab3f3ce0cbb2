//! Runs the ranks: `mpirun.mpich` of the program compiled from `worker.c`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::{MpiArgs, Pattern, needed};
use crate::cleanup;

/// How the ranks are run.
#[derive(Debug)]
pub(super) struct Worker {
    program: PathBuf,
    dims: [u64; 2],
    calls: &'static str,
    sieving: &'static str,
}

impl Worker {
    pub(super) fn new(args: &MpiArgs) -> anyhow::Result<Worker> {
        let own = std::env::current_exe().context("finding this program")?;
        let next_to = own.with_file_name("slabfs-bench-mpi");
        Ok(Worker {
            program: needed(
                args.worker.as_deref().unwrap_or(&next_to),
                "tools/bench/run compiles it; or give --worker PATH",
            )?,
            dims: args.dims(),
            calls: if args.collective {
                "collective"
            } else {
                "independent"
            },
            sieving: if args.sieving { "sieving" } else { "exact" },
        })
    }

    /// Lets the ranks write or read; returns the seconds of the slowest. The first half of the ranks uses the
    /// first path.
    pub(super) fn run(
        &self,
        what: &str,
        pattern: Pattern,
        round: u32,
        paths: &[PathBuf; 2],
    ) -> anyhow::Result<f64> {
        let mut command = Command::new("mpirun.mpich");
        // On this machine only, bound to no processor, over shared memory.
        command.args(["-launcher", "fork", "-iface", "lo", "-bind-to", "none"]);
        command.args(["-genv", "UCX_TLS", "self,sm", "-n", "4"]);
        command
            .arg(&self.program)
            .args([what, pattern.name()])
            .args(self.dims.map(|axis| axis.to_string()))
            .args([self.calls, self.sieving, &round.to_string()])
            .args(paths.iter().map(PathBuf::as_path).map(Path::as_os_str))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        cleanup::prepare(&mut command);
        let out = command.output().context("running mpirun.mpich")?;
        ensure!(out.status.success(), "the ranks failed ({})", out.status);
        let text = String::from_utf8_lossy(&out.stdout);
        let seconds = text.lines().find_map(|line| line.trim().parse().ok());
        seconds.with_context(|| format!("the ranks printed no time but: {text}"))
    }
}
