//! `slabfs-bench standby`: how long starts of the metadata service take with many objects, and its memory: of a local one, of a
//! standby over etcd on an empty directory and on its own copy, and of a standby that takes over from a leader that is killed.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::signal::Signal;
use slabfs_mdserver::api::{Kind, NewObject, ROOT, SpecChange, op};
use slabfs_mdserver::client::{Md, Shards};
use slabfs_objstore::Addr;

use super::{attach, create, service, start_etcd};
use crate::args::Common;
use crate::cleanup::{self, end_now, new_directory, spawn};

/// Objects of one request.
const AT_ONCE: u64 = 1000;
/// Clients that create.
const CLIENTS: u64 = 8;

/// Starts of the metadata service with many objects, over etcd and local
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StandbyArgs {
    /// Number of objects
    #[arg(long, default_value = "1000000", value_parser = clap::value_parser!(u64).range(1000..=100_000_000))]
    objects: u64,
    #[command(flatten)]
    common: Common,
}

/// Measures, and prints a line for each start.
pub(crate) fn run(args: &StandbyArgs) -> anyhow::Result<()> {
    cleanup::on_signals()?;
    let measured = measure(args);
    measured.and(cleanup::run())
}

fn measure(args: &StandbyArgs) -> anyhow::Result<()> {
    let work = new_directory(args.common.work.as_deref(), "standby")?;
    let slabfs = args.common.slabfs()?;
    let endpoints = start_etcd(&work, 1)?;
    let url = format!("etcd://{}/bench", &endpoints[0]["http://".len()..]);
    let checkpoints = work.join("checkpoints");
    std::fs::create_dir(&checkpoints).context("the directory of checkpoints")?;
    let checkpoints = checkpoints.display().to_string();
    let journal = ["--meta", &url, "--checkpoints", &checkpoints];
    let start = |name: &str, flags: &[&str]| -> anyhow::Result<(u32, Duration)> {
        let begun = Instant::now();
        let pid = spawn(service(&slabfs, &work, name, flags), name)?;
        Ok((pid, begun.elapsed()))
    };
    let line = |what: &str, pid: Option<u32>, time: Duration| -> anyhow::Result<()> {
        let memory = match pid {
            Some(pid) => format!("{} MiB", resident(pid)? >> 20),
            None => String::new(),
        };
        println!("{what:<52}{:>8.1} s{memory:>12}", time.as_secs_f64());
        Ok(())
    };
    println!("{} objects", args.objects);
    let (local, _) = start("local", &[])?;
    line(
        "local: created",
        Some(local),
        fill(&work, "local", args.objects)?,
    )?;
    end_now(local, Signal::SIGKILL)?;
    let (local, time) = start("local", &[])?;
    line("local: started after kill -9", Some(local), time)?;
    end_now(local, Signal::SIGTERM)?;
    let (leader, _) = start("a", &journal)?;
    line(
        "etcd: created",
        Some(leader),
        fill(&work, "a", args.objects)?,
    )?;
    let (standby, time) = start("b", &journal)?;
    line("etcd: standby on an empty directory", Some(standby), time)?;
    end_now(standby, Signal::SIGTERM)?;
    let (standby, time) = start("b", &journal)?;
    line("etcd: standby on its copy", Some(standby), time)?;
    let begun = Instant::now();
    end_now(leader, Signal::SIGKILL)?;
    attach(&addr(&work, "b"))?;
    line(
        "etcd: standby answers after kill -9 of the leader",
        Some(standby),
        begun.elapsed(),
    )
}

fn addr(work: &Path, name: &str) -> Addr {
    Addr::Unix(work.join(format!("{name}.sock")))
}

/// Creates the objects, in containers of 10,000.
fn fill(work: &Path, name: &str, objects: u64) -> anyhow::Result<Duration> {
    let addr = addr(work, name);
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let shards = Shards::new(vec![attach(&addr)?]);
                    let md = shards.names();
                    let mut container = None;
                    loop {
                        let from = next.fetch_add(AT_ONCE, Ordering::Relaxed);
                        if from >= objects {
                            md.call(op::Detach { clean: true })?;
                            return anyhow::Ok(());
                        }
                        let parent = match container {
                            Some((parent, until)) if from < until => parent,
                            _ => {
                                let made =
                                    create(&shards, ROOT, &format!("d{from}"), Kind::Directory)?;
                                container = Some((made.attr.ino, from + 10 * AT_ONCE));
                                made.attr.ino
                            }
                        };
                        create_many(md, parent, from..objects.min(from + AT_ONCE))?;
                    }
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("a client panicked"))
    })?;
    Ok(begun.elapsed())
}

fn create_many(
    md: &Md,
    parent: slabfs_mdserver::api::Ino,
    numbers: std::ops::Range<u64>,
) -> anyhow::Result<()> {
    let objects = numbers.map(|number| NewObject {
        parent,
        name: format!("object{number}").into_bytes(),
        mode: 0o644,
        uid: 0,
        gid: 0,
        spec: SpecChange::default(),
        tags: Vec::new(),
    });
    md.call(op::CreateMany {
        objects: objects.collect(),
    })?;
    Ok(())
}

/// Resident memory of a process, in bytes.
fn resident(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .with_context(|| format!("{path} has no VmRSS"))
}
