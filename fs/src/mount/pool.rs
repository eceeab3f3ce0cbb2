//! Worker threads for requests that would keep a session thread waiting.
//!
//! A session thread hands over a job, which owns its reply, and takes the next request from the kernel.
//! The queue is bounded: when it is full, the session thread waits, and with it the programs. That cannot
//! lock up, because a job never waits for the kernel or for another job: invalidations, which do wait for
//! the kernel, have a pool of their own (`inval.rs`) and hand a job back when they are done. Their queue
//! has no bound: a session thread that waited there could be the one the kernel needs to go on.
//!
//! Threads are started when there is work and no idle one, up to the limit, and stay. A job that panics is
//! logged and costs nothing but itself: its reply is dropped on the way out, which answers `EIO`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use parking_lot::{Condvar, Mutex};

use super::guard::guarded;

/// A piece of work that owns all it needs.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Jobs that may wait for each worker before those who bring more must wait themselves.
const QUEUE_PER_WORKER: usize = 64;

/// The pool; see the module's head.
pub(super) struct Pool {
    queue: Arc<Queue>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    limit: usize,
    name: &'static str,
    /// Where its threads may run: a session thread that starts one may stay on one processor
    /// (`own_processors`).
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

    /// The same with a queue that takes everything at once.
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

    /// Hands over a job; waits while the queue is full. After [`Pool::stop`] the job runs here and now.
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
        self.workers.lock().push(worker);
        Ok(())
    }

    /// No thread could be had: the other workers take the job, and if there are none, this one does.
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

    /// Finishes what was handed over, then ends and joins the threads.
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

/// Where the calling thread may run; `None` if it cannot be told.
fn processors() -> Option<CpuSet> {
    sched_getaffinity(Pid::from_raw(0))
        .inspect_err(|error| tracing::debug!(%error, "no processors of a thread can be told"))
        .ok()
}

/// Lets the calling thread run there.
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
                self.work.wait(&mut state);
                state.idle -= 1;
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
    fn everything_handed_over_is_done_before_stop_returns() {
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
