//! A program of MPI-IO on two mounts, round after round of writes that are synced and read by all ranks, while
//! servers are killed and restarted, or links are cut for less than a session's lease: no call fails, and every
//! byte is right.

use std::path::{Path, PathBuf};
use std::time::Duration;

use slabfs_tests::mpi::Mpi;
use slabfs_tests::tool::{create, stats};
use slabfs_tests::{Cluster, Machine, file, needs_mount, needs_root, poll};

const KINDS: [&str; 3] = ["bytes", "aligned", "grid"];

/// The program's progress, and the file that ends it.
struct Progress(PathBuf);

impl Progress {
    fn rounds(&self) -> u64 {
        let text = std::fs::read_to_string(self.0.join("round")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Waits for `rounds` more rounds; the first of them may have been under way.
    #[track_caller]
    fn more(&self, rounds: u64, ended: &dyn Fn() -> bool) {
        let until = self.rounds() + rounds;
        poll::until_true("the ranks to continue", || {
            self.rounds() >= until || ended()
        });
    }
}

/// Ends the program when it is dropped, also by a panic.
struct Enough<'a>(&'a Path);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("enough"), "");
    }
}

/// Runs the program on two mounts, and `faults` with a function that waits for some rounds.
fn under(mut cluster: Cluster, faults: impl FnOnce(&mut Cluster, &dyn Fn(u64))) {
    let program = Mpi::Mpich.program(cluster.area(), "rounds");
    cluster.start_all(2);
    for (name, layout) in [("aligned", "aligned"), ("grid", "grid:13,17")] {
        create(&cluster.at(0, name), "61,83", "u4", &["--layout", layout]);
    }
    let progress = Progress(cluster.area().mkdir("progress"));
    let args = [0, 1].map(|mount| {
        let paths = KINDS.map(|kind| cluster.at(mount, kind).display().to_string());
        let words = [progress.0.display().to_string(), "61".into(), "83".into()];
        words.into_iter().chain(paths).collect::<Vec<_>>()
    });
    std::thread::scope(|scope| {
        let enough = Enough(&progress.0);
        let running = scope.spawn(|| program.run_each(args));
        let more = |rounds| progress.more(rounds, &|| running.is_finished());
        more(2);
        faults(&mut cluster, &more);
        drop(enough);
        running.join().expect("the ranks").ok();
    });
    println!("{} rounds", progress.rounds());
    let lost = [0, 1].map(|mount| stats(&cluster.mnt(mount))["sessions_lost"].as_u64());
    assert_eq!(lost, [Some(0), Some(0)]);
    let before = KINDS.map(|kind| file::read(&cluster.at(0, kind)));
    cluster.restart();
    for (kind, before) in KINDS.iter().zip(&before) {
        assert!(
            &file::read(&cluster.at(1, kind)) == before,
            "{kind} after a restart"
        );
    }
    cluster.stop_and_fsck().ok();
}

#[test]
fn servers_are_killed_in_the_middle_of_writes() {
    needs_mount!();
    under(Cluster::new(2, &[], false), |cluster, more| {
        cluster.kill_md();
        cluster.start_md();
        more(3);
        cluster.kill_server(1);
        cluster.start_server(1);
        more(3);
        // All at once.
        cluster.kill_server(0);
        cluster.kill_md();
        cluster.kill_server(1);
        cluster.launch_server(1);
        cluster.start_md();
        cluster.await_server(1);
        cluster.start_server(0);
        more(3);
    });
}

#[test]
fn links_are_cut_for_a_moment_in_the_middle_of_writes() {
    needs_root!();
    under(Cluster::networked(2, &[]), |cluster, more| {
        for mount in [0, 1] {
            cluster.cut(Machine::Mount(mount));
            // The duration is the fault; nothing is waited for.
            std::thread::sleep(Duration::from_secs(5));
            cluster.heal(Machine::Mount(mount));
            more(3);
        }
    });
}
