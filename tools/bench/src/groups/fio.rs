//! The groups that write and read bytes of files: runs of fio with plain system calls (`psync`), one thread and
//! one file per job.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use super::{Form, GroupArgs, ROW, create, remove};
use crate::systems::{Kind, System};
use crate::table::Table;
use crate::{args, cleanup, memory};

/// Files are neither laid out, nor truncated, nor dropped from caches before, buffers stay as they are, and no state of a
/// verification is written to the current directory.
const COMMON: [&str; 10] = [
    "--ioengine=psync",
    "--thread",
    "--group_reporting",
    "--output-format=json",
    "--create_on_open=1",
    "--fallocate=none",
    "--invalidate=0",
    "--gtod_reduce=1",
    "--scramble_buffers=0",
    "--verify_state_save=0",
];

/// Every write has a header, by which reads are verified. That takes half as long as the write, so it is for runs
/// that are not counted.
const VERIFIED: &str = "--verify=meta --verify_pattern=0xa5 --do_verify=0";
const SYNCED: &str = "--fsync_on_close=1";

/// What all jobs do at the same time: fio's name of the access, the bytes of a request, more options.
type Step<'a> = (&'a str, u64, &'a [&'a str]);

/// The objects of a case on a system.
struct Files<'a> {
    system: &'a System,
    name: &'a str,
    form: Form,
    jobs: usize,
    /// Bytes of each.
    bytes: u64,
    paths: Vec<PathBuf>,
}

impl<'a> Files<'a> {
    fn create(
        system: &'a System,
        name: &'a str,
        form: Form,
        jobs: usize,
        bytes: u64,
    ) -> anyhow::Result<Files<'a>> {
        let one = |job| create(system, &format!("{name}-{job}"), form, bytes);
        Ok(Files {
            paths: (0..jobs).map(one).collect::<Result<_, _>>()?,
            system,
            name,
            form,
            jobs,
            bytes,
        })
    }

    /// Runs fio: each step starts when the previous one has ended. Returns the MiB, or at random offsets the
    /// requests, that all jobs together moved a second in each step.
    fn run(&self, steps: &[Step<'_>]) -> anyhow::Result<Vec<f64>> {
        // Half as much again as is written, for read-ahead, buffers and logs.
        let writes = steps.iter().filter(|step| step.0 == "write").count() as u64;
        memory::touch(writes * self.bytes * self.jobs as u64 * 3 / 2)?;
        let mut fio = Command::new("fio");
        fio.args(COMMON);
        fio.arg(format!("--directory={}", self.system.dirs[0].display()));
        fio.arg(format!("--filename_format={}-$jobnum", self.name));
        fio.arg(format!("--numjobs={}", self.jobs));
        fio.arg(format!("--size={}", self.bytes));
        for (rw, request, options) in steps {
            fio.arg(format!("--name={rw}")).arg("--stonewall");
            fio.args([format!("--rw={rw}"), format!("--bs={request}")]);
            fio.args(options.iter().flat_map(|option| option.split(' ')));
        }
        let report = cleanup::output(&mut fio)?;
        let report: Value = serde_json::from_str(&report).context("reading fio's report")?;
        let speed = |(at, (rw, _, _)): (usize, &Step<'_>)| {
            let (direction, field, unit) = match rw.strip_prefix("rand") {
                Some(direction) => (direction, "iops", 1),
                None => (*rw, "bw_bytes", 1 << 20),
            };
            let number = report.pointer(&format!("/jobs/{at}/{direction}/{field}"));
            let number = number.and_then(Value::as_f64);
            Ok(number.context("fio's report has no number")? / f64::from(unit))
        };
        steps.iter().enumerate().map(speed).collect()
    }

    /// How reads are verified: where data is stored at all.
    fn verified(&self) -> &'static [&'static str] {
        match self.system.kind {
            Kind::Null => &[],
            _ => &[VERIFIED],
        }
    }

    fn note(&self, table: &mut Table, group: &str, request: u64, what: &str, value: f64) {
        let unit = match group {
            "memory" => "MiB",
            "iops" => "op/s",
            _ => "MiB/s",
        };
        let labels = [
            group.into(),
            args::name(self.form).into(),
            (request / 1024).into(),
            self.jobs.into(),
            what.into(),
        ];
        table.add(&labels, unit, &args::name(self.system.kind), value);
    }

    fn remove(self) -> anyhow::Result<()> {
        remove(&self.paths)
    }
}

/// The group `seq`: large requests from the start of an object to its end, one object per job.
///
/// `write` fills new objects and closes them; `overwrite` does it again; `sustained` fills new objects of twice
/// the size of all buffers, and counts until `fsync` has returned; `read` reads the data.
pub(super) fn seq(args: &GroupArgs, systems: &[&System], table: &mut Table) -> anyhow::Result<()> {
    for &form in &args.forms {
        for request in args.requests.iter().map(|kib| kib * 1024) {
            for &jobs in &args.jobs {
                // Complete requests and complete rows.
                let unit = request.max(ROW);
                let bytes = ((args.size << 20) / jobs as u64).div_ceil(unit) * unit;
                for system in systems {
                    let files = Files::create(system, "seq", form, jobs, bytes)?;
                    let speeds = files.run(&[
                        ("write", request, &[]),
                        ("write", request, &[]),
                        ("write", request, &[VERIFIED]),
                        // Not counted, also since just written data is not yet where reads find it.
                        ("read", request, files.verified()),
                        ("read", request, &[]),
                    ])?;
                    for (at, what) in [(0, "write"), (1, "overwrite"), (4, "read")] {
                        files.note(table, "seq", request, what, speeds[at]);
                    }
                    files.remove()?;
                    let files = Files::create(system, "sustained", form, jobs, bytes)?;
                    let speeds = files.run(&[("write", request, &[SYNCED])])?;
                    files.note(table, "seq", request, "sustained", speeds[0]);
                    files.remove()?;
                }
            }
        }
    }
    Ok(())
}

/// The group `iops`: 4 KiB requests at random offsets in an object small enough for every cache, which is warm.
pub(super) fn iops(
    args: &GroupArgs,
    systems: &[&System],
    round: u32,
    table: &mut Table,
) -> anyhow::Result<()> {
    // All jobs together fit the mount's cache.
    let (bytes, request) = (8 << 20, 4096);
    let time = if args.quick { "300ms" } else { "1s" };
    let random = format!(
        "--time_based --norandommap --runtime={time} --randseed={}",
        round + 1
    );
    let random = &[random.as_str()][..];
    for &form in &args.forms {
        for &jobs in &args.jobs {
            for system in systems {
                let files = Files::create(system, "iops", form, jobs, bytes)?;
                let speeds = files.run(&[
                    ("write", 1 << 20, &[SYNCED]),
                    ("read", request, &[]),
                    ("randread", request, random),
                    ("randwrite", request, random),
                ])?;
                for (at, what) in [(2, "read"), (3, "write")] {
                    files.note(table, "iops", request, what, speeds[at]);
                }
                files.remove()?;
            }
        }
    }
    Ok(())
}

/// The group `memory`: memory of the mount while a file is written and read that is larger than its limit.
pub(super) fn memory(
    args: &GroupArgs,
    systems: &[&System],
    table: &mut Table,
) -> anyhow::Result<()> {
    let bytes: u64 = if args.quick { 1 << 30 } else { 4 << 30 };
    let request = 1 << 20;
    for &form in &args.forms {
        for system in systems.iter().filter(|system| system.kind.is_slabfs()) {
            let files = Files::create(system, "memory", form, 1, bytes)?;
            files.run(&[
                ("write", request, &[VERIFIED]),
                ("read", request, &[VERIFIED]),
            ])?;
            for (what, field) in [("peak", "VmHWM"), ("own now", "RssAnon")] {
                let mib = memory::of_process(system.pids[0], field)?;
                files.note(table, "memory", request, what, mib);
            }
            files.remove()?;
        }
    }
    Ok(())
}
