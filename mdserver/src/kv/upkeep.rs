//! The store's two threads.
//!
//! **upkeep** first opens and compares the index; then it moves pending changes into the index, writes checkpoints and
//! repairs the index. No other thread changes the index. During a dump it changes the index a part at a time. **sync**
//! syncs the journal at every interval and creates the next journal file in advance; it is a separate thread because a
//! dump may take longer than an interval.

use super::KvError;
use super::engine::Engine;
use super::index::Fault;
use std::time::{Duration, Instant};

/// The shortest time between a failed repair and the next attempt.
const REPAIR_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time between a failure to open and compare the index and the next attempt.
const COMPARE_PAUSE: Duration = Duration::from_secs(10);

/// Notifies waiters when the thread ends, also by a panic.
struct Ended<'a>(&'a Engine);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.signals.ended();
    }
}

/// Logs an error once, and not again at every interval at which it repeats.
#[derive(Default)]
struct Log(Option<String>);

impl Log {
    fn note(&mut self, what: &str, result: Result<(), KvError>) {
        match result {
            Ok(()) => self.0 = None,
            // Logged by the sync that failed.
            Err(KvError::Poisoned { .. }) => {}
            Err(error) => {
                let text = format!("{what}: {error}");
                if self.0.as_ref() != Some(&text) {
                    tracing::error!("{text}");
                    self.0 = Some(text);
                }
            }
        }
    }
}

/// Opens and compares the index while it is not in use.
#[derive(Default)]
struct Comparing {
    failed: Option<Instant>,
    log: Log,
}

impl Comparing {
    fn round(&mut self, engine: &Engine) {
        let tried = self.failed.is_some_and(|at| at.elapsed() < COMPARE_PAUSE);
        if engine.is_indexed() || engine.is_closed() || tried {
            return;
        }
        let result = engine.compare();
        self.failed = result.is_err().then(Instant::now);
        engine.signals.stuck(|stuck| {
            stuck.comparing = result.clone().err();
            stuck.moving = result.clone().err();
        });
        if let Err(KvError::Invalid(detail)) = &result {
            // The checkpoint itself is unreadable: the repair may find an older one.
            engine.signals.report(Fault(detail.clone()));
        }
        if !matches!(result, Err(KvError::Closed)) {
            let what = "the index cannot be used, and lookups read the checkpoint";
            self.log.note(what, result);
        }
    }
}

/// Lowers the priority of the calling thread below the threads that answer requests: moving rows into the index costs
/// as much as committing them, and can wait until a processor is free. Commits that are too far ahead block, so the
/// thread never falls behind permanently. With 10 instead of 19, opening objects was a third slower while rows were
/// moved.
fn lower_priority() {
    const BY: i32 = 19;
    // In Linux the nice value is per thread. A failure has no other effect.
    let set = rustix::process::getpriority_process(None)
        .and_then(|nice| rustix::process::setpriority_process(None, nice + BY));
    if let Err(error) = set {
        tracing::debug!(%error, "the upkeep of the key-value store keeps its priority");
    }
}

/// The upkeep thread.
pub(super) fn run(engine: &Engine) {
    lower_priority();
    let _ended = Ended(engine);
    let (mut repairs, mut moves, mut checkpoints) =
        (Log::default(), Log::default(), Log::default());
    let mut comparing = Comparing::default();
    comparing.round(engine);
    let mut failed: Option<Instant> = None;
    let mut late = false;
    let mut appended = None;
    loop {
        let job = engine
            .signals
            .wait(Instant::now() + engine.options.sync_interval);
        if job.stop {
            return;
        }
        if let Some(fault) = job.repair {
            if failed.is_none_or(|at| at.elapsed() > REPAIR_PAUSE) {
                tracing::error!(%fault, "the index failed and is repaired from checkpoint and journal");
                let result = engine.repair();
                failed = result.is_err().then(Instant::now);
                repairs.note("the index cannot be repaired", result);
                comparing.failed = None;
            }
            engine.signals.repaired();
        }
        comparing.round(engine);
        if !engine.is_indexed() && job.checkpoint.is_none() {
            continue;
        }
        let quiet = job.beat && appended == Some(engine.appended());
        if job.beat {
            appended = Some(engine.appended());
        }
        if quiet || (engine.much_pending() && (job.beat || !engine.signals.is_stuck())) {
            let moved = engine.move_to_index().map(|_| ());
            if let Err(error) = &moved {
                engine
                    .signals
                    .stuck(|stuck| stuck.moving = Some(error.clone()));
            }
            moves.note(
                "changes stay in the journal and cannot be moved into the index",
                moved,
            );
        }
        if job.checkpoint.is_some() || engine.checkpoint_due() || (late && job.beat) {
            let written = engine.write_checkpoint().map(|_| ());
            late = written.is_err();
            if let Err(error) = &written {
                engine.put_off_checkpoint();
                engine
                    .signals
                    .stuck(|stuck| stuck.dumping = Some(error.clone()));
            }
            if let Some(number) = job.checkpoint {
                engine.signals.checkpoint_done(number, written.clone());
            }
            checkpoints.note(
                "no checkpoint can be written and the journal grows",
                written,
            );
        }
    }
}

/// The sync thread.
pub(super) fn run_sync(engine: &Engine) {
    let (mut syncs, mut spares) = (Log::default(), Log::default());
    while let Some(spare) = engine.signals.wait_sync(engine.options.sync_interval) {
        if spare {
            spares.note(
                "the next journal file cannot be created and the current one keeps growing",
                engine.make_spare(),
            );
        } else {
            syncs.note("the journal cannot be synced", engine.sync().map(|_| ()));
        }
    }
}
