//! 4 KiB requests at random offsets in an object small enough for every cache, which is warm.

use std::path::PathBuf;
use std::time::Duration;

use crate::args::{Args, Form};
use crate::load::{self, End};
use crate::results::{Case, Results, Unit};
use crate::systems::{System, Systems};

/// Bytes of a job's object; all jobs together fit the mount's cache.
const BYTES: u64 = 8 << 20;
/// Bytes of a request.
const REQUEST: usize = 4096;

/// One round of the group.
pub(crate) fn run(
    args: &Args,
    systems: &Systems,
    round: u32,
    results: &mut Results,
) -> anyhow::Result<()> {
    let time = Duration::from_millis(if args.quick { 300 } else { 1000 });
    for &form in &args.forms {
        for &jobs in &args.jobs {
            for system in systems.in_rotation(round) {
                one_system(system, form, jobs, time, round, results)?;
            }
        }
    }
    Ok(())
}

fn one_system(
    system: &System,
    form: Form,
    jobs: usize,
    time: Duration,
    round: u32,
    results: &mut Results,
) -> anyhow::Result<()> {
    let paths: Vec<PathBuf> = (0..jobs)
        .map(|job| system.create(&format!("iops-{job}"), form, BYTES))
        .collect::<anyhow::Result<_>>()?;
    for path in &paths {
        load::write(path, BYTES, &mut load::buffer(1 << 20), End::Sync)?;
        load::read(path, BYTES, &mut load::buffer(REQUEST), false)?;
    }
    for (what, writes) in [("read", false), ("write", true)] {
        let jobs_of: Vec<(usize, &PathBuf)> = paths.iter().enumerate().collect();
        let (took, counts) = load::together(&jobs_of, REQUEST, |(job, path), buffer| {
            let seed = u64::from(round) * 64 + *job as u64 + 1;
            load::random(path, BYTES, buffer, time, writes, seed)
        })?;
        let case = Case {
            group: "iops",
            form: form.name(),
            request: 4,
            jobs,
            what,
            unit: Unit::PerSecond,
        };
        let count: u64 = counts.iter().sum();
        results.add(case, system.kind, count as f64 / took.as_secs_f64());
    }
    load::remove(&paths)
}
