//! Sends messages to many servers concurrently.
//!
//! Small transfers: this thread sends all remote requests, then calls the local stores, then takes the replies, so
//! the servers overlap. Large transfers and slow operations (syncs): each server's messages are one job for the
//! worker threads. The messages of one server keep their order.

use std::io::IoSlice;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use parking_lot::Mutex;
use serde::Serialize;
use slabfs_model::{ServerId, SessionId};
use smallvec::SmallVec;

use super::blank::{self, Filling};
use super::{Servers, Table, Target, Verifiers, target};
use crate::{
    error::StoreError,
    name::{ChunkForm, ChunkName},
    store::{ChunkSource, ChunkStore},
    wire::{
        Flight, Incoming, MAX_CONTROL, Pool, Until, WireError, WireResult,
        messages::{BySession, Outcome},
    },
};

/// Above this many bytes, jobs for several servers go to the worker threads.
pub(super) const MUCH: u64 = 256 << 10;

/// How many extra deadlines a slow operation may take on a server that is reachable.
const SLOW: u32 = 9;

/// Which of the caller's pieces failed, and why.
pub(super) type Failure = (usize, StoreError);

/// A request as it is sent.
pub(super) struct Request<'a> {
    pub(super) kind: u16,
    pub(super) control: Vec<u8>,
    pub(super) payload: SmallVec<[IoSlice<'a>; 8]>,
    /// More payload after that, built for this request.
    pub(super) made: Vec<u8>,
}

impl Request<'_> {
    /// A request without a payload.
    pub(super) fn bare(kind: u16, control: Vec<u8>) -> Self {
        Request {
            kind,
            control,
            payload: SmallVec::new(),
            made: Vec::new(),
        }
    }

    /// All of the payload.
    fn slices(&self) -> SmallVec<[IoSlice<'_>; 8]> {
        let mut slices: SmallVec<[IoSlice<'_>; 8]> = self.payload.iter().copied().collect();
        if !self.made.is_empty() {
            slices.push(IoSlice::new(&self.made));
        }
        slices
    }
}

/// The session a request is made for, and the connection epoch it is sent in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    pub(super) session: SessionId,
    pub(super) epoch: u64,
}

impl Asker {
    fn now(session: SessionId, pool: &Pool) -> Asker {
        Asker {
            session,
            epoch: pool.epoch(),
        }
    }

    /// The control part of a message that carries its session.
    pub(super) fn encode<T: Serialize>(self, items: T) -> WireResult<Vec<u8>> {
        let Asker { session, epoch } = self;
        encode(&BySession {
            session,
            epoch,
            items,
        })
    }
}

/// One message to one server: some of the caller's pieces.
pub(super) trait Message<'a>: Send {
    /// The caller's number of its first piece.
    fn first(&self) -> usize;
    /// Bytes moved, for the choice of threads.
    fn bytes(&self) -> u64;
    /// What is sent to a remote server.
    fn request(&self, asker: Asker) -> WireResult<Request<'a>>;
    /// The same as complete chunks that may be written to files of the server; empty if they are to be sent.
    fn fillings(&self) -> Vec<Filling<'a>> {
        Vec::new()
    }
    /// The chunks it reads, if files may replace the transfer of bytes; empty where the bytes have to be sent.
    fn chunks(&self) -> Vec<(&'a ChunkName, &'a ChunkForm)> {
        Vec::new()
    }
    /// Takes the reply, and returns the outcome that it reports. Called again when the request is resent.
    fn take(
        &mut self,
        control: &[u8],
        incoming: &mut Incoming<'_>,
    ) -> WireResult<Result<(), Failure>>;
    /// Reads its chunks from a store in this process or from same-host files. After an error of the latter the server
    /// is asked for the bytes.
    fn read_from(&mut self, _source: &(impl ChunkSource + ?Sized)) -> Result<(), Failure> {
        let error = StoreError::Invalid("nothing to be read".into());
        Err((self.first(), error))
    }
    /// Notes that its chunks were written to files of the server, which has this verifier.
    fn filled(&mut self, _verifier: u64) {}
    /// The verifier of the server that has performed it, of messages that change something.
    fn verifier(&self) -> Option<u64> {
        None
    }
    /// Performs it on a store in this process.
    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        self.read_from(store)
    }
}

/// All messages for one server, in order.
pub(super) struct Job<M> {
    pub(super) server: ServerId,
    pub(super) messages: Vec<M>,
    /// Messages that were sent to another process for them.
    pub(super) sent: u64,
}

impl<M> Job<M> {
    /// One message for a server.
    pub(super) fn of(server: ServerId, message: M) -> Job<M> {
        Job {
            server,
            messages: vec![message],
            sent: 0,
        }
    }
}

/// The verifiers of the servers that have performed these jobs. A server that has changed its verifier meanwhile has two.
pub(super) fn verifiers<'a, M: Message<'a>>(jobs: &[Job<M>]) -> Verifiers {
    let mut all = Verifiers::new();
    for job in jobs {
        let verifiers = job.messages.iter().filter_map(Message::verifier);
        for one in verifiers.map(|verifier| (job.server, verifier)) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

/// Messages that went to other processes for these jobs.
pub(super) fn remote_messages<M>(jobs: &[Job<M>]) -> u64 {
    jobs.iter().map(|job| job.sent).sum()
}

impl Servers {
    /// Runs all jobs; returns the failure of the caller's first failed piece. After a failure later messages of the
    /// same server are not sent; those of others are.
    pub(super) fn fan_out<'a, M: Message<'a>>(
        &self,
        table: &Table,
        jobs: &mut [Job<M>],
        slow: bool,
    ) -> Result<(), Failure> {
        let session = self.session();
        let mut until = Until::from(self.until());
        if slow {
            until.reply += self.options.deadline * SLOW;
        }
        let bytes = jobs
            .iter()
            .flat_map(|job| &job.messages)
            .map(Message::bytes)
            .sum::<u64>();
        if jobs.len() > 1 && (slow || bytes > MUCH) {
            let first = Mutex::new(None);
            let jobs: Vec<_> = jobs.iter_mut().map(Mutex::new).collect();
            self.workers().run(jobs.len(), &|i| {
                let mut job = jobs[i].lock();
                if let Err(failure) = self.run(table, &mut job, None, session, until) {
                    note(&mut first.lock(), failure);
                }
            });
            return first.into_inner().map_or(Ok(()), Err);
        }
        let mut flights: SmallVec<[Option<Flight>; 4]> = jobs
            .iter()
            .map(|job| {
                if jobs.len() > 1 && !self.is_same_host_job(job) {
                    depart(table, job, session, until)
                } else {
                    None
                }
            })
            .collect();
        let mut first = None;
        // Local ones while the remote ones work.
        for local in [true, false] {
            for (job, flight) in jobs.iter_mut().zip(&mut flights) {
                let here = matches!(table.get(&job.server), Some(Target::Local(_)));
                if here == local
                    && let Err(failure) = self.run(table, job, flight.take(), session, until)
                {
                    note(&mut first, failure);
                }
            }
        }
        first.map_or(Ok(()), Err)
    }
}

fn note(first: &mut Option<Failure>, failure: Failure) {
    if first.as_ref().is_none_or(|(i, _)| failure.0 < *i) {
        *first = Some(failure);
    }
}

/// Sends a remote job's first request early. An error here is ignored: `run` meets and handles it.
fn depart<'a, M: Message<'a>>(
    table: &Table,
    job: &Job<M>,
    session: SessionId,
    until: Until,
) -> Option<Flight> {
    let Some(Target::Remote(pool)) = table.get(&job.server) else {
        return None;
    };
    let request = job
        .messages
        .first()?
        .request(Asker::now(session, pool))
        .ok()?;
    pool.begin(
        request.kind,
        &request.control,
        &request.slices(),
        until.tries,
    )
    .ok()
}

impl Servers {
    /// Whether a job's first message is read from same-host files that are open here.
    fn is_same_host_job<'a, M: Message<'a>>(&self, job: &Job<M>) -> bool {
        let chunks = |message: &M| {
            let chunks = message.chunks();
            !chunks.is_empty()
                && chunks
                    .iter()
                    .all(|(name, _)| self.same_host.has(job.server, name))
        };
        self.same_host.are_any() && job.messages.first().is_some_and(chunks)
    }

    /// Reads a message from same-host files, requesting missing ones; false if it is to be sent.
    fn read_same_host_chunks<'a, M: Message<'a>>(
        &self,
        server: ServerId,
        pool: &Pool,
        message: &mut M,
        until: Until,
        sent: &mut u64,
    ) -> bool {
        let chunks = message.chunks();
        if chunks.is_empty() {
            return false;
        }
        let bytes = message.bytes();
        let (held, asked) = self.same_host.borrow(server, pool, &chunks, bytes, until);
        self.counters.messages.fetch_add(asked, Relaxed);
        *sent += asked;
        let Some(held) = held else {
            return false;
        };
        match message.read_from(&held) {
            Ok(()) => true,
            Err((_, error)) => {
                // It is unknown which of them failed, so all are dropped.
                for (name, _) in &chunks {
                    self.same_host.discard_damaged(server, name, &error);
                }
                false
            }
        }
    }

    fn run<'a, M: Message<'a>>(
        &self,
        table: &Table,
        job: &mut Job<M>,
        mut flight: Option<Flight>,
        session: SessionId,
        until: Until,
    ) -> Result<(), Failure> {
        let server = job.server;
        let until = match table.get(&server) {
            Some(Target::Remote(pool)) if pool.deadline() < self.options.deadline => {
                Until::from(until.tries.min(Instant::now() + pool.deadline()))
            }
            _ => until,
        };
        let mut pause = super::RETRY_DELAY;
        for message in &mut job.messages {
            if let Some(Target::Remote(pool)) = table.get(&server) {
                if flight.is_none()
                    && self.read_same_host_chunks(server, pool, message, until, &mut job.sent)
                {
                    continue;
                }
                self.counters.messages.fetch_add(1, Relaxed);
                job.sent += 1;
            }
            let target = target(table, server).map_err(|e| (message.first(), e))?;
            loop {
                let done = match target {
                    Target::Local(store) => message.local(store.as_ref()),
                    Target::Remote(pool) => {
                        let steady = self.options.steady;
                        remote(pool, message, flight.take(), session, steady, until)
                            .map_err(|e| (message.first(), store_error(server, pool, e)))?
                    }
                };
                match done {
                    // The store is out of descriptors for the moment, or the server lost contact with the metadata
                    // service for a while, and will regain it.
                    Err((at, mut error @ StoreError::Unavailable { .. })) => {
                        if !self.pause(session, pause, until.tries) {
                            if let Target::Remote(pool) = target
                                && let StoreError::Unavailable {
                                    server: of, addr, ..
                                } = &mut error
                            {
                                (*of, *addr) = (server, pool.addr().to_string());
                            }
                            return Err((at, error));
                        }
                        pause = (pause * 2).min(super::RETRY_DELAY_MOST);
                    }
                    // Another request ended the connection epoch by giving up; resend this one in the new epoch.
                    Err((_, StoreError::Superseded)) if Instant::now() < until.tries => {}
                    done => break done?,
                }
            }
        }
        Ok(())
    }
}

fn remote<'a, M: Message<'a>>(
    pool: &Pool,
    message: &mut M,
    flight: Option<Flight>,
    session: SessionId,
    steady: bool,
    until: Until,
) -> WireResult<Result<(), Failure>> {
    let mut reported = Ok(());
    if let Some(flight) = flight {
        match pool.finish(flight, until.reply, &mut |control, incoming| {
            reported = message.take(control, incoming)?;
            Ok(())
        }) {
            Err(e) if e.is_transient() => {}
            done => return done.map(|()| reported),
        }
    }
    if let Some(verifier) = blank::put(pool, &message.fillings(), steady, until) {
        message.filled(verifier);
        return Ok(Ok(()));
    }
    let request = message.request(Asker::now(session, pool))?;
    pool.call_with(
        request.kind,
        &request.control,
        &request.slices(),
        until,
        &mut |control, incoming| {
            reported = message.take(control, incoming)?;
            Ok(())
        },
    )?;
    Ok(reported)
}

/// Maps a failed call to the error of chunk stores; always names server and address.
pub(super) fn store_error(server: ServerId, pool: &Pool, error: WireError) -> StoreError {
    let addr = pool.addr().to_string();
    match error {
        WireError::Unavailable { detail, .. } => StoreError::Unavailable {
            server,
            addr,
            detail,
        },
        e @ WireError::TooLarge { .. } => StoreError::Invalid(e.to_string()),
        WireError::Fault { detail, .. } => StoreError::Io {
            what: format!("data server {server} at {addr}"),
            detail,
            errno: None,
        },
        e if e.is_transient() => StoreError::Unavailable {
            server,
            addr,
            detail: e.to_string(),
        },
        e => StoreError::Protocol(format!("data server {server}: {e}")),
    }
}

/// The control part of a message.
pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> WireResult<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|_| WireError::TooLarge {
        what: "control part",
        bytes: 0,
        limit: MAX_CONTROL as u64,
    })
}

/// Reads a reply's control part.
pub(super) fn decode<T: serde::de::DeserializeOwned>(
    control: &[u8],
    incoming: &Incoming<'_>,
) -> WireResult<T> {
    match postcard::take_from_bytes(control) {
        Ok((value, [])) => Ok(value),
        Ok(_) => Err(incoming.protocol("bytes after the reply")),
        Err(e) => Err(incoming.protocol(format!("the reply cannot be read: {e}"))),
    }
}

/// What an outcome reports of a message of `count` items: the server's verifier, or the index of the item that failed, and
/// why.
pub(super) fn failure(
    outcome: Outcome,
    incoming: &Incoming<'_>,
    count: usize,
) -> WireResult<Result<u64, Failure>> {
    let Outcome {
        done,
        failed,
        verifier,
    } = outcome;
    match failed {
        None if done == count as u64 => Ok(Ok(verifier)),
        None => Err(incoming.protocol(format!("{done} of {count} items done, and no error"))),
        Some(e) => Ok(Err(((done as usize).min(count.saturating_sub(1)), e))),
    }
}

/// Collects pieces into jobs and messages: one message a server as long as the limits allow.
pub(super) struct Sorter<M> {
    jobs: Vec<Job<M>>,
    /// For each job's last message: payload bytes, and estimated bytes of the control part.
    room: Vec<(u64, u64)>,
}

/// A control part is full at this estimate. The estimate is on the high side; the limit is twice this.
pub(super) const FULL: u64 = 8 << 20;

impl<M> Sorter<M> {
    pub(super) fn new() -> Sorter<M> {
        Sorter {
            jobs: Vec::new(),
            room: Vec::new(),
        }
    }

    /// The message that a piece of this many payload and control bytes belongs to; `fresh` makes a new one.
    pub(super) fn message(
        &mut self,
        server: ServerId,
        payload: u64,
        control: u64,
        fresh: impl FnOnce() -> M,
    ) -> &mut M {
        // Few servers, and mostly the same one again: search from the end.
        let at = match self.jobs.iter().rposition(|job| job.server == server) {
            Some(at) => at,
            None => {
                self.jobs.push(Job {
                    server,
                    messages: Vec::new(),
                    sent: 0,
                });
                self.room.push((0, 0));
                self.jobs.len() - 1
            }
        };
        let (job, room) = (&mut self.jobs[at], &mut self.room[at]);
        let fits = room.0 + payload <= crate::wire::MAX_DATA as u64 && room.1 + control <= FULL;
        if job.messages.is_empty() || !fits {
            job.messages.push(fresh());
            *room = (0, 0);
        }
        *room = (room.0 + payload, room.1 + control);
        let last = job.messages.len() - 1;
        &mut job.messages[last]
    }

    pub(super) fn jobs(self) -> Vec<Job<M>> {
        self.jobs
    }
}

/// An upper estimate of the bytes a piece takes in a control part: varints have up to ten.
pub(super) fn weight(
    name: &crate::ChunkName,
    form: Option<&crate::ChunkForm>,
    slab: Option<&slabfs_model::Hyperslab>,
) -> u64 {
    let place = match name {
        crate::ChunkName::Free(_) => 0,
        crate::ChunkName::Grid { at, .. } => at.len(),
    };
    let form = form.map_or(0, |f| 10 * f.shape.len() + f.fill.bytes().len());
    let slab = slab.map_or(0, |s| 40 * s.rank());
    (64 + 10 * place + form + slab) as u64
}
