//! One run: workers as processes on the mounts of a cluster, and the check of their history.
//!
//! Workers that fail, or make no progress, are part of the result: the others are then killed, and unfinished
//! operations count as perhaps done. All histories are stored as files in `$SLABFS_HISTORY_DIR`, if that is
//! set; else those of failed tests, in the directory for temporary files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::check::{Promise, Violation, check};
use super::log;
use super::op::{Answer, NEVER, Op};
use super::work::{self, Task, Workload};
use crate::{Cluster, Service, poll};

/// The parameters of a run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    /// The workload.
    pub workload: Workload,
    /// The promise of the mounts, to which the workers adapt.
    pub promise: Promise,
    /// The number of mounts, from the first on.
    pub mounts: u32,
    /// The number of workers.
    pub workers: u32,
    /// The approximate number of operations of each worker.
    pub operations: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    run: Run,
    name: String,
    /// All operations.
    pub ops: Vec<Op>,
    /// Violations in them.
    pub violations: Vec<Violation>,
    /// Failures of workers.
    failures: Vec<String>,
    place: Option<PathBuf>,
}

/// Workers hang if none does anything for this time: twice the time after which slabfs gives an operation up.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Runs it on a cluster with that many mounts.
///
/// # Panics If the workers cannot be started.
pub fn run(cluster: &Cluster, run: Run) -> Outcome {
    let mounts: Vec<PathBuf> = (0..run.mounts).map(|i| cluster.mnt(i as usize)).collect();
    run_on(cluster.area().path(), &mounts, run)
}

/// Runs it on these mounts; `area` is a directory for its own files.
///
/// # Panics If the workers cannot be started.
pub fn run_on(area: &Path, mounts: &[PathBuf], run: Run) -> Outcome {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::SeqCst);
    let dir = area.join(format!("h{number}"));
    std::fs::create_dir_all(&dir).expect("a directory");
    let name = format!("{:?}{number}", run.workload).to_lowercase();
    work::prepare(run.workload, &mounts[0].join(&name), run.seed);
    work::pipes(&dir, run.workers);
    let tasks: Vec<Task> = (0..run.workers)
        .map(|process| Task {
            process,
            processes: run.workers,
            mounts: run.mounts,
            object: mounts[process as usize % mounts.len()].join(&name),
            workload: run.workload,
            promise: run.promise,
            operations: run.operations,
            seed: run.seed,
            dir: dir.clone(),
        })
        .collect();
    let failures = play(&dir, &tasks);
    let mut ops = Vec::new();
    for task in &tasks {
        let log = dir.join(format!("log{}", task.process));
        let read = log::read(&log, task.process, task.process % run.mounts);
        ops.extend(read.expect("a worker's log"));
    }
    ops.sort_by_key(|op| op.start);
    let mut outcome = Outcome {
        run,
        violations: check(&ops, run.promise),
        ops,
        failures,
        name,
        place: None,
    };
    if let Some(dir) = std::env::var_os("SLABFS_HISTORY_DIR") {
        outcome.place = Some(
            outcome
                .keep(Path::new(&dir))
                .expect("the history is stored"),
        );
    }
    outcome
}

/// Starts the workers and waits for them; returns their failures.
fn play(dir: &Path, tasks: &[Task]) -> Vec<String> {
    let program = crate::binary::profile_dir().join("history");
    let start = |task: &Task| {
        let mut command = Command::new(&program);
        command.arg(serde_json::to_string(task).expect("a task"));
        Service::start_command(dir, &format!("worker{}", task.process), command)
    };
    let workers: Vec<Service> = tasks.iter().map(start).collect();
    let written = || -> u64 {
        let len = |task: &Task| dir.join(format!("log{}", task.process)).metadata();
        tasks
            .iter()
            .map(|task| len(task).map_or(0, |meta| meta.len()))
            .sum()
    };
    let (mut last, mut since) = (written(), Instant::now());
    let mut failures = Vec::new();
    loop {
        let failed = |worker: &&Service| worker.ended().is_some_and(|status| status != 0);
        for worker in workers.iter().filter(failed) {
            let status = worker.ended().unwrap_or(0);
            failures.push(format!("a worker ended with {status}: {}", worker.log()));
        }
        if !failures.is_empty() || workers.iter().all(|worker| worker.ended().is_some()) {
            break;
        }
        let now = written();
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > STANDSTILL {
            failures.push(format!("no worker makes progress\n{}", stacks(&workers)));
            break;
        }
        // Between two checks, not instead of one.
        std::thread::sleep(Duration::from_millis(10));
    }
    for worker in workers.iter().filter(|worker| worker.ended().is_none()) {
        worker.signal(nix::sys::signal::Signal::SIGKILL);
        // A worker that hangs in the kernel does not end before its mount does.
        let _ = poll::until_or(Duration::from_secs(5), || worker.ended());
        if worker.ended().is_none() {
            failures.push(format!("worker {} cannot be killed", worker.pid()));
        }
    }
    failures
}

/// The kernel stack of each worker, as far as it is readable.
fn stacks(workers: &[Service]) -> String {
    let living = workers.iter().filter(|worker| worker.ended().is_none());
    living
        .map(|worker| {
            let said = |name: &str| {
                let path = format!("/proc/{}/{name}", worker.pid());
                std::fs::read_to_string(path).unwrap_or_default()
            };
            format!(
                "process {}: {}\n{}",
                worker.pid(),
                said("wchan"),
                said("stack")
            )
        })
        .collect()
}

impl Outcome {
    /// Operations that failed or never returned.
    pub fn failed(&self) -> Vec<&Op> {
        self.ops.iter().filter(|op| op.is_doubtful()).collect()
    }

    /// Operations that took longer than this.
    pub fn longer_than(&self, limit: Duration) -> Vec<&Op> {
        let took = |op: &&Op| op.end == NEVER || u128::from(op.end - op.start) > limit.as_nanos();
        self.ops.iter().filter(took).collect()
    }

    /// Whether the history has no violation, and no worker and no operation failed.
    pub fn is_fine(&self) -> bool {
        self.violations.is_empty() && self.failures.is_empty() && self.failed().is_empty()
    }

    /// # Panics If it is not fine.
    #[track_caller]
    pub fn expect_fine(&self) {
        assert!(self.is_fine(), "{}", self.report());
    }

    /// # Panics If a worker or an operation failed; the history may have violations.
    #[track_caller]
    pub fn expect_no_failures(&self) {
        assert!(
            self.failures.is_empty() && self.failed().is_empty(),
            "{}",
            self.report()
        );
    }

    /// # Panics If the history has no violation.
    #[track_caller]
    pub fn expect_violations(&self) {
        assert!(self.failures.is_empty(), "{}", self.report());
        assert!(
            !self.violations.is_empty(),
            "no violation was found in {self}"
        );
    }

    /// A report; its history is stored.
    pub fn report(&self) -> String {
        let place = match &self.place {
            Some(place) => Ok(place.clone()),
            None => self.keep(&std::env::temp_dir()),
        };
        match place {
            Ok(place) => format!("{self}the history: {}", place.display()),
            Err(error) => format!("{self}the history is not stored: {error}"),
        }
    }

    fn keep(&self, dir: &Path) -> std::io::Result<PathBuf> {
        let (name, seed) = (&self.name, self.run.seed);
        let place = dir.join(format!(
            "history-{}-{name}-{seed}.jsonl",
            std::process::id()
        ));
        std::fs::create_dir_all(dir)?;
        log::keep(&place, &self.ops)?;
        Ok(place)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (number, seed) = (self.ops.len(), self.run.seed);
        writeln!(f, "{:?}", self.run)?;
        writeln!(
            f,
            "{number} operations; SLABFS_TEST_SEED={seed} for the same choices"
        )?;
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        for violation in &self.violations {
            write!(f, "{violation}")?;
        }
        for op in self.failed().iter().take(20) {
            let what = match &op.answer {
                Answer::Unknown(what) => what.as_str(),
                _ => "no answer",
            };
            writeln!(
                f,
                "  process {} mount {}: {:?}: {what}",
                op.process, op.mount, op.call
            )?;
        }
        Ok(())
    }
}
