//! Everything is killed at random moments under a load of creates, tags, renames, links, dims changes, writes
//! and removals, and the files of the metadata are damaged as well. A model determines the allowed states
//! afterwards, and `slabfs fsck` must find nothing.
//!
//! The promise: an operation on names, tags or dims that returned survives a kill of any or all processes (its
//! record is in the journal before the reply). An operation that did not return happened completely or not at
//! all, but for data that a shrink of a grid was to remove, which may be fill. Data is stored once `fsync` returned; before that each of its bytes is the old or the new one.
//!
//! `SLABFS_SOAK_SECONDS` sets the duration; `SLABFS_TEST_SEED` repeats one seed.

mod dice;
mod load;
mod model;
mod play;
mod seen;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slabfs_tests::{Cluster, Random, disk, file, needs_mount, poll, soak};

use load::Worker;

/// Rounds in a normal run of the tests.
const ROUNDS: u64 = 3;
/// Writers, each with a directory and a model of its own.
const WRITERS: u64 = 3;

#[test]
fn everything_killed_at_random_moments() {
    needs_mount!();
    let mut random = Random::new(91);
    let soak = soak::time();
    let start = Instant::now();
    let mut cluster = Cluster::start(2, 1);
    let mut workers: Vec<Worker> = (0..WRITERS)
        .map(|n| Worker::new(cluster.mnt(0), n, random.number()))
        .collect();
    for worker in &mut workers {
        worker.prepare();
    }
    for round in 0.. {
        let (lived, operations) = load(&mut cluster, &mut workers, &mut random);
        let spoiled = spoil(&cluster, &mut random);
        check(&cluster, round, spoiled);
        start_all(&mut cluster, &mut random);
        for worker in &mut workers {
            worker.compare(round);
        }
        println!(
            "round {round}: {operations} operations, {lived} servers killed under them, {spoiled}"
        );
        if soak.is_some() && round % 25 == 24 {
            forget_the_dead(&cluster, round + 1);
        }
        match soak {
            Some(time) if start.elapsed() < time => {}
            None if round + 1 < ROUNDS => {}
            _ => break,
        }
    }
    // A clean shutdown after all that leaves nothing either.
    cluster.stop_mount(0);
    (0..2).for_each(|server| cluster.stop_server(server));
    cluster.stop_md();
    check(&cluster, u64::MAX, "stopped in order");
}

/// Lets the writers run, kills single servers meanwhile, and everything in the end. Returns how many servers
/// were killed while the writers continued, and the number of operations.
fn load(cluster: &mut Cluster, workers: &mut [Worker], random: &mut Random) -> (u64, u64) {
    let (done, end) = (AtomicU64::new(0), AtomicBool::new(false));
    let killed = random.range(0, 3);
    std::thread::scope(|scope| {
        for worker in workers {
            scope.spawn(|| worker.run(&done, &end));
        }
        let wait = |random: &mut Random, more: u64| {
            let until = done.load(Ordering::SeqCst) + random.range(1, more);
            poll::until_true("the writers to continue", || {
                done.load(Ordering::SeqCst) >= until || end.load(Ordering::SeqCst)
            });
            // At a random moment inside the next operation.
            std::thread::sleep(Duration::from_micros(random.range(0, 5000)));
        };
        wait(random, 1500);
        for _ in 0..killed {
            match random.range(0, 3) {
                0 => {
                    cluster.kill_md();
                    cluster.start_md();
                }
                server => {
                    cluster.kill_server(server as usize - 1);
                    cluster.start_server(server as usize - 1);
                }
            }
            wait(random, 200);
            assert!(!end.load(Ordering::SeqCst), "a writer failed, see above");
        }
        // From here on operations may fail.
        end.store(true, Ordering::SeqCst);
        let mut all = [0, 1, 2, 3];
        for at in (1..4).rev() {
            all.swap(at, random.range(0, at as u64 + 1) as usize);
        }
        for process in all {
            match process {
                0 => cluster.kill_md(),
                1 => cluster.kill_mount(0),
                server => cluster.kill_server(server - 2),
            }
            std::thread::sleep(Duration::from_micros(random.range(0, 3000)));
        }
    });
    (killed, done.into_inner())
}

/// Damages the files of the metadata in a way that must not lose anything.
fn spoil(cluster: &Cluster, random: &mut Random) -> &'static str {
    let data = cluster.md_data();
    let flip_all = |random: &mut Random| {
        for path in disk::files(&disk::sled(&data)) {
            let len = path.metadata().expect("metadata").len();
            (0..5)
                .filter(|_| len > 0)
                .for_each(|_| disk::flip(&path, random.range(0, len)));
        }
    };
    match random.range(0, 6) {
        0 => {
            let journal = disk::journals(&data).pop().expect("one");
            let len = random.range(1, 5000) as usize;
            let garbage = random.bytes(len);
            use std::io::Write;
            std::fs::OpenOptions::new()
                .append(true)
                .open(journal)
                .and_then(|mut file| file.write_all(&garbage))
                .expect("garbage");
            "garbage behind the journal"
        }
        1 => {
            std::fs::remove_dir_all(disk::sled(&data)).expect("removed");
            "sled removed"
        }
        2 => {
            flip_all(random);
            "sled damaged"
        }
        3 => {
            for path in disk::files(&disk::sled(&data)) {
                std::fs::write(path, "").expect("emptied");
            }
            "sled emptied"
        }
        _ => "nothing spoiled",
    }
}

/// `slabfs fsck` of everything finds nothing.
#[track_caller]
fn check(cluster: &Cluster, round: u64, spoiled: &str) {
    let outcome = cluster.fsck();
    assert!(
        outcome.status == 0,
        "round {round}, {spoiled}: {}",
        outcome.report()
    );
}

/// Waits until the sessions of the mounts killed so far, one per round, are over, and their leased chunk ids
/// are swept. Most are by now: the mount of the next round had to wait for that.
fn forget_the_dead(cluster: &Cluster, killed: u64) {
    let over = || {
        cluster
            .md()
            .log()
            .matches("no heartbeat of the session")
            .count() as u64
    };
    poll::until_true("the sessions of killed mounts to end", || over() >= killed);
}

fn start_all(cluster: &mut Cluster, random: &mut Random) {
    // In any order: a process that needs another one waits for it.
    if random.one_in(2) {
        (0..2).for_each(|server| cluster.launch_server(server));
        cluster.start_md();
        (0..2).for_each(|server| cluster.await_server(server));
    } else {
        cluster.start_md();
        (0..2).for_each(|server| cluster.start_server(server));
    }
    cluster.start_mount(0);
    file::sync_dir(&cluster.mnt(0)).expect("synced");
}
