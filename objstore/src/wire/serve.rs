//! The serving side: an accepting thread, and a thread a connection.
//!
//! A connection handles one request at a time. A peer's error ends its own connection and no other; a handler that
//! panics answers "internal error", and the connection stays open.
//!
//! The number of connections is bounded ([`ServeOptions::connections`]). At the bound one is closed to make room: the
//! one that has waited longest between requests, whose client reconnects when needed, or else one that has been
//! sending a request for a second, which is not yet executed and is sent again. If all are busy, the new connection
//! is refused as busy. Connections that have not authenticated yet (strangers) only displace one another while there
//! are many of them. A connection without a request for [`ServeOptions::idle`] is closed.

use std::{
    any::Any,
    fs::File,
    io::{self, IoSlice},
    os::fd::BorrowedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use nix::sys::socket::Shutdown;
use parking_lot::{Condvar, Mutex};

use super::{
    Buffers, Connection, Incoming, Listener, WireError, WireResult,
    connection::Head,
    frame::{FIRST_FREE_KIND, REPLY, kind},
    hello,
    roster::{Doing, Roster, Slot},
    stream::Stream,
};
use crate::addr::Addr;

/// The time allowed for opening a connection while there are many strangers.
const CROWDED: Duration = Duration::from_secs(1);

/// A connection that is idle for longer than this frees its buffers.
const WARM: Duration = Duration::from_secs(10);

/// State that a handler stores on a connection until the next request.
pub type UntilNext = Box<dyn Any + Send>;

/// Answers requests. One handler serves all connections concurrently, from their threads.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request by exactly one [`Call::reply`]. An error ends the connection.
    fn handle(&self, call: Call<'_>) -> WireResult<()>;

    /// Inspects a request whose payload has not been received, and may receive it piece by piece: a large payload
    /// goes to its destination while it is in the processor's cache, without a buffer of its own. A returned value
    /// goes to the call as [`Call::taken`], with an empty payload, and any unread payload is discarded. `None` leaves
    /// the payload to the call; none of it may have been read then. `spare` is [`Call::spare`]. An error ends the
    /// connection.
    fn take(
        &self,
        _kind: u16,
        _control: &[u8],
        _spare: &mut Vec<u8>,
        _payload: &mut Incoming<'_>,
    ) -> WireResult<Option<UntilNext>> {
        Ok(None)
    }
}

/// Bounds of a serving side.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The most connections, including those that have not authenticated.
    pub connections: usize,
    /// The most connections of peers that have not authenticated.
    pub strangers: usize,
    /// How long a connection may stay idle between two requests.
    pub idle: Duration,
    /// The time in which a started frame has to arrive, or to be taken by the peer.
    pub transfer: Duration,
    /// The longest gap between two bytes of a started frame. Less than clients wait, so that they can resend it.
    pub stall: Duration,
    /// How long opening a connection may take.
    pub opening: Duration,
}

impl Default for ServeOptions {
    /// Connections may use a quarter of this process's open-file limit, at most 512; strangers a sixteenth, at most
    /// 64.
    fn default() -> ServeOptions {
        let files = files_at_most();
        ServeOptions {
            connections: (files / 4).clamp(8, 512),
            strangers: (files / 16).clamp(4, 64),
            idle: Duration::from_secs(15 * 60),
            transfer: Duration::from_secs(30),
            stall: Duration::from_secs(3),
            opening: Duration::from_secs(5),
        }
    }
}

/// The open-file limit of this process.
fn files_at_most() -> usize {
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE);
    limit.map_or(256, |(soft, _)| usize::try_from(soft).unwrap_or(usize::MAX))
}

/// One request, to be answered.
#[derive(Debug)]
pub struct Call<'a> {
    /// The request's kind.
    pub kind: u16,
    /// The request's control part.
    pub control: &'a [u8],
    /// The request's payload, in a buffer that the connection reuses.
    pub payload: &'a [u8],
    /// The value that [`Handler::take`] returned for the payload.
    pub taken: Option<UntilNext>,
    /// A buffer for the handler's use. It retains its memory from call to call, and its content from the last call.
    pub spare: &'a mut Vec<u8>,
    /// The state that the request before stored in `keep`, unless it has expired.
    pub until_next: Option<UntilNext>,
    /// State for the next request on this connection. It is dropped if none comes within [`ServeOptions::transfer`],
    /// and with the connection.
    pub keep: &'a mut Option<UntilNext>,
    /// Sends the reply.
    pub reply: Replier<'a>,
}

/// Sends the reply to one request.
#[derive(Debug)]
pub struct Replier<'a> {
    connection: &'a mut Connection,
    sent: &'a mut Sent,
    kind: u16,
    id: u64,
    transfer: Duration,
}

/// How much of the reply to a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    Nothing,
    Part,
    All,
}

impl Call<'_> {
    /// Sends the reply; the payload is sent from the caller's memory.
    pub fn reply(self, control: &[u8], payload: &[IoSlice<'_>]) -> WireResult<()> {
        self.reply.send(control, payload)
    }
}

impl<'a> Replier<'a> {
    /// Sends the reply; the payload is sent from the caller's memory.
    pub fn send(self, control: &[u8], payload: &[IoSlice<'_>]) -> WireResult<()> {
        self.send_by(|connection, kind, id, until| {
            connection.send(kind, id, control, payload, until)
        })
    }

    /// Sends the reply by `send`, which gets its kind, its id and its deadline.
    fn send_by(
        self,
        send: impl FnOnce(&mut Connection, u16, u64, Instant) -> WireResult<()>,
    ) -> WireResult<()> {
        *self.sent = Sent::Part;
        let until = Instant::now() + self.transfer;
        let done = send(self.connection, self.kind | REPLY, self.id, until);
        *self.sent = match &done {
            Ok(()) => Sent::All,
            Err(WireError::TooLarge { .. }) => Sent::Nothing,
            Err(_) => Sent::Part,
        };
        done
    }

    /// Begins a reply whose payload of `total` bytes is sent as it is produced.
    pub fn begin(self, control: &[u8], total: u64) -> WireResult<Outgoing<'a>> {
        let until = Instant::now() + self.transfer;
        let begun = self
            .connection
            .send_head(self.kind | REPLY, self.id, control, total, until);
        if !matches!(begun, Err(WireError::TooLarge { .. })) {
            *self.sent = Sent::Part;
        }
        begun?;
        let mut outgoing = Outgoing {
            connection: self.connection,
            sent: self.sent,
            left: total,
            until,
        };
        outgoing.give(&[])?;
        Ok(outgoing)
    }

    /// Sends the reply; the payload is a part of a file, which the kernel sends without a copy. `sum`: see
    /// [`Outgoing::give_file`].
    pub fn send_file(
        self,
        control: &[u8],
        file: &File,
        at: u64,
        len: u64,
        sum: u32,
    ) -> WireResult<()> {
        self.begin(control, len)?.give_file(file, at, len, sum)
    }

    /// Whether the payload is sent with a checksum.
    pub fn sums(&self) -> bool {
        self.connection.sums()
    }

    /// Whether file descriptors can be sent with the reply.
    pub fn hands_files(&self) -> bool {
        self.connection.hands_files()
    }

    /// Sends the reply together with at most [`MAX_FILES`](super::MAX_FILES) file descriptors.
    pub fn send_files(self, control: &[u8], files: &[BorrowedFd<'_>]) -> WireResult<()> {
        self.send_by(|connection, kind, id, until| {
            connection.send_files(kind, id, control, files, until)
        })
    }

    /// Reports to the peer that this request failed for a reason that no reply of the service expresses, such as an
    /// unknown kind.
    pub fn fault(self, text: &str) -> WireResult<()> {
        *self.sent = Sent::Part;
        fault(self.connection, self.id, text, self.transfer)?;
        *self.sent = Sent::All;
        Ok(())
    }
}

/// The payload of a reply while it is sent. If not all of it is given, the connection is closed.
#[derive(Debug)]
pub struct Outgoing<'a> {
    connection: &'a mut Connection,
    sent: &'a mut Sent,
    left: u64,
    until: Instant,
}

impl Outgoing<'_> {
    /// Bytes that are still to be given.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Sends more of the payload, at most [`Outgoing::left`].
    pub fn give(&mut self, bytes: &[u8]) -> WireResult<()> {
        let left = self.left_after(bytes.len() as u64)?;
        self.connection.send_more(bytes, self.until)?;
        self.given(left);
        Ok(())
    }

    /// Sends a part of a file as more of the payload, at most [`Outgoing::left`]; the kernel sends it without a copy.
    /// `sum` is its CRC-32C, ignored where the payload is sent without a checksum ([`Replier::sums`]).
    pub fn give_file(&mut self, file: &File, at: u64, len: u64, sum: u32) -> WireResult<()> {
        let left = self.left_after(len)?;
        self.connection.send_file(file, at, len, sum, self.until)?;
        self.given(left);
        Ok(())
    }

    fn left_after(&self, len: u64) -> WireResult<u64> {
        let left = self.left.checked_sub(len);
        left.ok_or_else(|| {
            let text = "a reply is longer than announced";
            self.connection.protocol(text.into())
        })
    }

    fn given(&mut self, left: u64) {
        self.left = left;
        if left == 0 {
            *self.sent = Sent::All;
        }
    }
}

fn fault(connection: &mut Connection, id: u64, text: &str, transfer: Duration) -> WireResult<()> {
    connection.send(
        kind::FAULT,
        id,
        text.as_bytes(),
        &[],
        Instant::now() + transfer,
    )
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Serving {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    listener: Listener,
    handler: Arc<dyn Handler>,
    options: ServeOptions,
    roster: Roster,
    stop: AtomicBool,
    /// Guards the waits of the acceptor and of `end`.
    lock: Mutex<()>,
    changed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("listener", &self.listener)
            .field("roster", &self.roster)
            .finish()
    }
}

/// Serves with the default bounds.
pub fn serve(listener: Listener, handler: Arc<dyn Handler>) -> WireResult<Serving> {
    serve_with(listener, handler, ServeOptions::default())
}

/// Serves until the returned [`Serving`] is stopped or dropped.
pub fn serve_with(
    listener: Listener,
    handler: Arc<dyn Handler>,
    options: ServeOptions,
) -> WireResult<Serving> {
    let shared = Arc::new(Shared {
        roster: Roster::new(options.connections.max(1), options.strangers.max(1)),
        listener,
        handler,
        options,
        stop: AtomicBool::new(false),
        lock: Mutex::new(()),
        changed: Condvar::new(),
    });
    let acceptor = {
        let shared = shared.clone();
        thread::Builder::new()
            .name("slabfs-accept".into())
            .spawn(move || accept(&shared))
    };
    let acceptor = acceptor.map_err(|source| WireError::Io {
        addr: shared.listener.addr().to_string(),
        doing: "starting a thread",
        source,
    })?;
    Ok(Serving {
        shared,
        acceptor: Some(acceptor),
    })
}

impl Serving {
    /// The address it listens on.
    pub fn addr(&self) -> &Addr {
        self.shared.listener.addr()
    }

    /// The number of connections at present.
    pub fn connections(&self) -> usize {
        self.shared.roster.len()
    }

    /// Accepts no more connections, lets running requests end (their replies have two seconds to be sent), closes all
    /// connections and joins every thread.
    pub fn stop(mut self) {
        self.end(Duration::from_secs(2));
    }

    /// As [`Serving::stop`], but at once: peers see the connection break as if the process had been killed. A running
    /// handler is still waited for.
    pub fn abort(mut self) {
        self.end(Duration::ZERO);
    }

    fn end(&mut self, patience: Duration) {
        let Some(acceptor) = self.acceptor.take() else {
            return;
        };
        let shared = &self.shared;
        {
            let _held = shared.lock.lock();
            shared.stop.store(true, Ordering::Release);
            shared.changed.notify_all();
        }
        if let Err(e) = shared.listener.wake() {
            tracing::warn!(addr = %shared.listener.addr(), "waking the acceptor: {e}");
        }
        if acceptor.join().is_err() {
            tracing::error!("the accepting thread panicked");
        }
        // No more requests come in; replies still go out.
        shared.roster.shutdown(Shutdown::Read);
        let until = Instant::now() + patience;
        let mut held = shared.lock.lock();
        while shared.roster.len() > 0 && !shared.changed.wait_until(&mut held, until).timed_out() {}
        drop(held);
        shared.roster.shutdown(Shutdown::Both);
        shared.roster.join();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end(Duration::from_secs(2));
    }
}

fn accept(shared: &Arc<Shared>) {
    let addr = shared.listener.addr();
    let mut failing = false;
    while !shared.stop.load(Ordering::Acquire) {
        match shared.listener.accept() {
            Ok((stream, peer)) => {
                failing = false;
                if let Err(e) = admit(shared, stream, peer) {
                    tracing::warn!(%addr, "cannot accept a connection: {e}");
                }
            }
            Err(_) if shared.stop.load(Ordering::Acquire) => break,
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
                ) => {}
            Err(e) => {
                if !failing {
                    tracing::error!(%addr, "accepting connections fails, retrying: {e}");
                }
                failing = true;
                // Out of descriptors or memory: close a connection to free some.
                shared.roster.evict();
                let mut held = shared.lock.lock();
                if !shared.stop.load(Ordering::Acquire) {
                    shared
                        .changed
                        .wait_for(&mut held, Duration::from_millis(50));
                }
            }
        }
    }
}

fn admit(shared: &Arc<Shared>, stream: Stream, peer: String) -> io::Result<()> {
    stream.set_up()?;
    let stream = Arc::new(stream);
    let mut connection = Connection::over(stream.clone(), peer);
    if !shared.roster.make_room() {
        // 36 bytes always fit a fresh socket's buffer, so the acceptor does not wait here.
        hello::refuse_busy(&mut connection, Instant::now() + Duration::from_millis(100));
        return Ok(());
    }
    let slot = shared.roster.slot(&stream);
    drop(stream);
    let thread = {
        let (shared, slot) = (shared.clone(), slot.clone());
        thread::Builder::new().name("slabfs-conn".into()).stack_size(1 << 20).spawn(move || {
            let peer = connection.peer().to_owned();
            match converse(&shared, &slot, connection) {
                Ok(()) | Err(WireError::Closed { .. }) => {}
                Err(_) if shared.stop.load(Ordering::Acquire) => {}
                Err(e) => tracing::warn!(addr = %shared.listener.addr(), "connection of {peer} ended: {e}"),
            }
            let _held = shared.lock.lock();
            shared.changed.notify_all();
        })?
    };
    shared.roster.add(slot, thread);
    Ok(())
}

/// Serves one connection, from its opening to its end.
fn converse(shared: &Shared, slot: &Slot, mut connection: Connection) -> WireResult<()> {
    let options = &shared.options;
    // With many strangers each gets less time.
    let opening = match shared.roster.is_crowded() {
        true => options.opening.min(CROWDED),
        false => options.opening,
    };
    hello::as_server(
        &mut connection,
        shared.listener.key(),
        Instant::now() + opening,
    )?;
    let mut buffers = Buffers::default();
    let mut until_next: Option<UntilNext> = None;
    let mut last = 0;
    connection.set_stall(options.stall);
    while !shared.stop.load(Ordering::Acquire) {
        slot.set(Doing::Idle);
        let begun = Instant::now();
        if until_next.is_some() && !connection.wait(begun + options.transfer)? {
            until_next = None;
        }
        if !connection.wait(begun + options.idle.min(WARM))? {
            // Idle for a while: free the memory for others.
            buffers = Buffers::default();
            if !connection.wait(begun + options.idle)? {
                // It closes silently; the client's pool reconnects when needed.
                return Ok(());
            }
        }
        // The first byte has arrived.
        slot.set(Doing::Receiving);
        let head = connection.recv_head(buffers.control(), begun, options.transfer)?;
        if head.kind < FIRST_FREE_KIND || head.kind & REPLY != 0 {
            return Err(connection.protocol(format!("kind {:#06x} is not a request", head.kind)));
        }
        // A peer's request ids increase. A repeated one was duplicated on the way: executing it again could undo a
        // later request.
        if head.id <= last {
            return Err(connection.broken(format!("request {} after request {last}", head.id)));
        }
        last = head.id;
        let (taken, left) = take(shared, &mut connection, &mut buffers, &head)?;
        if left > 0 {
            Incoming::new(&mut connection, &head, Instant::now() + options.transfer)
                .read_next(left, buffers.payload())?;
        }
        slot.set(Doing::Busy);
        let mut sent = Sent::Nothing;
        let outcome = {
            let (control, payload, spare) = buffers.split(left);
            let reply = Replier {
                connection: &mut connection,
                sent: &mut sent,
                kind: head.kind,
                id: head.id,
                transfer: options.transfer,
            };
            let call = Call {
                kind: head.kind,
                control,
                payload,
                taken,
                spare,
                until_next: until_next.take(),
                keep: &mut until_next,
                reply,
            };
            catch_unwind(AssertUnwindSafe(|| shared.handler.handle(call)))
        };
        let failed = match (outcome, sent) {
            (Ok(result), Sent::All) => {
                result?;
                None
            }
            (Ok(Err(e)), Sent::Part) => return Err(e),
            // Not answered, so that the client sends it again, here or to another process of the service.
            (Ok(Err(e @ WireError::Unavailable { .. })), Sent::Nothing) => {
                tracing::debug!(kind = head.kind, "a request is not answered: {e}");
                return Ok(());
            }
            (Ok(Err(e)), Sent::Nothing) => {
                tracing::error!(kind = head.kind, "a request failed: {e}");
                Some(e.to_string())
            }
            (Ok(Ok(())), _) => {
                tracing::error!(kind = head.kind, "a request was not answered");
                Some("no answer was given".to_owned())
            }
            (Err(_), Sent::Nothing) => {
                let peer = connection.peer();
                tracing::error!(kind = head.kind, "handling a request of {peer} panicked");
                Some("internal error, see the server's log".to_owned())
            }
            (Err(_), _) => {
                return Err(connection.protocol("the handler panicked in its reply".into()));
            }
        };
        if let Some(text) = failed {
            fault(&mut connection, head.id, &text, options.transfer)?;
        }
        buffers.relax();
    }
    Ok(())
}

/// Lets the handler take the payload. Returns its result, and how much of the payload is still to be received.
fn take(
    shared: &Shared,
    connection: &mut Connection,
    buffers: &mut Buffers,
    head: &Head,
) -> WireResult<(Option<UntilNext>, usize)> {
    if head.payload == 0 {
        return Ok((None, 0));
    }
    let until = Instant::now() + shared.options.transfer;
    let (control, _, spare) = buffers.split(0);
    let mut payload = Incoming::new(connection, head, until);
    let taken = catch_unwind(AssertUnwindSafe(|| {
        (shared.handler).take(head.kind, control, spare, &mut payload)
    }));
    let left = payload.left();
    match taken {
        Ok(Ok(Some(taken))) => {
            payload.throw_away()?;
            Ok((Some(taken), 0))
        }
        Ok(Ok(None)) if left == head.payload => Ok((None, left)),
        Ok(Ok(None)) => {
            Err(connection.protocol("the handler read a part of a payload only".into()))
        }
        Ok(Err(e)) => Err(e),
        Err(_) => Err(connection.protocol("the handler panicked on a payload".into())),
    }
}
