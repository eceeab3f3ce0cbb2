//! A discrete simulation: processes that handle one request after the other, and messages between them.
//!
//! Each message arrives at a process at a time, waits until those that arrived before are done, takes its time, and leads to
//! the next step of what sent it. A log is a process of its own kind: all commits that wait for it go to etcd in one transaction.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::costs::{COSTS, Seconds};

/// The number of a process.
pub(crate) type Process = usize;

/// What a process has done.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    pub(crate) messages: u64,
    pub(crate) bytes: f64,
    pub(crate) busy: Seconds,
    free_at: Seconds,
}

/// What happens at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// A request of a program arrives.
    Arrives { at: Process, request: Request },
    /// A request is done, and its commit has to be in a log.
    Handled { log: usize, program: usize },
    /// A transaction of a log is done.
    Logged { log: usize },
    /// The reply to a program arrives.
    Replied { program: usize },
}

/// A request of a program.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Request {
    pub(crate) program: usize,
    pub(crate) time: Seconds,
    pub(crate) bytes: f64,
    /// The log that has to have it before the reply leaves.
    pub(crate) log: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Event {
    time: Seconds,
    number: u64,
    what: What,
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Event) -> Ordering {
        // The heap has its largest in front.
        let by_time = other.time.total_cmp(&self.time);
        by_time.then(other.number.cmp(&self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Commits that wait for a log, and those in its transaction.
#[derive(Debug, Clone, Default)]
struct Log {
    waiting: Vec<usize>,
    written: Vec<usize>,
    transactions: u64,
}

/// The cluster.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) processes: Vec<Done>,
    logs: Vec<Log>,
    etcd: Process,
    events: BinaryHeap<Event>,
    number: u64,
    pub(crate) now: Seconds,
}

impl Engine {
    /// Processes, some logs in the etcd that is process `etcd`.
    pub(crate) fn new(processes: usize, logs: usize, etcd: Process) -> Engine {
        Engine {
            processes: vec![Done::default(); processes],
            logs: vec![Log::default(); logs],
            etcd,
            events: BinaryHeap::new(),
            number: 0,
            now: 0.0,
        }
    }

    fn push(&mut self, time: Seconds, what: What) {
        self.number += 1;
        let number = self.number;
        self.events.push(Event { time, number, what });
    }

    /// Sends a request to a process, after `wait`.
    pub(crate) fn send(&mut self, at: Process, request: Request, wait: Seconds) {
        let time = self.now + wait + COSTS.latency;
        self.push(time, What::Arrives { at, request });
    }

    fn handle(&mut self, at: Process, time: Seconds, bytes: f64) -> Seconds {
        let done = &mut self.processes[at];
        done.messages += 1;
        done.bytes += bytes;
        done.busy += time;
        done.free_at = done.free_at.max(self.now) + time;
        done.free_at
    }

    /// Goes on until the next program has its reply; `None` when nothing is left.
    pub(crate) fn next_reply(&mut self) -> Option<usize> {
        while let Some(Event { time, what, .. }) = self.events.pop() {
            self.now = time;
            match what {
                What::Replied { program } => return Some(program),
                What::Arrives { at, request } => {
                    let end = self.handle(at, request.time, request.bytes);
                    match request.log {
                        None => self.push(
                            end + COSTS.latency,
                            What::Replied {
                                program: request.program,
                            },
                        ),
                        Some(log) => {
                            let program = request.program;
                            self.push(end, What::Handled { log, program });
                        }
                    }
                }
                What::Handled { log, program } => {
                    self.logs[log].waiting.push(program);
                    self.write(log);
                }
                What::Logged { log } => {
                    let written = std::mem::take(&mut self.logs[log].written);
                    for program in written {
                        self.push(time + COSTS.latency, What::Replied { program });
                    }
                    self.write(log);
                }
            }
        }
        None
    }

    /// Starts the next transaction of a log, if none is under way.
    fn write(&mut self, log: usize) {
        let one = &mut self.logs[log];
        if !one.written.is_empty() || one.waiting.is_empty() {
            return;
        }
        one.written = std::mem::take(&mut one.waiting);
        one.transactions += 1;
        let bytes = one.written.len() as f64 * COSTS.record;
        let time = COSTS.transaction + bytes / COSTS.etcd_bytes;
        let end = self.handle(self.etcd, time, bytes);
        self.push(end + 2.0 * COSTS.latency, What::Logged { log });
    }

    /// Transactions of all logs.
    pub(crate) fn transactions(&self) -> u64 {
        self.logs.iter().map(|log| log.transactions).sum()
    }
}
