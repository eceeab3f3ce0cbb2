//! What workers on one mount, two and four see of each other, as histories: `slabfs_tests::history` defines the
//! workloads and the checks.
//!
//! A normal run does each workload once with a fixed seed. `SLABFS_SOAK_SECONDS` lets each test run for a part
//! of that time with other seeds, so that `tools/soak 300 history` takes about 300 seconds; `SLABFS_TEST_SEED`
//! sets the first seed; `SLABFS_HISTORY_DIR` stores all histories.

use std::time::{Duration, Instant};

use slabfs_tests::history::work::Workload::{self, *};
use slabfs_tests::history::{Outcome, Promise, Run, check_atomic, run};
use slabfs_tests::{Cluster, Random, needs_mount};

/// A cluster whose mounts give a promise of consistency.
fn cluster(mounts: usize, promise: Promise) -> Cluster {
    let options: &[&str] = match promise {
        Promise::Strict => &["--consistency", "strict"],
        Promise::Commit => &["--consistency", "commit"],
    };
    Cluster::with(2, mounts, options)
}

/// Runs each workload once, or until the time of a soak is over, each time with new objects and another seed.
fn play(mounts: usize, promise: Promise, workloads: &[Workload], seed: u64) {
    needs_mount!();
    judge(mounts, promise, workloads, seed, |outcome| {
        (!outcome.is_fine()).then(|| outcome.report())
    });
}

/// The same; `wrong` returns what is wrong with an outcome.
fn judge(
    mounts: usize,
    promise: Promise,
    workloads: &[Workload],
    seed: u64,
    wrong: impl Fn(Outcome) -> Option<String>,
) {
    let soak = std::env::var("SLABFS_SOAK_SECONDS").ok();
    // Nine tests run in that time, two at once on two cores.
    let soak = soak.and_then(|seconds| Some(Duration::from_secs(seconds.parse::<u64>().ok()? / 4)));
    let start = Instant::now();
    let cluster = cluster(mounts, promise);
    let mut random = Random::new(seed);
    for round in 0.. {
        let seed = if round == 0 {
            Random::seed(seed)
        } else {
            random.number() >> 16
        };
        let outcomes = workloads.iter().map(|&workload| {
            let run = Run {
                workload,
                promise,
                mounts: mounts as u32,
                workers: 4,
                operations: 150,
                seed,
            };
            slabfs_tests::history::run(&cluster, run)
        });
        // All failures of a round: together they show more than the first.
        let wrong: Vec<String> = outcomes.filter_map(&wrong).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        if soak.is_none_or(|soak| start.elapsed() > soak) {
            break;
        }
        println!(
            "{mounts} mounts, {promise:?}: round {round}, {:?}",
            start.elapsed()
        );
    }
}

const ALL: [Workload; 8] = [
    Cells, Mapped, Records, Names, Locked, Notified, Barriers, Neighbours,
];

/// Writes in place, and writes into memory.
const IN_PLACE: [Workload; 1] = [InPlace];
/// Pages that are written through a mapping and by system calls: the kernel drops pages before it sends a
/// write, and may fetch others before the write arrives.
const MIXED: [Workload; 1] = [Mixed];
/// Requests for several cells at once, which go to several chunks.
const SEVERAL: [Workload; 2] = [Cells, InPlace];

/// Workloads that hold between mounts also without rights. Mappings write entire pages back, and appends of two
/// mounts may overlap: those are excluded.
const PUBLISHED: [Workload; 6] = [Cells, Names, Locked, Notified, Barriers, Neighbours];

#[test]
fn strict_on_one_mount() {
    play(1, Promise::Strict, &ALL, 1);
}

#[test]
fn strict_in_place_on_one_mount() {
    play(1, Promise::Strict, &IN_PLACE, 7);
}

#[test]
fn strict_with_mappings_and_writes_on_one_mount() {
    play(1, Promise::Strict, &MIXED, 9);
}

/// On one mount; between several mounts a request may be split.
#[test]
fn reads_see_complete_writes() {
    needs_mount!();
    judge(1, Promise::Strict, &SEVERAL, 8, |outcome| {
        let found = check_atomic(&outcome.ops);
        let first = found.first().map(|found| found.to_string());
        match (first, outcome.is_fine()) {
            (None, true) => None,
            (found, _) => Some(found.unwrap_or_default() + &outcome.report()),
        }
    });
}

#[test]
fn strict_on_two_mounts() {
    play(2, Promise::Strict, &ALL, 2);
}

#[test]
fn strict_on_four_mounts() {
    play(4, Promise::Strict, &ALL, 3);
}

#[test]
fn commit_on_two_mounts() {
    play(2, Promise::Commit, &PUBLISHED, 4);
}

#[test]
fn commit_on_four_mounts() {
    play(4, Promise::Commit, &PUBLISHED, 5);
}

/// The checks can fail: workers that neither sync nor open again see stale data, where mounts only give the
/// promise of mode commit.
#[test]
fn mode_commit_is_not_strict() {
    needs_mount!();
    let cluster = cluster(2, Promise::Commit);
    for workload in [Notified, Barriers, Locked] {
        let outcome = run(
            &cluster,
            Run {
                workload,
                promise: Promise::Strict,
                mounts: 2,
                workers: 2,
                operations: 200,
                seed: 6,
            },
        );
        outcome.expect_violations();
    }
}
