//! Signals between requests and the store's two threads.

use super::KvError;
use super::index::Fault;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The shared state, its condition variables, and the counters that are read without its lock.
#[derive(Debug)]
pub(super) struct Signals {
    board: Mutex<Board>,
    /// Wakes the upkeep thread.
    upkeep: Condvar,
    /// Wakes the sync thread.
    sync: Condvar,
    /// Wakes callers that wait for a result.
    changed: Condvar,
    nudged: AtomicBool,
    checkpoint_at: AtomicU64,
    overdue_at: AtomicU64,
}

impl Default for Signals {
    fn default() -> Self {
        Self {
            board: Mutex::default(),
            upkeep: Condvar::new(),
            sync: Condvar::new(),
            changed: Condvar::new(),
            nudged: AtomicBool::new(false),
            checkpoint_at: AtomicU64::new(u64::MAX),
            overdue_at: AtomicU64::new(u64::MAX),
        }
    }
}

#[derive(Debug, Default)]
struct Board {
    stop: bool,
    /// The upkeep thread has ended; no caller may wait for it any more.
    ended: bool,
    nudge: bool,
    spare: bool,
    fault: Option<Fault>,
    repairs: u64,
    asked: u64,
    done: u64,
    result: Option<Result<(), KvError>>,
    stuck: Stuck,
}

/// Why the store makes no progress.
#[derive(Debug, Default)]
pub(super) struct Stuck {
    /// Why nothing can be moved into the index.
    pub(super) moving: Option<KvError>,
    /// Why no checkpoint can be written.
    pub(super) dumping: Option<KvError>,
    /// Why the index cannot be opened and compared.
    pub(super) comparing: Option<KvError>,
    /// Why the journal cannot be synced any more.
    pub(super) syncing: Option<KvError>,
}

/// A request to the upkeep thread.
#[derive(Debug)]
pub(super) struct Job {
    /// End.
    pub(super) stop: bool,
    /// Repair the index.
    pub(super) repair: Option<Fault>,
    /// Write a checkpoint, for all requests up to this number.
    pub(super) checkpoint: Option<u64>,
    /// The interval has elapsed.
    pub(super) beat: bool,
}

impl Signals {
    /// Waits for a request, at most until `beat`.
    pub(super) fn wait(&self, beat: Instant) -> Job {
        let mut board = self.board.lock();
        let mut late = false;
        while !(board.stop
            || board.nudge
            || board.fault.is_some()
            || board.asked > board.done
            || late)
        {
            late = self.upkeep.wait_until(&mut board, beat).timed_out();
        }
        board.nudge = false;
        self.nudged.store(false, Ordering::Relaxed);
        Job {
            stop: board.stop,
            repair: board.fault.take(),
            checkpoint: (board.asked > board.done).then_some(board.asked),
            beat: Instant::now() >= beat,
        }
    }

    /// Waits for the sync thread's next job: true to create a journal file, false to sync, `None` to end.
    pub(super) fn wait_sync(&self, interval: Duration) -> Option<bool> {
        let mut board = self.board.lock();
        if !board.stop && !board.spare {
            self.sync.wait_for(&mut board, interval);
        }
        if board.stop {
            None
        } else {
            Some(std::mem::take(&mut board.spare))
        }
    }

    /// Wakes the upkeep thread: there may be work.
    pub(super) fn nudge(&self) {
        if !self.nudged.swap(true, Ordering::Relaxed) {
            self.board.lock().nudge = true;
            self.upkeep.notify_one();
        }
    }

    /// Requests a new journal file.
    pub(super) fn ask_spare(&self) {
        self.board.lock().spare = true;
        self.sync.notify_one();
    }

    /// Ends both threads.
    pub(super) fn stop(&self) {
        self.board.lock().stop = true;
        self.upkeep.notify_all();
        self.sync.notify_all();
    }

    /// Notes that the upkeep thread has ended.
    pub(super) fn ended(&self) {
        self.board.lock().ended = true;
        self.changed.notify_all();
    }

    /// Requests a checkpoint; returns the number of the request.
    pub(super) fn ask_checkpoint(&self) -> u64 {
        let mut board = self.board.lock();
        board.asked += 1;
        self.upkeep.notify_one();
        board.asked
    }

    /// Requests a checkpoint and waits for it.
    pub(super) fn checkpoint(&self) -> Result<(), KvError> {
        let number = self.ask_checkpoint();
        let mut board = self.board.lock();
        while board.done < number {
            self.wait_changed(&mut board)?;
        }
        board.result.clone().unwrap_or(Ok(()))
    }

    /// Waits at most `patience` for the checkpoint of request `number`; false if it takes longer.
    pub(super) fn wait_for_checkpoint(
        &self,
        number: u64,
        patience: Duration,
    ) -> Result<bool, KvError> {
        let until = Instant::now() + patience;
        let mut board = self.board.lock();
        while board.done < number {
            if board.ended || board.stop {
                return Err(KvError::Closed);
            }
            if self.changed.wait_until(&mut board, until).timed_out() {
                return Ok(board.done >= number);
            }
        }
        board.result.clone().unwrap_or(Ok(())).map(|()| true)
    }

    /// Notes the result of the checkpoint for all requests up to `number`.
    pub(super) fn checkpoint_done(&self, number: u64, result: Result<(), KvError>) {
        let mut board = self.board.lock();
        board.done = number;
        board.result = Some(result);
        self.changed.notify_all();
    }

    /// The journal length at which the next checkpoint is due.
    pub(super) fn checkpoint_at(&self) -> u64 {
        self.checkpoint_at.load(Ordering::Relaxed)
    }

    /// The journal length at which commits wait for the checkpoint.
    pub(super) fn overdue_at(&self) -> u64 {
        self.overdue_at.load(Ordering::Relaxed)
    }

    /// Sets [`Signals::checkpoint_at`] and [`Signals::overdue_at`], and wakes waiting commits.
    pub(super) fn set_checkpoint_at(&self, due: u64, overdue: u64) {
        self.checkpoint_at.store(due, Ordering::Relaxed);
        self.overdue_at.store(overdue, Ordering::Relaxed);
        let _board = self.board.lock();
        self.changed.notify_all();
    }

    /// How many repairs have been tried.
    pub(super) fn repairs(&self) -> u64 {
        self.board.lock().repairs
    }

    /// Reports a fault of the index.
    pub(super) fn report(&self, fault: Fault) {
        self.board.lock().fault = Some(fault);
        self.upkeep.notify_one();
    }

    /// Reports a fault seen after `repairs`, and waits for the next repair attempt.
    pub(super) fn wait_for_repair(&self, fault: &Fault, repairs: u64) -> Result<(), KvError> {
        let mut board = self.board.lock();
        if board.repairs == repairs {
            board.fault = Some(fault.clone());
            self.upkeep.notify_one();
        }
        while board.repairs == repairs {
            self.wait_changed(&mut board)?;
        }
        Ok(())
    }

    /// Notes that a repair was tried.
    pub(super) fn repaired(&self) {
        let mut board = self.board.lock();
        board.repairs += 1;
        board.fault = None;
        self.changed.notify_all();
    }

    /// Waits until `verdict` returns a result; with `nudge` it wakes the upkeep thread.
    pub(super) fn wait_until(
        &self,
        nudge: bool,
        verdict: impl Fn(&Stuck) -> Option<Result<(), KvError>>,
    ) -> Result<(), KvError> {
        let mut board = self.board.lock();
        loop {
            if let Some(result) = verdict(&board.stuck) {
                return result;
            }
            if nudge {
                board.nudge = true;
                self.upkeep.notify_one();
            }
            self.wait_changed(&mut board)?;
        }
    }

    /// Changes a reason why the upkeep thread makes no progress, and wakes waiting commits.
    pub(super) fn stuck(&self, change: impl FnOnce(&mut Stuck)) {
        change(&mut self.board.lock().stuck);
        self.changed.notify_all();
    }

    /// True if changes cannot be moved into the index.
    pub(super) fn is_stuck(&self) -> bool {
        self.board.lock().stuck.moving.is_some()
    }

    fn wait_changed(&self, board: &mut MutexGuard<'_, Board>) -> Result<(), KvError> {
        if board.ended {
            return Err(KvError::Closed);
        }
        self.changed.wait(board);
        Ok(())
    }
}
