//! Worker threads for requests that would block a session thread.
//!
//! A session thread submits a job, which owns its reply, and takes the next request from the kernel. The queue of
//! `workers` is bounded: when it is full, the session thread waits, and with it the programs. That cannot deadlock,
//! because its jobs never wait for the kernel or for another job. Invalidations, which do wait for the kernel, have a
//! pool of their own (`inval.rs`) and submit a job when they are done. Its queue is unbounded: a session thread that
//! waited there could be the one that the kernel needs to make progress.
//!
//! Threads are started when there is work and none is idle, up to the limit, and end when they have been idle for some
//! seconds: there may have been thousands of reads that waited. A job that panics is logged
//! and affects no other: unwinding drops its reply, which answers `EIO`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};

use super::guard::guarded;

/// A job, which owns all it needs.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Queued jobs per worker before submitters must wait.
const QUEUE_PER_WORKER: usize = 64;

/// An idle thread ends after this time.
const IDLE: Duration = Duration::from_secs(10);

/// The pool; see the module documentation.
pub(super) struct Pool {
    queue: Arc<Queue>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    limit: usize,
    name: &'static str,
    /// The processors its threads may run on. A new thread would inherit those of the session thread that starts it,
    /// which may be bound to a single one (`own_processors`).
    processors: Option<CpuSet>,
}

struct Queue {
    state: Mutex<State>,
    work: Condvar,
    room: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    ending: bool,
}

impl Pool {
    /// A pool of at most `limit` threads named `name`, with a bounded queue; no thread is started yet.
    pub(super) fn new(name: &'static str, limit: usize) -> Pool {
        Pool::with_capacity(name, limit, limit.max(1) * QUEUE_PER_WORKER)
    }

    /// The same with an unbounded queue.
    pub(super) fn unbounded(name: &'static str, limit: usize) -> Pool {
        Pool::with_capacity(name, limit, usize::MAX)
    }

    fn with_capacity(name: &'static str, limit: usize, capacity: usize) -> Pool {
        Pool {
            queue: Arc::new(Queue {
                state: Mutex::new(State::default()),
                work: Condvar::new(),
                room: Condvar::new(),
                capacity,
            }),
            workers: Mutex::new(Vec::new()),
            limit: limit.max(1),
            name,
            processors: processors(),
        }
    }

    /// Queues a job; waits while the queue is full. After [`Pool::stop`] the job runs on the caller's thread.
    pub(super) fn submit(&self, job: Job) {
        let mut state = self.queue.state.lock();
        while state.jobs.len() >= self.queue.capacity && !state.ending {
            self.queue.room.wait(&mut state);
        }
        if state.ending {
            drop(state);
            guarded(self.name, job);
            return;
        }
        state.jobs.push_back(job);
        let more = state.idle < state.jobs.len() && state.threads < self.limit;
        if more {
            state.threads += 1;
        }
        drop(state);
        self.queue.work.notify_one();
        if more && let Err(error) = self.start_worker() {
            self.do_without_worker(&error);
        }
    }

    fn start_worker(&self) -> io::Result<()> {
        let queue = self.queue.clone();
        let (name, processors) = (self.name, self.processors);
        let worker = std::thread::Builder::new()
            .name(name.to_string())
            .spawn(move || {
                if let Some(processors) = processors {
                    run_on(&processors, name);
                }
                queue.work(name)
            })?;
        let mut workers = self.workers.lock();
        workers.retain(|worker| !worker.is_finished());
        workers.push(worker);
        Ok(())
    }

    /// Handles a failed thread start: the other workers take the job, or, if there are none, this thread does.
    fn do_without_worker(&self, error: &io::Error) {
        tracing::warn!(%error, "no more threads for {}", self.name);
        let mut state = self.queue.state.lock();
        state.threads -= 1;
        if state.threads > 0 {
            return;
        }
        while let Some(job) = state.jobs.pop_front() {
            drop(state);
            guarded(self.name, job);
            state = self.queue.state.lock();
        }
    }

    /// Finishes all queued jobs, then ends and joins the threads.
    pub(super) fn stop(&self) {
        self.queue.state.lock().ending = true;
        self.queue.work.notify_all();
        self.queue.room.notify_all();
        let workers = std::mem::take(&mut *self.workers.lock());
        for worker in workers {
            if worker.join().is_err() {
                tracing::error!("a thread of {} panicked", self.name);
            }
        }
    }
}

/// The processors that the calling thread may run on; `None` if they cannot be read.
fn processors() -> Option<CpuSet> {
    sched_getaffinity(Pid::from_raw(0))
        .inspect_err(|error| tracing::debug!(%error, "cannot read the processors of a thread"))
        .ok()
}

/// Restricts the calling thread to `processors`.
fn run_on(processors: &CpuSet, name: &str) {
    if let Err(error) = sched_setaffinity(Pid::from_raw(0), processors) {
        tracing::debug!(%error, "a thread of {name} stays where it was started");
    }
}

impl Queue {
    fn work(&self, name: &'static str) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                self.room.notify_one();
                guarded(name, job);
                state = self.state.lock();
            } else if state.ending {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                let timed_out = self.work.wait_for(&mut state, IDLE).timed_out();
                state.idle -= 1;
                if timed_out && state.jobs.is_empty() && !state.ending {
                    state.threads -= 1;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn every_submitted_job_is_done_before_stop_returns() {
        let pool = Pool::new("test-pool", 3);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let done = done.clone();
            pool.submit(Box::new(move || {
                done.fetch_add(1, Ordering::SeqCst);
            }));
        }
        pool.stop();
        assert_eq!(done.load(Ordering::SeqCst), 1000);
        let late = done.clone();
        pool.submit(Box::new(move || {
            late.fetch_add(1, Ordering::SeqCst);
        }));
        assert_eq!(done.load(Ordering::SeqCst), 1001);
    }

    #[test]
    fn jobs_that_wait_for_each_other_find_threads() {
        let pool = Pool::new("test-pool", 2);
        let (send, receive) = mpsc::channel();
        let (answer, answered) = mpsc::channel();
        pool.submit(Box::new(move || {
            answer.send(receive.recv().unwrap()).unwrap()
        }));
        pool.submit(Box::new(move || send.send(7).unwrap()));
        assert_eq!(answered.recv().unwrap(), 7);
        pool.stop();
    }

    #[test]
    fn threads_run_where_the_pool_was_made_and_not_where_they_were_started() {
        let pool = Arc::new(Pool::new("test-pool", 1));
        let all = processors().unwrap();
        let mut one = CpuSet::new();
        let first = (0..CpuSet::count()).find(|&cpu| all.is_set(cpu) == Ok(true));
        one.set(first.unwrap()).unwrap();
        let (send, receive) = mpsc::channel();
        let of = pool.clone();
        let tied = std::thread::spawn(move || {
            run_on(&one, "test");
            of.submit(Box::new(move || send.send(processors()).unwrap()));
        });
        tied.join().unwrap();
        assert_eq!(receive.recv().unwrap(), Some(all));
        pool.stop();
    }

    #[test]
    fn a_panic_costs_one_job() {
        let pool = Pool::new("test-pool", 1);
        let (send, receive) = mpsc::channel();
        pool.submit(Box::new(|| panic!("on purpose")));
        pool.submit(Box::new(move || send.send(()).unwrap()));
        receive.recv().unwrap();
        pool.stop();
    }
}
