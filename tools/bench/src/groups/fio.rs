//! fio's psync engine on 1 MiB requests, to check the numbers of `seq` with another program.

use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::args::Args;
use crate::results::{Case, Results, Unit};
use crate::systems::{System, Systems};

/// One round of the group.
pub(crate) fn run(
    args: &Args,
    systems: &Systems,
    round: u32,
    results: &mut Results,
) -> anyhow::Result<()> {
    for &jobs in &args.jobs {
        for system in systems.in_rotation(round) {
            for (what, direction) in [("write", "write"), ("read", "read")] {
                let speed = fio(system, args.size / jobs as u64, jobs, direction)?;
                let case = Case {
                    group: "fio",
                    form: "bytes",
                    request: 1024,
                    jobs,
                    what,
                    unit: Unit::MibPerSecond,
                };
                results.add(case, system.kind, speed);
            }
            for job in 0..jobs {
                let path = system.dir.join(format!("fio.{job}.0"));
                std::fs::remove_file(&path)
                    .with_context(|| format!("removing {}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn fio(system: &System, mib: u64, jobs: usize, direction: &str) -> anyhow::Result<f64> {
    let output = Command::new("fio")
        .args([
            "--name=fio",
            "--ioengine=psync",
            "--bs=1M",
            "--fallocate=none",
        ])
        .args([
            "--group_reporting",
            "--output-format=json",
            "--invalidate=0",
        ])
        .arg(format!("--directory={}", system.dir.display()))
        .arg(format!("--rw={direction}"))
        .arg(format!("--size={}M", mib.max(1)))
        .arg(format!("--numjobs={jobs}"))
        .output()
        .context("running fio; install it or omit it with --groups")?;
    ensure!(
        output.status.success(),
        "fio failed: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let report: Value = serde_json::from_slice(&output.stdout).context("reading fio's report")?;
    let bytes = report
        .pointer(&format!("/jobs/0/{direction}/bw_bytes"))
        .and_then(Value::as_f64)
        .context("fio's report has no bw_bytes")?;
    Ok(bytes / f64::from(1 << 20))
}
