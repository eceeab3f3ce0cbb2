//! What workers on one mount, two and four see of each other, as histories: `slabfs_tests::history` says
//! what is done and how it is judged.
//!
//! An ordinary run does each workload once with a fixed seed. `SLABFS_SOAK_SECONDS` makes each test go on
//! for a part of that time with other seeds, so that `tools/soak 300 history` takes about as long as it
//! says; `SLABFS_TEST_SEED` begins with one seed; `SLABFS_HISTORY_DIR` keeps all histories.

use std::time::{Duration, Instant};

use slabfs_tests::history::work::Workload::{self, *};
use slabfs_tests::history::{Promise, Run, check_whole, run};
use slabfs_tests::{Cluster, Random, needs_mount};

/// A cluster whose mounts keep a promise towards each other.
fn cluster(mounts: usize, promise: Promise) -> Cluster {
    let options: &[&str] = match promise {
        Promise::Strict => &["--consistency", "strict"],
        Promise::Commit => &["--consistency", "commit"],
    };
    Cluster::with(2, mounts, options)
}

/// Each workload once, or until the time of a soak is over, each time with new objects and another seed.
fn play(mounts: usize, promise: Promise, workloads: &[Workload], seed: u64) {
    needs_mount!();
    let soak = std::env::var("SLABFS_SOAK_SECONDS").ok();
    // Seven tests take their part of it, two at a time on two cores.
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
        // All of a round: what fails together says more than the first.
        let wrong: Vec<String> = outcomes
            .filter(|outcome| !outcome.is_fine())
            .map(|outcome| outcome.report())
            .collect();
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
    Cells, Mapped, Records, Names, Locked, Told, Barriers, Neighbours,
];

/// Writes in place beside those into memory.
const IN_PLACE: [Workload; 1] = [InPlace];
/// What one mount does not keep yet: the kernel drops pages before it sends a write, and what it fetches until the write has come is old: a load
/// sees that, and the next store writes it back over the write.
const MIXED: [Workload; 1] = [Mixed];

/// What holds between mounts also without rights. Mappings bring whole pages back, and appends of two
/// mounts may land on each other: not those.
const PUBLISHED: [Workload; 6] = [Cells, Names, Locked, Told, Barriers, Neighbours];

#[test]
fn strict_on_one_mount() {
    play(1, Promise::Strict, &ALL, 1);
}

#[test]
fn strict_in_place_on_one_mount() {
    play(1, Promise::Strict, &IN_PLACE, 7);
}

#[test]
#[ignore = "pages fetched while a write of the same page runs are old, and come back over it"]
fn strict_with_mappings_and_writes_on_one_mount() {
    play(1, Promise::Strict, &MIXED, 9);
}

#[test]
#[ignore = "a read may see a part of a write that runs at the same time"]
fn reads_see_writes_whole() {
    needs_mount!();
    let cluster = cluster(1, Promise::Strict);
    let run = Run {
        workload: Cells,
        promise: Promise::Strict,
        mounts: 1,
        workers: 4,
        operations: 300,
        seed: Random::seed(8),
    };
    let outcome = slabfs_tests::history::run(&cluster, run);
    let found = check_whole(&outcome.ops);
    assert!(found.is_empty(), "{}{}", found[0], outcome.report());
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

/// The checks can fail: workers that neither sync nor open again see old data, where mounts only promise
/// what mode commit does.
#[test]
fn mode_commit_is_not_strict() {
    needs_mount!();
    let cluster = cluster(2, Promise::Commit);
    for workload in [Told, Barriers, Locked] {
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
