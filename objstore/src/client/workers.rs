//! Threads that help a caller with parts of its work.
//!
//! The caller works as well, so it makes progress however busy the threads are. It returns only when all is done: the
//! work may borrow from the caller.

use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
};

use parking_lot::{Condvar, Mutex};

use crate::interrupt::{self, Interrupt};

/// The threads; joined when dropped.
#[derive(Debug)]
pub(super) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    tickets: VecDeque<Arc<Ticket>>,
    stop: bool,
}

/// One caller's work: `job(0)` to `job(count - 1)`, each to be run once.
struct Ticket {
    job: *const (dyn Fn(usize) + Sync),
    count: usize,
    next: AtomicUsize,
    finished: Mutex<Finished>,
    all: Condvar,
    /// What may end the caller's call.
    interrupt: Option<Interrupt>,
}

#[derive(Default)]
struct Finished {
    count: usize,
    panic: Option<Box<dyn Any + Send>>,
}

// SAFETY: `job` points to something `Sync`, so it may be called from any thread; `Ticket::work` shows that it is
// still valid when it is called. The other fields are Send and Sync.
unsafe impl Send for Ticket {}
// SAFETY: as above; a shared ticket is changed only through its atomics and locks.
unsafe impl Sync for Ticket {}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket")
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Ticket {
    /// Runs jobs of this ticket until none is left unstarted.
    fn work(&self) {
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.count {
                return;
            }
            // SAFETY: `Workers::run` returns, and so the job may be dropped, only when `finished.count` is
            // `self.count`. Number `i` was taken once, here, and is counted below, after the call: until then `run`
            // waits and the job stays valid.
            let job = unsafe { &*self.job };
            let result = catch_unwind(AssertUnwindSafe(|| job(i)));
            let mut finished = self.finished.lock();
            finished.count += 1;
            if let Err(panic) = result {
                finished.panic = Some(panic);
            }
            if finished.count == self.count {
                self.all.notify_all();
            }
        }
    }
}

impl Workers {
    /// Starts up to `count` threads; with fewer, or none, callers do more themselves.
    pub(super) fn start(count: usize) -> Workers {
        let queue = Arc::new(Queue::default());
        let mut threads = Vec::with_capacity(count);
        for _ in 0..count {
            let of = queue.clone();
            match thread::Builder::new()
                .name("slabfs-fanout".into())
                .spawn(move || of.serve())
            {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    tracing::warn!("started {} of {count} transfer threads: {e}", threads.len());
                    break;
                }
            }
        }
        Workers { queue, threads }
    }

    /// Runs `job(0)` to `job(count - 1)`, concurrently as far as threads are free, and returns when all have ended. A
    /// panic of a job is resumed in the caller.
    pub(super) fn run(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        // SAFETY: only the lifetime is changed, so that the pointer can be stored; `Ticket::work` shows that it is
        // not used after `run` returns.
        let job = unsafe {
            std::mem::transmute::<&(dyn Fn(usize) + Sync), &'static (dyn Fn(usize) + Sync)>(job)
        };
        let ticket = Arc::new(Ticket {
            job,
            count,
            next: AtomicUsize::new(0),
            finished: Mutex::default(),
            all: Condvar::new(),
            interrupt: interrupt::current(),
        });
        let helpers = count.saturating_sub(1).min(self.threads.len());
        if helpers > 0 {
            let mut state = self.queue.state.lock();
            state
                .tickets
                .extend(std::iter::repeat_n(&ticket, helpers).cloned());
            drop(state);
            for _ in 0..helpers {
                self.queue.ready.notify_one();
            }
        }
        ticket.work();
        let mut finished = ticket.finished.lock();
        while finished.count < count {
            interrupt::wait(&ticket.all, &mut finished);
        }
        if let Some(panic) = finished.panic.take() {
            drop(finished);
            resume_unwind(panic);
        }
    }
}

impl Queue {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(ticket) = state.tickets.pop_front() {
                drop(state);
                match &ticket.interrupt {
                    Some(interrupt) => interrupt.help(|| ticket.work()),
                    None => ticket.work(),
                }
                state = self.state.lock();
            } else if state.stop {
                return;
            } else {
                self.ready.wait(&mut state);
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.state.lock().stop = true;
        self.queue.ready.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a transfer thread panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn everything_runs_once() {
        for threads in [0, 1, 3] {
            let workers = Workers::start(threads);
            for count in [0, 1, 2, 7, 100] {
                let hits: Vec<_> = (0..count).map(|_| AtomicUsize::new(0)).collect();
                workers.run(count, &|i| {
                    hits[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn at_the_same_time_and_from_many_callers() {
        let workers = Workers::start(3);
        // Would deadlock if the jobs ran one after the other.
        let together = Barrier::new(4);
        workers.run(4, &|_| {
            together.wait();
        });
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for _ in 0..100 {
                        let sum = AtomicUsize::new(0);
                        workers.run(10, &|i| {
                            sum.fetch_add(i, Ordering::Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 45);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_after_all_is_done() {
        let workers = Workers::start(2);
        let done = AtomicUsize::new(0);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            workers.run(5, &|i| {
                assert_ne!(i, 2);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }));
        assert!(panic.is_err());
        assert_eq!(done.into_inner(), 4);
    }
}
