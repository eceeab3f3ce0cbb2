//! The advisory locks (`fcntl`, `flock`) of this mount: requests to the lock server, a record of the locks held, and
//! recovery after a restart of the lock server.
//!
//! Nothing is granted here; the lock server decides ([`slabfs_mdserver::locks`]). This module stores:
//!
//! - **The locks held**, by file and owner, and the open files through which they were taken. From this a `close`
//!   knows without a request whether it releases anything, and the locks are reclaimed when the lock server begins a
//!   new epoch. The record is updated in the order of the lock server's change numbers, whatever the order of the
//!   replies.
//! - **The waiting requests.** A request that the lock server has queued occupies no thread. While there are any, one
//!   thread polls for all of them and runs the callback of each when it is decided ([`Then`]).
//!
//! # Epochs
//!
//! A restarted lock server has no record of locks; and after a request that timed out, the client cannot know what
//! the lock server did. In both cases the client reclaims the locks in its record, which are those that programs were
//! granted. The lock server then has exactly these, and a new epoch begins. A reply counts only in the epoch in which
//! its request was made; this is checked under the same lock hold that records the reply. If the epoch has ended, the
//! request is made again. No request is made during a reclaim.
//!
//! A reclaim may name more than the lock server can give back: an unlock whose reply was lost leaves a lock in the
//! record here that another mount may hold by now. The reply names those bytes, and they are removed from the record
//! before the epoch begins. So in each epoch the record equals the lock server's state, except for changes in flight.
//! Nothing else can be lost by this; the lock server ensures that ([`slabfs_mdserver::locks`]).
//!
//! The parts: `held` the record; `closing` the unlocks of a close; `poll` the channel of events (`client/coherence/channel.rs`); `reclaim`
//! the reclaim.
//! Requests are in this file.

mod closing;
mod held;
mod poll;
mod reclaim;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};
use slabfs_mdserver::api::{
    LockAsk, LockConflict, LockEpoch, LockFile, LockKind, LockOutcome, LockOwner, LockReply,
    LockSpan, LockTicket, LockWant, MdError, op,
};

use crate::client::Client;
use crate::client::handle::Handle;
use crate::client::handle::writer::Waiting;
use held::{Held, Key};

/// The outcome of a request for a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locked {
    /// The lock is granted, or released.
    Done,
    /// No conflicting lock (reply to a test).
    Free,
    /// A conflicting lock exists.
    Held(LockConflict),
    /// Waiting would be a deadlock.
    Deadlock,
    /// The limit on the number of locks is reached.
    TooMany,
    /// The request was cancelled while it waited.
    Interrupted,
}

/// Callback that is run once a request is decided; it must not wait for locks.
pub type Then = Box<dyn FnOnce(Result<Locked, MdError>) + Send>;

/// The locks of one mount; see the module documentation.
#[derive(Default)]
pub(in crate::client) struct Locks {
    state: Mutex<State>,
    /// Wakes the polling thread, and requests that wait for the end of a reclaim.
    changed: Condvar,
    /// Held during a reclaim.
    reclaiming: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The epoch in which requests are made; unknown when the locks have to be reclaimed.
    epoch: LockEpoch,
    /// A reclaim is in progress: requests wait.
    reclaiming: bool,
    held: Held,
    /// Owners that close a file, with the number of unanswered requests that end all their locks on it.
    closing: HashMap<Whose, u32>,
    /// Requests that wait until their owner is no longer closing.
    parked: Vec<LockTicket>,
    /// Handles through which locks were requested, by the number of the open file.
    lockers: HashMap<u64, Weak<Waiting>>,
    last_ticket: u64,
    waits: BTreeMap<LockTicket, Wait>,
    /// Requests that the polling thread has to make again.
    again: VecDeque<LockTicket>,
    /// Unlocks that failed because the lock server was not reachable.
    owed: VecDeque<LockAsk>,
    /// The number of sessions before the current one.
    session: u64,
    /// The session is lost: no requests are made.
    lost: bool,
    stopping: bool,
}

/// A request that is not decided yet.
struct Wait {
    ask: LockAsk,
    open: u64,
    then: Then,
    /// The lock server has queued it; if false, a thread is about to send it.
    queued: bool,
    interrupted: bool,
    /// The caller has exited: the result goes nowhere.
    abandoned: bool,
    /// The file was closed after the request: a lock that is granted is released at once.
    closed: bool,
}

/// The next step of a thread that makes a request.
enum Next {
    Again,
    Reclaim,
    Cancel,
    Over,
    /// Run the callback, with no mutex held.
    Run(Then, Result<Locked, MdError>),
}

fn locked(outcome: LockOutcome) -> Locked {
    match outcome {
        LockOutcome::Done | LockOutcome::Waits => Locked::Done,
        LockOutcome::Free => Locked::Free,
        LockOutcome::Held(conflict) => Locked::Held(conflict),
        LockOutcome::Deadlock => Locked::Deadlock,
        LockOutcome::TooMany => Locked::TooMany,
    }
}

impl State {
    /// Ends this epoch: replies of its requests no longer count, and change numbers start again at 1.
    fn end_epoch(&mut self) {
        self.held.end_epoch();
        self.epoch = LockEpoch::UNKNOWN;
        for (&ticket, wait) in &mut self.waits {
            if wait.queued {
                wait.queued = false;
                self.again.push_back(ticket);
            }
        }
    }

    /// Removes from the requests to be made again those that must not wait for an unreachable lock server.
    fn take_tries(&mut self) -> Vec<LockTicket> {
        let waits = &self.waits;
        let is_try = |ticket: &LockTicket| {
            let wait = waits.get(ticket);
            wait.is_some_and(|wait| !matches!(wait.ask.want, LockWant::Wait(_)))
        };
        let (tries, rest): (Vec<_>, Vec<_>) = self.again.drain(..).partition(is_try);
        self.again = rest.into();
        tries
    }

    fn has_work(&self) -> bool {
        let open = self.epoch == LockEpoch::UNKNOWN || self.has_queued();
        !self.lost && (open || !self.again.is_empty() || !self.owed.is_empty())
    }

    fn has_queued(&self) -> bool {
        self.waits.values().any(|wait| wait.queued)
    }
}

/// One owner's locks on one file.
type Whose = (Key, LockOwner);

/// The owner and the file of a request.
fn whose(ask: &LockAsk) -> Whose {
    ((ask.file.clone(), ask.kind), ask.owner)
}

/// A callback that sends the result to the returned receiver.
fn awaited() -> (Then, Receiver<Result<Locked, MdError>>) {
    let (send, receive) = sync_channel(1);
    let then: Then = Box::new(move |result| {
        // The receiver waits for it.
        drop(send.send(result));
    });
    (then, receive)
}

impl Locks {
    /// The locks of a session that attached to a lock server in this epoch.
    pub(in crate::client) fn new(epoch: LockEpoch, shard: slabfs_model::ShardId) -> Locks {
        let locks = Locks::default();
        {
            let mut state = locks.state.lock();
            state.epoch = epoch;
            // Tickets of the first client are used for requests to the others, too.
            state.last_ticket = u64::from(shard.0) << TICKETS;
        }
        locks
    }

    /// The number of locked spans.
    pub(in crate::client) fn held(&self) -> usize {
        self.state.lock().held.count()
    }

    /// The number of requests that the lock server has queued.
    pub(in crate::client) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.waits.values().filter(|wait| wait.queued).count()
    }

    /// After an error it is unknown what the lock server has done: the locks have to be reclaimed.
    fn doubt(&self, state: &mut State, epoch: LockEpoch, error: &MdError) {
        let refused = matches!(
            error,
            MdError::SessionLost | MdError::Invalid(_) | MdError::NotPermitted(_)
        );
        if !refused && state.epoch == epoch {
            state.end_epoch();
            self.changed.notify_all();
        }
    }

    /// The state, once requests may be made.
    fn ready(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.reclaiming {
            self.changed.wait(&mut state);
        }
        state
    }
}

/// The bit of tickets from which on they have the number of the shard: more are never used.
const TICKETS: u32 = 48;

impl Client {
    /// A number for a lock request, by which it can be interrupted.
    pub fn lock_ticket(&self) -> LockTicket {
        let mut state = self.locks.state.lock();
        state.last_ticket += 1;
        LockTicket(state.last_ticket)
    }

    /// Requests a lock through `open`, releases it or tests it. `then` is run once that is decided, on this thread or
    /// later on another. One message; no thread waits.
    pub fn lock(&self, ask: LockAsk, open: u64, then: Then) {
        let ticket = ask.ticket;
        self.locks.state.lock().waits.insert(
            ticket,
            Wait {
                ask,
                open,
                then,
                queued: false,
                interrupted: false,
                abandoned: false,
                closed: false,
            },
        );
        self.ask_for(ticket);
    }

    /// Called before a lock is requested through `handle`, which belongs to the open file `open`. If the lock is lost
    /// with the session, reads and writes of the handle fail until a lock is requested through it again: data that
    /// the program read under the lost lock may be out of date and must not be written back.
    pub fn note_locker(&self, open: u64, handle: &Handle) {
        handle.waiting.set_unlocked(false);
        let mut state = self.locks.state.lock();
        if state.lockers.len() == state.lockers.capacity() {
            state.lockers.retain(|_, handle| handle.strong_count() > 0);
        }
        state.lockers.insert(open, Arc::downgrade(&handle.waiting));
    }

    /// A signal has arrived for the caller of a request: cancels the request. If it is decided meanwhile, the
    /// decision stands.
    pub fn interrupt_lock(&self, ticket: LockTicket) {
        {
            let mut state = self.locks.state.lock();
            let Some(wait) = state.waits.get_mut(&ticket) else {
                return;
            };
            wait.interrupted = true;
            let queued = wait.queued;
            if state.unpark(ticket) {
                drop(state);
                return self.decide(ticket, Ok(Locked::Interrupted));
            }
            if !queued {
                // The thread that makes the request checks `interrupted`.
                return;
            }
        }
        self.cancel(ticket);
    }

    /// The caller of this request has exited before it is decided, and gets no result. A lock that is granted ends
    /// with the file like any other; if the file is closed first, the lock is released as soon as it is granted.
    pub fn abandon_lock(&self, ticket: LockTicket) {
        let mut state = self.locks.state.lock();
        let Some(wait) = state.waits.get_mut(&ticket) else {
            return;
        };
        wait.abandoned = true;
        wait.interrupted = true;
        if state.unpark(ticket) {
            drop(state);
            self.decide(ticket, Ok(Locked::Interrupted));
        }
    }

    /// The owners of `flock` locks that were taken through an open file.
    pub fn file_locks(&self, file: &LockFile, open: u64) -> Vec<LockOwner> {
        let state = self.locks.state.lock();
        if state.held.is_empty() {
            return Vec::new();
        }
        let owners = state
            .held
            .owners(&(file.clone(), LockKind::File), Some(open));
        owners.into_iter().collect()
    }

    /// Notifies the lock server that a descriptor of a file with an `flock` lock is being closed. If it
    /// is the last one, the lock ends after the close has returned, and conflicting requests wait for that moment.
    pub fn ends_soon(&self, file: LockFile, owner: LockOwner) {
        let (then, answer) = awaited();
        let ask = LockAsk {
            file,
            kind: LockKind::File,
            owner,
            pid: 0,
            span: LockSpan::ALL,
            want: LockWant::Ending,
            ticket: self.lock_ticket(),
        };
        self.lock(ask, 0, then);
        if let Ok(Err(error)) = answer.recv() {
            // It only makes other requests wait that would be refused otherwise.
            tracing::debug!(%error, "the lock server was not notified of a close");
        }
    }

    /// Makes the request with this number, until it is decided or queued.
    fn ask_for(&self, ticket: LockTicket) {
        loop {
            let (epoch, ask) = {
                let mut state = self.locks.ready();
                match state.waits.get(&ticket) {
                    None => return,
                    Some(wait) if wait.interrupted => {
                        let then = state.waits.remove(&ticket).map(|wait| wait.then);
                        drop(state);
                        if let Some(then) = then {
                            then(Ok(Locked::Interrupted));
                        }
                        return;
                    }
                    Some(wait) if state.has_to_park(wait) => {
                        state.parked.push(ticket);
                        return;
                    }
                    Some(wait) => (state.epoch, wait.ask.clone()),
                }
            };
            let next = if epoch == LockEpoch::UNKNOWN {
                Next::Reclaim
            } else {
                let reply = self.md.call(op::Lock { epoch, ask });
                self.heard(ticket, epoch, reply)
            };
            match next {
                Next::Again => {}
                Next::Reclaim => {
                    if let Err(error) = self.reclaim_locks(epoch) {
                        self.decide(ticket, Err(error));
                    }
                }
                Next::Cancel => return self.cancel(ticket),
                Next::Over => return,
                Next::Run(then, result) => return then(result),
            }
        }
    }

    /// Records a reply.
    fn heard(
        &self,
        ticket: LockTicket,
        epoch: LockEpoch,
        reply: Result<LockReply, MdError>,
    ) -> Next {
        let mut state = self.locks.state.lock();
        let reply = match reply {
            Ok(LockReply::Reclaim) => return Next::Reclaim,
            Ok(reply) if epoch == state.epoch => reply,
            // The request was made in an epoch that has ended: the caller has no result yet, and the reply does not
            // count.
            Ok(_) => return Next::Again,
            Err(error) => {
                let wait = state.waits.remove(&ticket);
                // An `Ending` notification changes no locks.
                if wait
                    .as_ref()
                    .is_none_or(|wait| wait.ask.want != LockWant::Ending)
                {
                    self.locks.doubt(&mut state, epoch, &error);
                }
                return match wait {
                    Some(wait) => Next::Run(wait.then, Err(error)),
                    None => Next::Over,
                };
            }
        };
        match reply {
            LockReply::Decided { outcome, change } => {
                let Some(wait) = state.waits.remove(&ticket) else {
                    return Next::Over;
                };
                state.held.note(&wait.ask, wait.open, Some(outcome), change);
                Next::Run(wait.then, Ok(locked(outcome)))
            }
            LockReply::Queued { change } => {
                let Some(wait) = state.waits.get_mut(&ticket) else {
                    // The event came before this reply, and has recorded this change number as an empty change.
                    state.held.skip(change);
                    return Next::Over;
                };
                wait.queued = true;
                let interrupted = wait.interrupted;
                let (ask, open) = (wait.ask.clone(), wait.open);
                state.held.note(&ask, open, None, change);
                self.locks.changed.notify_all();
                if interrupted {
                    Next::Cancel
                } else {
                    Next::Over
                }
            }
            LockReply::Reclaim => Next::Reclaim,
        }
    }

    /// Cancels a queued request.
    fn cancel(&self, ticket: LockTicket) {
        match self.md.call(op::CancelLock { ticket }) {
            Ok(true) => self.decide(ticket, Ok(Locked::Interrupted)),
            // It is decided, and the event is on its way; or the lock server has begun a new epoch, and the request
            // is checked for interruption before it is made again.
            Ok(false) => {}
            Err(error) => {
                {
                    let mut state = self.locks.state.lock();
                    let epoch = state.epoch;
                    self.locks.doubt(&mut state, epoch, &error);
                }
                self.decide(ticket, Ok(Locked::Interrupted));
            }
        }
    }

    /// Ends a request that the lock server has not decided.
    fn decide(&self, ticket: LockTicket, result: Result<Locked, MdError>) {
        let wait = self.locks.state.lock().waits.remove(&ticket);
        if let Some(wait) = wait {
            (wait.then)(result);
        }
    }
}
