//! Everything over engines, each process on a machine of its own: three members of etcd, two metadata services, two
//! data servers over a bucket with a standby each, three mounts. Under a mixed load each kind of process is killed and
//! cut off, one after the other, and at last all are restarted in order.
//!
//! The load, and what is checked all the time:
//! - programs on mount 0 write and sync objects of each layout; readers on mount 1 see what was synced, or something newer
//!   ([`stamps`](crate::faults::stamps));
//! - workers on mounts 0 and 1 create, rename and remove, and write under locks; their histories are linearizable
//!   ([`slabfs_tests::history`]), but for data during the loss of a data server;
//! - programs on mount 2, which is itself killed and cut off, lose nothing that they synced;
//! - a program on mount 1 creates, writes, syncs and removes a file repeatedly; the longest time of one such step is
//!   the gap of service.
//!
//! A data server that is killed or cut off loses what was not synced: the next `fsync` is EIO, and so are reads of chunks that are
//! not there any more, until they are written again. All other faults give no program an error, but for those on the mount that is
//! killed. `tools/soak 600 rounds` does 30 rounds.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slabfs_tests::history::work::Workload::{Locked, Names};
use slabfs_tests::history::{Promise, Run, run_on};
use slabfs_tests::weed::{CREDENTIALS, Weed};
use slabfs_tests::{Cluster, Machine, Random, file, needs_root, poll, slabfs, soak};

use crate::faults::stamps::{NAMES, REGIONS, Writer, prepare_in, try_stamp_of};
use crate::faults::{Until, await_syncs};

/// Rounds of a long run.
const ROUNDS: usize = 30;
/// Metadata services, members of etcd, data servers (with the standbys).
const MDS: usize = 2;
const MEMBERS: usize = 3;
const SERVERS: usize = 4;
/// The mount that is killed.
const VICTIM: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    LeaderKilled,
    LeaderCut,
    ServerKilled,
    ServerCut,
    MemberKilled,
    MemberCut,
    MountKilled,
    MountCut,
    Rolling,
}

const ALL: [Fault; 9] = [
    Fault::LeaderKilled,
    Fault::ServerKilled,
    Fault::MemberKilled,
    Fault::MountKilled,
    Fault::Rolling,
    Fault::LeaderCut,
    Fault::ServerCut,
    Fault::MemberCut,
    Fault::MountCut,
];

impl Fault {
    /// Whether data that was not synced may be lost.
    fn is_loss(self) -> bool {
        matches!(self, Fault::ServerKilled | Fault::ServerCut)
    }
}

/// Steps of a program, and the longest one since it was asked for.
#[derive(Default)]
struct Probe {
    steps: AtomicU64,
    longest: Mutex<Duration>,
    /// Syncs that have reported a loss.
    losses: AtomicU64,
}

impl Probe {
    fn run(&self, dir: &Path, stop: &AtomicBool) {
        let (path, renamed) = (dir.join("probe"), dir.join("renamed"));
        while !stop.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let written = fs::File::create(&path).and_then(|mut file| {
                std::io::Write::write_all(&mut file, b"some bytes")?;
                file.sync_all()
            });
            if let Err(error) = written {
                assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
                self.losses.fetch_add(1, Ordering::SeqCst);
            }
            fs::rename(&path, &renamed).expect("renamed");
            fs::remove_file(&renamed).expect("removed");
            let mut longest = self.longest.lock().expect("the lock");
            *longest = (*longest).max(begun.elapsed());
            self.steps.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn take(&self) -> Duration {
        std::mem::take(&mut *self.longest.lock().expect("the lock"))
    }

    fn await_steps(&self, more: u64) {
        let until = self.steps.load(Ordering::SeqCst) + more;
        poll::until_true("the probe to continue", || {
            self.steps.load(Ordering::SeqCst) >= until
        });
    }
}

/// Reads the regions of an object: what was synced before is there, or something newer that was begun.
fn check(path: &Path, file: &fs::File, writer: &Writer) {
    for region in 0..REGIONS {
        let synced = writer.known()[region].synced;
        let stamp = try_stamp_of(file, region);
        let begun = writer.known()[region].begun;
        match stamp {
            Ok(stamp) => assert!(
                (synced..=begun).contains(&stamp),
                "{}, region {region}: {stamp} of {synced} to {begun}",
                path.display()
            ),
            // Something newer was there, and is lost.
            Err(error) => assert!(
                synced < begun,
                "{}, region {region}: {error}",
                path.display()
            ),
        }
    }
}

fn watch(path: &Path, writer: &Writer, stop: &AtomicBool) -> u64 {
    let mut rounds = 0;
    let file = file::open(path);
    while !stop.load(Ordering::SeqCst) {
        check(path, &file, writer);
        rounds += 1;
    }
    rounds
}

/// Histories of names, and of data under locks, until `stop`; `lost` counts losses of data servers. Returns how many there were.
fn histories(area: &Path, mounts: &[PathBuf], lost: &AtomicU64, stop: &AtomicBool) -> u64 {
    let mut random = Random::new(17);
    let mut runs = 0;
    while !stop.load(Ordering::SeqCst) {
        for workload in [Names, Locked] {
            let run = Run {
                workload,
                promise: Promise::Strict,
                mounts: mounts.len() as u32,
                workers: 2,
                operations: 100,
                seed: random.number() >> 16,
            };
            let before = lost.load(Ordering::SeqCst);
            let outcome = run_on(area, mounts, run);
            // Data that was not synced may be lost.
            if workload == Names || lost.load(Ordering::SeqCst) == before {
                outcome.expect_fine();
                runs += 1;
            }
        }
    }
    runs
}

/// The cluster, and which data server has which identity now; the other two are standbys.
struct Engines {
    cluster: Cluster,
    serving: [usize; 2],
    /// How often each data server has begun to serve.
    begun: [usize; SERVERS],
    // Dropped last.
    _weed: Weed,
}

impl Engines {
    fn start() -> Engines {
        let mut cluster = Cluster::over_etcd_networked(MDS, MEMBERS, SERVERS, &[]);
        let weed = Weed::start_on(cluster.network());
        cluster.md_flags(&["--leader-lease", "5s"]);
        for i in 0..SERVERS {
            let identity = ["one", "two"][i % 2];
            let store = weed.url("fs");
            let flags = ["--store", &store, "--identity", identity, "--standby"];
            cluster.server_flags(i, &flags);
            for var in CREDENTIALS {
                cluster.server_var(i, var);
            }
        }
        (0..MDS).for_each(|md| cluster.start_md_at(md));
        let mut engines = Engines {
            cluster,
            serving: [0, 1],
            begun: [0; SERVERS],
            _weed: weed,
        };
        for server in 0..SERVERS {
            engines.cluster.start_server(server);
            if server < 2 {
                engines.await_serving(server);
            }
        }
        (0..3).for_each(|_| engines.cluster.add_mount());
        engines
    }

    /// Waits until a data server has begun to serve once more.
    fn await_serving(&mut self, server: usize) {
        self.begun[server] += 1;
        poll::until_true("the standby to serve", || {
            let log = self.cluster.server(server).log();
            log.matches("this one does from now on").count() >= self.begun[server]
        });
    }

    /// Waits until the standby of an identity serves. Returns the server before it.
    fn await_standby(&mut self, identity: usize) -> usize {
        let before = self.serving[identity];
        let next = (before + 2) % SERVERS;
        self.await_serving(next);
        self.serving[identity] = next;
        before
    }

    /// Does one fault; `goes_on` waits until all programs have continued.
    fn fault(&mut self, fault: Fault, random: &mut Random, goes_on: &dyn Fn(&Engines)) {
        match fault {
            Fault::LeaderKilled => {
                let leader = self.cluster.leader();
                self.cluster.kill_md_at(leader);
                goes_on(self);
                self.cluster.start_md_at(leader);
            }
            Fault::LeaderCut => {
                let leader = self.cluster.leader();
                self.cluster.cut(Machine::Md(leader));
                goes_on(self);
                self.cluster.heal(Machine::Md(leader));
            }
            Fault::ServerKilled => {
                let identity = random.range(0, 2) as usize;
                self.cluster.kill_server(self.serving[identity]);
                let before = self.await_standby(identity);
                goes_on(self);
                self.cluster.start_server(before);
            }
            Fault::ServerCut => {
                let identity = random.range(0, 2) as usize;
                let before = self.serving[identity];
                self.cluster.cut(Machine::Server(before));
                self.await_standby(identity);
                goes_on(self);
                self.cluster.heal(Machine::Server(before));
                // It finds out that it was replaced.
                assert_ne!(self.cluster.await_server_end(before), 0);
                self.cluster.start_server(before);
            }
            Fault::MemberKilled => {
                let member = self.cluster.etcd().leader();
                self.cluster.etcd_mut().kill(member);
                goes_on(self);
                self.cluster.etcd_mut().restart(member);
            }
            Fault::MemberCut => {
                let member = self.cluster.etcd().leader();
                self.cluster.cut(Machine::Etcd(member));
                goes_on(self);
                self.cluster.heal(Machine::Etcd(member));
            }
            Fault::MountKilled => {
                self.cluster.kill_mount(VICTIM);
                goes_on(self);
                self.cluster.start_mount(VICTIM);
            }
            Fault::MountCut => {
                self.cluster.cut(Machine::Mount(VICTIM));
                goes_on(self);
                self.cluster.heal(Machine::Mount(VICTIM));
            }
            Fault::Rolling => {
                for md in 0..MDS {
                    self.cluster.stop_md_at(md);
                    goes_on(self);
                    self.cluster.start_md_at(md);
                }
                for identity in 0..2 {
                    self.cluster.stop_server(self.serving[identity]);
                    let before = self.await_standby(identity);
                    goes_on(self);
                    self.cluster.start_server(before);
                }
                for member in 0..MEMBERS {
                    self.cluster.etcd_mut().stop(member);
                    goes_on(self);
                    self.cluster.etcd_mut().restart(member);
                    poll::until_true("all of etcd to answer", || {
                        self.cluster.etcd().ctl(&["endpoint", "health"]).0
                    });
                }
            }
        }
    }
}

/// Runs these faults one after the other.
fn play(faults: impl Iterator<Item = Fault>) {
    let mut random = Random::new(23);
    let mut engines = Engines::start();
    let dirs = ["safe", "victim", "names"].map(|name| engines.cluster.at(0, name));
    for dir in &dirs {
        fs::create_dir(dir).expect("a directory");
    }
    let writers = prepare_in(&dirs[0]);
    let victims = Mutex::new(prepare_in(&dirs[1]));
    let names = [0, 1].map(|mount| engines.cluster.at(mount, "names"));
    let area = engines.cluster.area().path().to_owned();
    let there = engines.cluster.at(1, "safe");
    let probe_dir = engines.cluster.at(1, "");
    let (probe, lost) = (Probe::default(), AtomicU64::new(0));
    let (stop, mut seed) = (AtomicBool::new(false), 100);
    std::thread::scope(|scope| {
        let until = Until(&stop);
        for (seed, writer) in writers.iter().enumerate() {
            let stop = &stop;
            scope.spawn(move || writer.run(seed as u64, stop, true));
        }
        let watchers: Vec<_> = NAMES
            .iter()
            .zip(&writers)
            .map(|(name, writer)| {
                let (path, stop) = (there.join(name), &stop);
                scope.spawn(move || watch(&path, writer, stop))
            })
            .collect();
        let histories = scope.spawn(|| histories(&area, &names, &lost, &stop));
        scope.spawn(|| probe.run(&probe_dir, &stop));
        let goes_on = |_: &Engines| {
            for watcher in &watchers {
                assert!(!watcher.is_finished(), "a reader has failed");
            }
            await_syncs(&writers, 3);
            probe.await_steps(3);
        };
        let mut losses = 0;
        goes_on(&engines);
        let status = slabfs(["status", &engines.cluster.mnt(0).display().to_string()]).ok();
        let text = status.text();
        assert!(text.contains("3 of 3 answer"), "{text}");
        for (round, fault) in faults.enumerate() {
            // Programs on the mount that is killed or cut off.
            let here = engines.cluster.at(VICTIM, "victim");
            let known: Vec<_> = std::mem::take(&mut *victims.lock().expect("the lock"));
            for (name, before) in NAMES.iter().zip(&known) {
                let path = engines.cluster.at(1, "victim").join(name);
                check(&path, &file::open(&path), before);
            }
            let running: Vec<Writer> = NAMES
                .iter()
                .map(|name| Writer::new(&here.join(name)))
                .collect();
            let pause = AtomicBool::new(false);
            std::thread::scope(|inner| {
                let paused = Until(&pause);
                for writer in &running {
                    seed += 1;
                    for region in 0..REGIONS {
                        writer.write(region).expect("written");
                    }
                    writer.sync().expect("synced");
                    let pause = &pause;
                    inner.spawn(move || writer.run(seed, pause, true));
                }
                goes_on(&engines);
                let usual = probe.take();
                lost.fetch_add(u64::from(fault.is_loss()), Ordering::SeqCst);
                engines.fault(fault, &mut random, &goes_on);
                goes_on(&engines);
                println!(
                    "round {round}: {fault:?}: the longest step took {:.1} s ({:.1} s before)",
                    probe.take().as_secs_f64(),
                    usual.as_secs_f64()
                );
                drop(paused);
            });
            let own = [&writers, &running].map(|all| all.iter().map(Writer::losses).sum::<u64>());
            let now = own[0] + probe.losses.load(Ordering::SeqCst);
            if !fault.is_loss() {
                assert_eq!(
                    now, losses,
                    "errors of programs in round {round}, {fault:?}"
                );
                assert!(
                    own[1] == 0 || fault == Fault::MountKilled,
                    "errors of the victim"
                );
            }
            losses = now;
            for (name, writer) in NAMES.iter().zip(&running) {
                if fault != Fault::MountKilled {
                    assert_eq!(writer.ended(), None, "{name} of the victim");
                }
            }
            *victims.lock().expect("the lock") = running;
            assert!(!histories.is_finished(), "histories have ended");
        }
        drop(until);
        for watcher in watchers {
            assert!(watcher.join().expect("a watcher") > 0);
        }
        println!("{} histories", histories.join().expect("histories"));
    });
    for (name, writer) in NAMES.iter().zip(&writers) {
        assert_eq!(writer.ended(), None, "{name}");
        for mount in 0..3 {
            let path = engines.cluster.at(mount, "safe").join(name);
            check(&path, &file::open(&path), writer);
        }
    }
    drop((writers, victims));
    for mount in 0..3 {
        engines.cluster.stop_mount(mount);
    }
}

/// Each kind of server is killed once, and all are restarted in order.
#[test]
fn each_kind_of_server_dies() {
    needs_root!();
    let few = ALL.into_iter().take(5);
    play(few.filter(|fault| *fault != Fault::MountKilled));
}

/// Thirty rounds, or more if there is time. `SLABFS_FAULTS` chooses some: `LeaderCut,ServerKilled`.
#[test]
#[ignore = "takes minutes: tools/soak runs it"]
fn thirty_rounds() {
    needs_root!();
    let chosen = std::env::var("SLABFS_FAULTS").unwrap_or_default();
    let is_chosen = |fault: &&Fault| {
        let mut names = chosen.split(',');
        chosen.is_empty() || names.any(|name| name == format!("{fault:?}"))
    };
    let faults: Vec<Fault> = ALL.iter().filter(is_chosen).copied().collect();
    let (begun, time) = (Instant::now(), soak::time().unwrap_or_default());
    let mut rounds = 0..;
    let more = std::iter::from_fn(|| {
        let round = rounds.next()?;
        (round < ROUNDS || begun.elapsed() < time).then(|| faults[round % faults.len()])
    });
    play(more);
}
