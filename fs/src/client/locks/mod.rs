//! Advisory locks, as this mount has them: asks the lock server, knows what is held, and outlives a lock server that dies.
//!
//! Nothing is locked here; the lock server decides ([`slabfs_mdserver::locks`]). Kept here:
//!
//! - **What is held**, by file and owner, and through which handles it was taken. From that it is known
//!   whether a `close` lets anything go, without asking; and that is what a lock server in a new epoch is told. It
//!   is brought up in the order of the lock server's numbers of changes, whatever order the replies come in.
//! - **Who waits.** A request that the lock server has queued holds no thread. One thread polls for all of them, as
//!   long as there are any, and runs what each one left to be done when it is decided ([`Then`]).
//!
//! # Lives
//!
//! A lock server that was started anew has forgotten everything; and when a request gets no answer in time, nobody
//! here knows what it has done. In both cases the lock server is told what is held here, which is what programs
//! were told: then it knows just that, and a new epoch begins. A reply counts only if it comes in the epoch
//! that its request was made in, which is looked at in the same moment in which it is noted; if it does not,
//! the request is made again. While the lock server is being told, no request is made.
//!
//! What is told may be more than the lock server can give back: an unlock whose reply was lost leaves a lock here that
//! another mount may have by now. The lock server says which bytes those are, and they are taken out here before the
//! epoch begins: in each epoch what is held here is what the lock server has, less only what is on its way. Nothing
//! else may be lost by it; the lock server sees to that ([`slabfs_mdserver::locks`]).
//!
//! The parts: `held` what is held; `closing` what a close ends; `poll` the thread that waits; `tell` telling the lock server.
//! Requests are here.

mod closing;
mod held;
mod poll;
mod tell;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Weak};

use parking_lot::{Condvar, Mutex, MutexGuard};
use slabfs_mdserver::api::{
    LockAsk, LockConflict, LockEpoch, LockFile, LockKind, LockOutcome, LockOwner, LockReply,
    LockSpan, LockTicket, LockWant, MdError,
};

use super::Client;
use super::handle::Handle;
use super::writer::Waiting;
use held::{Held, Key};

/// What a request for a lock comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locked {
    /// It has the lock, or has given it up.
    Done,
    /// Nobody is in the way (of a test).
    Free,
    /// Somebody is in the way.
    Held(LockConflict),
    /// Waiting would never end.
    Deadlock,
    /// There are too many locks.
    TooMany,
    /// It was cancelled while it waited.
    Interrupted,
}

/// What is done once a request is decided; it must not wait for locks.
pub type Then = Box<dyn FnOnce(Result<Locked, MdError>) + Send>;

/// The locks of one mount; see the module's head.
#[derive(Default)]
pub(super) struct Locks {
    state: Mutex<State>,
    /// For the polling thread, and for requests while the lock server is being told.
    changed: Condvar,
    /// Held by whoever tells the lock server.
    telling: Mutex<()>,
}

struct State {
    /// The epoch that requests are made in; unknown when the lock server has to be told.
    epoch: LockEpoch,
    /// The lock server is being told: requests wait.
    telling: bool,
    held: Held,
    /// Owners that close a file, and how many requests that end all their locks on it are to be answered.
    closing: HashMap<Whose, u32>,
    /// Requests that wait for the end of that.
    parked: Vec<LockTicket>,
    /// Handles through which locks were asked for, by the number of the open file.
    lockers: HashMap<u64, Weak<Waiting>>,
    /// Number of the last event seen.
    seen: u64,
    next_ticket: u64,
    waits: BTreeMap<LockTicket, Wait>,
    /// Requests to be made again, by the polling thread.
    again: VecDeque<LockTicket>,
    /// Locks that were to be given up while the lock server was away.
    owed: VecDeque<LockAsk>,
    /// The session is over: nothing is asked any more.
    lost: bool,
    stopping: bool,
}

impl Default for State {
    fn default() -> State {
        State {
            epoch: LockEpoch::UNKNOWN,
            telling: false,
            held: Held::default(),
            closing: HashMap::new(),
            parked: Vec::new(),
            lockers: HashMap::new(),
            seen: 0,
            next_ticket: 1,
            waits: BTreeMap::new(),
            again: VecDeque::new(),
            owed: VecDeque::new(),
            lost: false,
            stopping: false,
        }
    }
}

/// A request that is not decided.
struct Wait {
    ask: LockAsk,
    open: u64,
    then: Then,
    /// The lock server has queued it; if not, a thread is about to ask.
    queued: bool,
    interrupted: bool,
    /// Whoever asked has gone: nobody hears what comes of it.
    abandoned: bool,
    /// The file was closed since then: what it gets ends at once.
    closed: bool,
}

/// What a thread that asks does next.
enum Next {
    Again,
    Tell,
    Cancel,
    Over,
    /// Runs it with no lock held.
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
    /// Ends this epoch: no reply counts any more, and the next one's numbers begin anew.
    fn end_epoch(&mut self) {
        self.held.end_epoch();
        self.epoch = LockEpoch::UNKNOWN;
        self.seen = 0;
        for (&ticket, wait) in &mut self.waits {
            if wait.queued {
                wait.queued = false;
                self.again.push_back(ticket);
            }
        }
    }

    /// Takes out what does not wait for a lock server that is away, of what is to be asked for again.
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

/// Somebody's locks on a file.
type Whose = (Key, LockOwner);

/// Whose lock on what is asked for.
fn whose(ask: &LockAsk) -> Whose {
    ((ask.file.clone(), ask.kind), ask.owner)
}

/// Something to be done that gives the result to whoever waits for it.
fn awaited() -> (Then, Receiver<Result<Locked, MdError>>) {
    let (send, receive) = sync_channel(1);
    let then: Then = Box::new(move |result| {
        // The other end waits.
        drop(send.send(result));
    });
    (then, receive)
}

impl Locks {
    /// Locks of a session that attached to a lock server in this epoch.
    pub(super) fn new(epoch: LockEpoch) -> Locks {
        let locks = Locks::default();
        locks.state.lock().epoch = epoch;
        locks
    }

    /// Spans that are locked.
    pub(super) fn held(&self) -> usize {
        self.state.lock().held.count()
    }

    /// Requests that the lock server has queued.
    pub(super) fn waiting(&self) -> usize {
        let state = self.state.lock();
        state.waits.values().filter(|wait| wait.queued).count()
    }

    /// An error leaves open what the lock server has done: it has to be told what is held.
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

    /// The state, when requests may be made.
    fn ready(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while state.telling {
            self.changed.wait(&mut state);
        }
        state
    }
}

impl Client {
    /// A number for a request for a lock, by which it can be interrupted.
    pub fn lock_ticket(&self) -> LockTicket {
        let mut state = self.locks.state.lock();
        let ticket = LockTicket(state.next_ticket);
        state.next_ticket += 1;
        ticket
    }

    /// Asks for a lock through `open`, gives it up or looks who has it; `then` is run once that is
    /// decided, on this thread or later on another. One message, and no thread waits.
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

    /// A lock is about to be asked for through `handle`, which is behind the open file `open`. If it is lost with the
    /// session, reads and writes of the handle fail until a lock is asked for through it again: what the program has
    /// read under the lost one may be out of date, and must not be written back.
    pub fn note_locker(&self, open: u64, handle: &Handle) {
        handle.waiting.set_unlocked(false);
        let mut state = self.locks.state.lock();
        if state.lockers.len() == state.lockers.capacity() {
            state.lockers.retain(|_, handle| handle.strong_count() > 0);
        }
        state.lockers.insert(open, Arc::downgrade(&handle.waiting));
    }

    /// A signal has arrived for whoever waits for a request: takes it back. If it is decided meanwhile, that
    /// holds.
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
                // Whoever is asking looks at it.
                return;
            }
        }
        self.cancel(ticket);
    }

    /// Whoever asked with this ticket is gone before it is decided, and will hear nothing of it. A lock that it gets
    /// ends with the file like any other; and if the file is closed before, as soon as it is had.
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

    /// Who holds a whole-file lock through an open file.
    pub fn whole_locks(&self, file: &LockFile, open: u64) -> Vec<LockOwner> {
        let state = self.locks.state.lock();
        if state.held.is_empty() {
            return Vec::new();
        }
        let owners = state
            .held
            .owners(&(file.clone(), LockKind::Whole), Some(open));
        owners.into_iter().collect()
    }

    /// Tells the lock server that a descriptor of the file through which somebody holds a whole-file lock is being closed:
    /// if it is the last, the lock ends after the close has returned, and others wait for that moment.
    pub fn ends_soon(&self, file: LockFile, owner: LockOwner) {
        let (then, answer) = awaited();
        let ask = LockAsk {
            file,
            kind: LockKind::Whole,
            owner,
            pid: 0,
            span: LockSpan::ALL,
            want: LockWant::Ending,
            ticket: self.lock_ticket(),
        };
        self.lock(ask, 0, then);
        if let Ok(Err(error)) = answer.recv() {
            // It only makes others wait who would be refused.
            tracing::debug!(%error, "the lock server was not told of a close");
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
                Next::Tell
            } else {
                let reply = self.md.lock(epoch, ask);
                self.heard(ticket, epoch, reply)
            };
            match next {
                Next::Again => {}
                Next::Tell => {
                    if let Err(error) = self.tell_locks(epoch) {
                        self.decide(ticket, Err(error));
                    }
                }
                Next::Cancel => return self.cancel(ticket),
                Next::Over => return,
                Next::Run(then, result) => return then(result),
            }
        }
    }

    /// Notes a reply.
    fn heard(
        &self,
        ticket: LockTicket,
        epoch: LockEpoch,
        reply: Result<LockReply, MdError>,
    ) -> Next {
        let mut state = self.locks.state.lock();
        let reply = match reply {
            Ok(LockReply::Reclaim) => return Next::Tell,
            Ok(reply) if epoch == state.epoch => reply,
            // It was made in an epoch that is over: nobody was told, and it counts for nothing.
            Ok(_) => return Next::Again,
            Err(error) => {
                let wait = state.waits.remove(&ticket);
                // What may be ending changes nothing of what is held.
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
                    // The event was faster, and has noted this change as one that says nothing.
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
            LockReply::Reclaim => Next::Tell,
        }
    }

    /// Takes a queued request back.
    fn cancel(&self, ticket: LockTicket) {
        match self.md.cancel_lock(ticket) {
            Ok(true) => self.decide(ticket, Ok(Locked::Interrupted)),
            // It is decided, and the event is on its way; or the lock server has begun a new epoch, and when it is
            // asked again, the asking looks whether it is wanted.
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

    /// Ends a request that is not decided by the lock server.
    fn decide(&self, ticket: LockTicket, result: Result<Locked, MdError>) {
        let wait = self.locks.state.lock().waits.remove(&ticket);
        if let Some(wait) = wait {
            (wait.then)(result);
        }
    }
}
