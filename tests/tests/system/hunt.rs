//! Everything at once on one object from four mounts, while the kernel is short of memory: nothing may hang and
//! nothing may fail, and the mounts see each other's writes strictly.
//!
//! The shortage is a memory limit of a cgroup around the mounts where one can be set (cgroup v2, superuser),
//! else the kernel's caches are dropped repeatedly. `SLABFS_SOAK_SECONDS` sets the duration.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slabfs_tests::history::work::Workload;
use slabfs_tests::history::{Promise, Run, run};
use slabfs_tests::{Cluster, Random, needs_root};

const MOUNTS: u32 = 4;

/// Time after which slabfs itself gives an operation up.
const DEADLINE: Duration = Duration::from_secs(30);

#[test]
fn hunt_on_four_mounts() {
    hunt(MOUNTS, 81);
}

/// The part of it that needs no rights.
#[test]
fn hunt_on_one_mount() {
    hunt(1, 82);
}

fn hunt(mounts: u32, seed: u64) {
    needs_root!();
    let soak = std::env::var("SLABFS_SOAK_SECONDS").ok();
    let soak = soak
        .and_then(|seconds| seconds.parse().ok())
        .map(Duration::from_secs);
    let start = Instant::now();
    let cluster = Cluster::start(2, mounts as usize);
    let limited = limit(&cluster, mounts);
    let mut random = Random::new(seed);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if limited.is_none() {
            scope.spawn(|| drop_caches(&over));
        }
        // However the hunt ends, the dropping ends.
        let _over = Ends(&over);
        for round in 0.. {
            let seed = if round == 0 {
                Random::seed(seed)
            } else {
                random.number() >> 16
            };
            let outcome = run(
                &cluster,
                Run {
                    workload: Workload::Hunt,
                    promise: Promise::Strict,
                    mounts,
                    workers: 8,
                    operations: if soak.is_some() { 1000 } else { 200 },
                    seed,
                },
            );
            match mounts {
                // A read through a selection does not see changes of a mapping on its own mount.
                1 => outcome.expect_no_failures(),
                _ => outcome.expect_fine(),
            }
            let late = outcome.longer_than(DEADLINE);
            assert!(late.is_empty(), "{late:#?} of {outcome}");
            if soak.is_none_or(|soak| start.elapsed() > soak) {
                break;
            }
            println!("round {round}, {:?}", start.elapsed());
        }
    });
    drop(cluster);
    if let Some(group) = limited {
        // The mounts have ended, so the cgroup is empty.
        std::fs::remove_dir(group).expect("the cgroup is removed");
    }
}

/// Puts the mounts into a cgroup with little memory; returns its directory, if that is possible.
fn limit(cluster: &Cluster, mounts: u32) -> Option<std::path::PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let has = std::fs::read_to_string(root.join("cgroup.subtree_control")).ok()?;
    if !has
        .split_whitespace()
        .any(|controller| controller == "memory")
    {
        return None;
    }
    let group = root.join(format!("slabfs-hunt-{}-{mounts}", std::process::id()));
    std::fs::create_dir(&group).ok()?;
    std::fs::write(group.join("memory.high"), "48M").expect("a limit");
    std::fs::write(group.join("memory.max"), "256M").expect("a limit");
    for mount in 0..mounts as usize {
        let pid = cluster.mount(mount).pid().to_string();
        std::fs::write(group.join("cgroup.procs"), pid).expect("a mount in the cgroup");
    }
    Some(group)
}

/// Makes the kernel drop unused pages, names and inodes, until `over`.
fn drop_caches(over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        if std::fs::write("/proc/sys/vm/drop_caches", "3").is_err() {
            return;
        }
        // Not all the time: the workers must progress in between.
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
