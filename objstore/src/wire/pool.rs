//! The calling side: a pool of connections to one service, and calls that retry until their deadline.
//!
//! A call takes the connection used last (its buffers are warm), or opens one. A connection with any error is
//! dropped, and so are the other idle ones, which very likely lead to the same dead server; then the call is retried,
//! at first at once, later with growing pauses. So **a request may arrive more than once**, also long after its call
//! has failed. Services make their requests idempotent; where that is not enough, requests carry the pool's *epoch*
//! ([`Pool::epoch`]), and the server refuses late ones.
//!
//! A service may have several addresses, of which one answers, or get another address. After an attempt to connect that failed
//! the next one is tried; calls that wait for a reply from an address that was left are made again at the new one.

use std::{
    io::IoSlice,
    os::fd::OwnedFd,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, RwLock};

use super::{
    Connection, Incoming, Key, WireError, WireResult,
    frame::{MAX_CONTROL, MAX_PAYLOAD, REPLY, kind},
    hello,
};
use crate::addr::{Addr, Addrs};
use crate::interrupt;

/// The most idle connections in the pool.
const KEEP: usize = 16;
/// An idle connection older than this is not reused; servers close theirs later.
const FRESH: Duration = Duration::from_secs(5 * 60);
/// The first and the longest pause between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(250);

/// How long an attempt to connect to a service that may move can take.
const CONNECTING: Duration = Duration::from_secs(2);
/// How often a call that waits for its reply looks whether the service has moved.
const LOOKING: Duration = Duration::from_millis(500);

/// Takes a reply: given its control part, it reads the payload into its destination. Runs again when a call is
/// retried.
pub type Take<'t> = &'t mut dyn FnMut(&[u8], &mut Incoming<'_>) -> WireResult<()>;

/// Makes the second request of an exchange, its kind and its control part, from the control part and the file
/// descriptors of the first reply.
pub type Second<'s> = &'s mut dyn FnMut(&[u8], Vec<OwnedFd>) -> WireResult<(u16, Vec<u8>)>;

/// The control part of a reply, and the file descriptors that came with it.
pub type FilesReply = (Vec<u8>, Vec<OwnedFd>);

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub struct Until {
    /// Until then an unreachable server is retried.
    pub tries: Instant,
    /// Until then a request that has reached a server may stay unanswered: not before `tries`, and later for slow
    /// operations such as a sync.
    pub reply: Instant,
}

impl From<Instant> for Until {
    fn from(at: Instant) -> Until {
        Until {
            tries: at,
            reply: at,
        }
    }
}

/// Connections to one server. Shared by all threads that call it.
#[derive(Debug)]
pub struct Pool {
    addrs: Addrs,
    /// The address that is called now.
    addr: RwLock<Addr>,
    key: Option<Key>,
    deadline: Duration,
    next_id: AtomicU64,
    epoch: Arc<AtomicU64>,
    state: Mutex<State>,
    closing: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Idle>,
    closed: bool,
}

#[derive(Debug)]
struct Idle {
    line: Line,
    since: Instant,
}

/// A connection and the buffer for the control parts of its replies.
#[derive(Debug)]
struct Line {
    connection: Connection,
    /// Where it leads to.
    addr: Addr,
    control: Vec<u8>,
    /// A request was sent on it and not answered.
    busy: bool,
    epoch: Arc<AtomicU64>,
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.busy {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// A request that has been sent and not been answered.
#[derive(Debug)]
pub struct Flight {
    line: Line,
    kind: u16,
    id: u64,
}

/// The number of consecutive broken connections after which a request is given up.
const MOST_BROKEN: u32 = 8;

/// The bounds of the longest gap between two bytes of a reply, which is a third of the deadline.
const LEAST_STALL: Duration = Duration::from_millis(100);
const MOST_STALL: Duration = Duration::from_secs(10);

impl Pool {
    /// A pool for this address, or these; connects when first called. `deadline` bounds each call, all its attempts
    /// together.
    pub fn new(addrs: impl Into<Addrs>, key: Option<Key>, deadline: Duration) -> Pool {
        let addrs = addrs.into();
        Pool {
            addr: RwLock::new(addrs.first().clone()),
            addrs,
            key,
            deadline,
            next_id: AtomicU64::new(1),
            epoch: Arc::default(),
            state: Mutex::new(State::default()),
            closing: Condvar::new(),
        }
    }

    /// The address called.
    pub fn addr(&self) -> Addr {
        self.addr.read().clone()
    }

    /// Sets the new address of the server: calls go there from now on, including those that are waiting for it.
    pub fn move_to(&self, addr: Addr) {
        *self.addr.write() = addr;
        self.state.lock().idle.clear();
    }

    /// Calls the next address from now on, if `addr` is the one that is called and there are others.
    pub fn leave(&self, addr: &Addr) {
        if self.has_one() {
            return;
        }
        {
            let mut now = self.addr.write();
            if *now != *addr {
                return;
            }
            *now = self.addrs.after(addr).clone();
        }
        self.forget_idle();
    }

    fn has_one(&self) -> bool {
        self.addrs.all().len() == 1
    }

    /// Whether a call looks, while it waits, whether the service is called elsewhere now: it may have several addresses, or move
    /// to another machine ([`Pool::move_to`]), and a machine that is cut off answers nothing. A service behind a Unix socket
    /// is on this machine, where its connections break with it.
    fn may_move(&self) -> bool {
        !self.has_one() || matches!(*self.addr.read(), Addr::Tcp { .. })
    }

    /// The connection epoch: how many connections were lost or given up with an unanswered request on them, each
    /// counted before the call of that request returns. Such a request may still be executed, unless the server
    /// refuses it because it has seen a higher epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The time a call may take.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Sends a request and waits for its reply, whose payload goes to `reply`; returns the reply's control part.
    pub fn call(
        &self,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        reply: &mut Vec<u8>,
    ) -> WireResult<Vec<u8>> {
        let until = Instant::now() + self.deadline;
        self.call_until(kind, control, payload, until, reply)
    }

    /// As [`Pool::call`], with its own deadline.
    pub fn call_until(
        &self,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: Instant,
        reply: &mut Vec<u8>,
    ) -> WireResult<Vec<u8>> {
        let mut answer = Vec::new();
        self.call_with(kind, control, payload, until, &mut |control, incoming| {
            answer.clear();
            answer.extend_from_slice(control);
            incoming.read_to(reply)
        })?;
        Ok(answer)
    }

    /// Sends a request and gives the reply to `take`, retrying until `until`.
    pub fn call_with(
        &self,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: impl Into<Until>,
        take: Take<'_>,
    ) -> WireResult<()> {
        let mut until = until.into();
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        let (mut broken, mut prolonged) = (0, false);
        loop {
            let (used, error) = match self.attempt(kind, control, payload, until, take) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            if !error.is_transient() {
                return Err(error);
            }
            if let WireError::Broken { addr, detail } = &error {
                tracing::warn!(%addr, "resending a request: {detail}");
                broken += 1;
                if broken == MOST_BROKEN {
                    // Another service answers there.
                    return Err(WireError::Protocol {
                        addr: addr.clone(),
                        detail: format!("{detail}, {broken} times in a row"),
                    });
                }
            } else {
                broken = 0;
            }
            let now = Instant::now();
            let lost = matches!(error, WireError::Broken { .. } | WireError::Closed { .. });
            if now >= until.tries && now < until.reply && lost && !prolonged {
                // A slow operation was under way when the connection broke: it is sent once more.
                prolonged = true;
                until.tries = until.reply.min(now + self.deadline);
            }
            if now >= until.tries {
                return Err(self.unavailable(&error, tried_since(began)));
            }
            // A failed idle connection says nothing about the server's present state: retry without a pause.
            if !used {
                let paused = self.pause(&mut pause, until.tries, began);
                paused.map_err(|why| self.unavailable(&error, why))?;
            }
        }
    }

    /// Sends a request once without waiting for the reply, so that several servers work concurrently. After a
    /// transient error, here or in [`Pool::finish`], use [`Pool::call_with`].
    pub fn begin(
        &self,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: Instant,
    ) -> WireResult<Flight> {
        match self.send(kind, control, payload, until) {
            Ok((_, flight)) => Ok(flight),
            Err((_, e)) => Err(e),
        }
    }

    /// Waits for the reply to a request that was sent.
    pub fn finish(&self, flight: Flight, until: Instant, take: Take<'_>) -> WireResult<()> {
        self.receive(flight, until, take)
    }

    /// Sends a request whose reply may carry file descriptors, and on the same connection a second one built from
    /// that reply; `take` gets the second reply. Tried once. Returns `false` if the connection cannot carry
    /// descriptors; nothing was sent then.
    pub fn exchange(
        &self,
        kind: u16,
        control: &[u8],
        until: Until,
        second: Second<'_>,
        take: Take<'_>,
    ) -> WireResult<bool> {
        let Some((line, (first, files))) = self.first(kind, control, until)? else {
            return Ok(false);
        };
        let (kind, control) = second(&first, files)?;
        let flight = self.send_on(line, kind, &control, &[], until.tries)?;
        self.receive(flight, until.reply, take)?;
        Ok(true)
    }

    /// Sends a request whose reply has no payload and may carry file descriptors; tried once. Returns `None` if the
    /// connection cannot carry descriptors; nothing was sent then.
    pub fn call_for_files(
        &self,
        kind: u16,
        control: &[u8],
        until: Until,
    ) -> WireResult<Option<FilesReply>> {
        let Some((line, reply)) = self.first(kind, control, until)? else {
            return Ok(None);
        };
        self.keep(line);
        Ok(Some(reply))
    }

    /// Whether the address called can send file descriptors.
    pub fn hands_files(&self) -> bool {
        matches!(*self.addr.read(), Addr::Unix(_))
    }

    /// Sends a request and takes its reply with the file descriptors.
    fn first(
        &self,
        kind: u16,
        control: &[u8],
        until: Until,
    ) -> WireResult<Option<(Line, FilesReply)>> {
        let (_, mut line) = self.line(until.tries)?;
        if !line.connection.hands_files() {
            self.keep(line);
            return Ok(None);
        }
        line.connection.expect_files();
        let flight = self.send_on(line, kind, control, &[], until.tries)?;
        let Flight { mut line, kind, id } = flight;
        let mut first = Vec::new();
        let received = self.receive_on(&mut line, kind, id, until.reply, &mut |control, _| {
            first.extend_from_slice(control);
            Ok(())
        });
        let files = line.connection.take_files();
        match received {
            Ok(()) => Ok(Some((line, (first, files)))),
            Err(e @ WireError::Fault { .. }) => {
                self.keep(line);
                Err(e)
            }
            Err(e) => {
                self.forget_idle();
                Err(e)
            }
        }
    }

    /// Closes idle connections and ends all waiting for an unreachable server.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.idle.clear();
        self.closing.notify_all();
    }

    /// One attempt. An error reports whether the connection had been used before.
    fn attempt(
        &self,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: Until,
        take: Take<'_>,
    ) -> Result<(), (bool, WireError)> {
        let (used, flight) = self.send(kind, control, payload, until.tries)?;
        self.receive(flight, until.reply, take)
            .map_err(|e| (used, e))
    }

    fn send(
        &self,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: Instant,
    ) -> Result<(bool, Flight), (bool, WireError)> {
        let (used, line) = self.line(until).map_err(|e| (false, e))?;
        match self.send_on(line, kind, control, payload, until) {
            Ok(flight) => Ok((used, flight)),
            Err(e) => Err((used, e)),
        }
    }

    fn send_on(
        &self,
        mut line: Line,
        kind: u16,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: Instant,
    ) -> WireResult<Flight> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        line.busy = true;
        match line.connection.send(kind, id, control, payload, until) {
            Ok(()) => Ok(Flight { line, kind, id }),
            Err(e @ WireError::TooLarge { .. }) => {
                // Nothing was sent.
                line.busy = false;
                self.keep(line);
                Err(e)
            }
            Err(e) => {
                self.forget_idle();
                Err(e)
            }
        }
    }

    fn receive(&self, flight: Flight, until: Instant, take: Take<'_>) -> WireResult<()> {
        let Flight { mut line, kind, id } = flight;
        let received = self.receive_on(&mut line, kind, id, until, take);
        match &received {
            Ok(()) | Err(WireError::Fault { .. }) => self.keep(line),
            Err(_) => self.forget_idle(),
        }
        received
    }

    fn receive_on(
        &self,
        line: &mut Line,
        kind: u16,
        id: u64,
        until: Instant,
        take: Take<'_>,
    ) -> WireResult<()> {
        let Line {
            connection,
            addr,
            control,
            busy,
            ..
        } = line;
        while self.may_move() {
            let now = Instant::now();
            if connection.wait(until.min(now + LOOKING))? || now >= until {
                break;
            }
            if *self.addr.read() != *addr {
                return Err(WireError::Closed {
                    addr: addr.to_string(),
                });
            }
        }
        // The reply must be complete when the call's time is over.
        let rest = until.saturating_duration_since(Instant::now());
        let head = connection.recv_head(control, until, rest)?;
        if head.kind == self::kind::FAULT && head.id == id && head.payload == 0 {
            *busy = false;
            return Err(WireError::Fault {
                addr: self.addr().to_string(),
                detail: hello::text(control),
            });
        }
        if head.kind != kind | REPLY || head.id != id {
            return Err(connection.broken(format!(
                "reply of kind {:#06x}, id {} to request of kind {kind:#06x}, id {id}",
                head.kind, head.id
            )));
        }
        let mut incoming = Incoming::new(connection, &head, until);
        take(control, &mut incoming)?;
        match incoming.left() {
            0 => {
                *busy = false;
                Ok(())
            }
            left => Err(incoming.protocol(format!("{left} bytes of payload too many"))),
        }
    }

    /// The connection used last, or a new one, and whether it had been used before.
    fn line(&self, until: Instant) -> WireResult<(bool, Line)> {
        {
            let mut state = self.state.lock();
            if state.closed {
                return Err(self.closed());
            }
            if let Some(idle) = state.idle.pop() {
                if idle.since.elapsed() < FRESH {
                    return Ok((true, idle.line));
                }
                // It was the most recent one: the others are older.
                state.idle.clear();
            }
        }
        let addr = self.addr();
        let by = match self.may_move() {
            true => until.min(Instant::now() + CONNECTING),
            false => until,
        };
        let mut connection = match Connection::connect(&addr, self.key.as_ref(), by) {
            Ok(connection) => connection,
            Err(error) => {
                if error.is_transient() {
                    self.leave(&addr);
                }
                return Err(error);
            }
        };
        connection.set_stall((self.deadline / 3).clamp(LEAST_STALL, MOST_STALL));
        Ok((
            false,
            Line {
                connection,
                addr,
                control: Vec::new(),
                busy: false,
                epoch: self.epoch.clone(),
            },
        ))
    }

    fn keep(&self, line: Line) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.idle.push(Idle {
            line,
            since: Instant::now(),
        });
        if state.idle.len() > KEEP {
            state.idle.remove(0);
        }
    }

    fn forget_idle(&self) {
        self.state.lock().idle.clear();
    }

    /// Waits before the next attempt; the error says why there is none.
    fn pause(&self, pause: &mut Duration, until: Instant, began: Instant) -> Result<(), String> {
        let next = Instant::now() + *pause;
        *pause = (*pause * 2).min(LAST_PAUSE);
        if next >= until {
            return Err(tried_since(began));
        }
        let mut state = self.state.lock();
        while !state.closed && !interrupt::wait_until(&self.closing, &mut state, next) {}
        match (state.closed, interrupt::is_raised()) {
            (true, _) => Err("closed".into()),
            (false, true) => Err("interrupted".into()),
            (false, false) => Ok(()),
        }
    }

    fn unavailable(&self, last: &WireError, why: String) -> WireError {
        WireError::Unavailable {
            addr: self.addr().to_string(),
            detail: format!("{last} ({why})"),
        }
    }

    fn closed(&self) -> WireError {
        WireError::Fault {
            addr: self.addr().to_string(),
            detail: "this client has been closed".into(),
        }
    }
}

fn tried_since(began: Instant) -> String {
    format!("tried for {:.1?}", began.elapsed())
}

// A frame's lengths are 32-bit fields.
const _: () = assert!(MAX_CONTROL <= MAX_PAYLOAD && MAX_PAYLOAD <= u32::MAX as usize);
