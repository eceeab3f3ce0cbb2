//! Frames over one stream; every wait has a deadline.
//!
//! A read or write in progress has a fixed deadline (`until`), which a peer that sends a byte now and then does not
//! extend. Only the wait for the first byte of a frame may have a longer one.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut},
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::socket::Shutdown;
use smallvec::SmallVec;

use super::{
    Key, WireError, WireResult,
    frame::{Bad, HEADER, Header, MAX_CONTROL, MAX_FILES, MAX_OPENING, MAX_PAYLOAD, SUM, crc},
    hello,
    stream::Stream,
};
use crate::addr::Addr;
use crate::checksum::{combined, crc32c};
use crate::interrupt;

/// Bytes read ahead in one call: a header, most control parts, and small payloads.
const AHEAD: usize = 8 << 10;
/// The most by which a payload buffer grows before its bytes arrive: a length in a header alone costs little memory,
/// and the new part is still in the processor's cache when the bytes come.
const GROW: usize = 1 << 20;
/// Buffers above this are freed once their message is done.
const KEEP: usize = 8 << 20;
/// The most payload bytes received before they are summed: they are still in the processor's cache then.
const SUMMED_AT_ONCE: usize = 256 << 10;
/// Bytes that are summed and then sent by one call.
const SENT_AT_ONCE: usize = 1 << 20;
/// How long opening a connection may take, at most and at least.
const OPENING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));
/// The longest gap between two bytes within a frame, unless the owner of the connection sets another.
const STALL: Duration = Duration::from_secs(10);
/// How much later than requested a timeout may expire; saves a system call a read.
const SLACK: Duration = Duration::from_millis(100);

/// Buffers of one connection, reused from frame to frame: warm memory is several times faster than fresh, zeroed
/// memory.
#[derive(Debug, Default)]
pub struct Buffers {
    control: Vec<u8>,
    /// Its length is the largest needed so far, not that of the current frame.
    payload: Vec<u8>,
    /// For use by the handler that answers.
    spare: Vec<u8>,
}

impl Buffers {
    /// Frees buffers that grew large for an unusual message.
    pub(super) fn relax(&mut self) {
        for buffer in [&mut self.control, &mut self.payload, &mut self.spare] {
            if buffer.capacity() > KEEP {
                *buffer = Vec::new();
            }
        }
    }

    pub(super) fn control(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    pub(super) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.payload
    }

    /// Control part and payload of the frame last received, and the spare buffer.
    pub(super) fn split(&mut self, payload: usize) -> (&[u8], &[u8], &mut Vec<u8>) {
        (&self.control, &self.payload[..payload], &mut self.spare)
    }
}

/// One received frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// The frame's kind: one of a service's kinds, with [`super::REPLY`] set in a reply.
    pub kind: u16,
    /// The request's id.
    pub id: u64,
    /// The small, structured part.
    pub control: &'a [u8],
    /// The bulk bytes.
    pub payload: &'a [u8],
}

/// The decoded header of a received frame. The control part has been received and checked; the payload is still to
/// come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) kind: u16,
    pub(super) id: u64,
    pub(super) payload: usize,
    /// A checksum follows the payload.
    pub(super) summed: bool,
}

/// A connection that has been opened: both sides have agreed on the protocol version and authenticated.
#[derive(Debug)]
pub struct Connection {
    stream: Arc<Stream>,
    peer: String,
    version: u16,
    max_control: usize,
    max_payload: usize,
    /// The timeouts that are set in the kernel at present.
    read_timeout: Duration,
    write_timeout: Duration,
    ahead: Box<[u8]>,
    start: usize,
    end: usize,
    /// Header and control part of the frame being sent.
    out: Vec<u8>,
    /// File descriptors that arrived with the data, while they are expected; otherwise the kernel closes them.
    files: Option<Vec<OwnedFd>>,
    /// Whether payloads are sent with their checksums. Not within one host: there the kernel copies them from memory
    /// to memory.
    sums: bool,
    /// The payload being sent: its checksum so far, and the bytes still to come.
    sending: (u32, u64),
    /// The longest gap between two bytes within a frame.
    stall: Duration,
}

impl Connection {
    /// Connects to `addr` and opens the connection, all before `until`. TCP needs the shared key.
    pub fn connect(addr: &Addr, key: Option<&Key>, until: Instant) -> WireResult<Connection> {
        let peer = addr.to_string();
        if matches!(addr, Addr::Tcp(_)) && key.is_none() {
            let reason = "TCP needs the shared key (--key-file)".into();
            return Err(WireError::Refused { addr: peer, reason });
        }
        let stream = Stream::connect(addr, until).map_err(|source| WireError::Io {
            addr: peer.clone(),
            doing: "connecting",
            source,
        })?;
        let mut connection = Connection::over(Arc::new(stream), peer);
        // If a frame is damaged on the way, both sides may wait for the other: leave time for a second attempt.
        let now = Instant::now();
        let share = until.saturating_duration_since(now) / 3;
        let opening = until.min(now + share.clamp(OPENING.1, OPENING.0));
        hello::as_client(&mut connection, key, opening)?;
        connection.max_control = MAX_CONTROL;
        connection.max_payload = MAX_PAYLOAD;
        Ok(connection)
    }

    /// A connection over a fresh stream, not yet opened: it accepts only short control parts, and no payload.
    pub(super) fn over(stream: Arc<Stream>, peer: String) -> Connection {
        Connection {
            sums: stream.is_tcp(),
            sending: (0, 0),
            stall: STALL,
            stream,
            peer,
            version: 0,
            max_control: MAX_OPENING,
            max_payload: 0,
            read_timeout: Duration::ZERO,
            write_timeout: Duration::ZERO,
            ahead: vec![0; AHEAD].into(),
            start: 0,
            end: 0,
            out: Vec::new(),
            files: None,
        }
    }

    /// The address of the other end, for messages.
    pub fn peer(&self) -> &str {
        &self.peer
    }

    /// The protocol version both sides agreed on.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Whether file descriptors can be sent over this connection.
    pub(super) fn hands_files(&self) -> bool {
        !self.stream.is_tcp()
    }

    /// From now on received file descriptors are stored.
    pub(super) fn expect_files(&mut self) {
        self.files = Some(Vec::new());
    }

    /// Returns the file descriptors received since `expect_files`, and stops expecting them.
    pub(super) fn take_files(&mut self) -> Vec<OwnedFd> {
        self.files.take().unwrap_or_default()
    }

    /// Whether payloads are sent with their checksums.
    pub(super) fn sums(&self) -> bool {
        self.sums
    }

    /// Sets the longest gap between two bytes within a frame.
    pub(super) fn set_stall(&mut self, stall: Duration) {
        self.stall = stall;
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// From now on frames carry this version, and control parts of full size are accepted.
    pub(super) fn opened(&mut self, version: u16) {
        self.version = version;
        self.max_control = MAX_CONTROL;
        self.max_payload = MAX_PAYLOAD;
    }

    /// Sends one frame. The payload is sent from the caller's memory, in one vectored write if the socket takes it.
    pub fn send(
        &mut self,
        kind: u16,
        id: u64,
        control: &[u8],
        payload: &[IoSlice<'_>],
        until: Instant,
    ) -> WireResult<()> {
        let total = payload.iter().map(|s| s.len() as u64).sum::<u64>();
        let mut out = std::mem::take(&mut self.out);
        out.clear();
        let summed = self.encode(kind, id, control, total, &mut out)?;
        let sent = match summed {
            true => self.send_summed(&out, payload, until),
            false => {
                let mut slices: SmallVec<[IoSlice<'_>; 16]> =
                    SmallVec::with_capacity(payload.len() + 1);
                slices.push(IoSlice::new(&out));
                slices.extend(payload.iter().filter(|s| !s.is_empty()).copied());
                self.write_all(&mut slices, until)
            }
        };
        if out.capacity() <= KEEP {
            self.out = out;
        }
        sent
    }

    /// Appends the header and the control part of a frame with a payload of `total` bytes, unless one of them is too
    /// large. Returns whether a checksum follows the payload.
    fn encode(
        &self,
        kind: u16,
        id: u64,
        control: &[u8],
        total: u64,
        out: &mut Vec<u8>,
    ) -> WireResult<bool> {
        check_size("payload", total, MAX_PAYLOAD)?;
        check_size("control part", control.len() as u64, MAX_CONTROL)?;
        let summed = self.sums && total > 0;
        let payload = (total as u32, summed);
        Header::encode(self.version, kind, id, control, payload, out);
        Ok(summed)
    }

    /// Sends a payload and its checksum after `head`, a piece at a time: each piece is still in the processor's cache
    /// when the kernel copies it, since it has just been summed.
    fn send_summed(
        &mut self,
        head: &[u8],
        payload: &[IoSlice<'_>],
        until: Instant,
    ) -> WireResult<()> {
        let mut sum = 0;
        let mut slices: SmallVec<[IoSlice<'_>; 16]> = SmallVec::new();
        slices.push(IoSlice::new(head));
        let mut room = SENT_AT_ONCE;
        for slice in payload {
            let mut rest = &slice[..];
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(rest.len().min(room));
                (rest, room) = (later, room - piece.len());
                sum = combined(sum, crc32c(piece), piece.len() as u64);
                slices.push(IoSlice::new(piece));
                if room == 0 {
                    self.write_all(&mut slices, until)?;
                    slices.clear();
                    room = SENT_AT_ONCE;
                }
            }
        }
        let trailer = sum.to_le_bytes();
        let last = slices.into_iter().chain([IoSlice::new(&trailer)]);
        self.write_all(&mut last.collect::<SmallVec<[IoSlice<'_>; 16]>>(), until)
    }

    /// Sends the beginning of a frame whose payload of `total` bytes follows by [`Connection::send_more`].
    pub fn send_head(
        &mut self,
        kind: u16,
        id: u64,
        control: &[u8],
        total: u64,
        until: Instant,
    ) -> WireResult<()> {
        let mut out = Vec::with_capacity(HEADER + control.len());
        self.encode(kind, id, control, total, &mut out)?;
        self.sending = (0, total);
        self.write_all(&mut [IoSlice::new(&out)], until)
    }

    /// Sends one frame without payload, together with at most [`MAX_FILES`] file descriptors.
    pub(super) fn send_files(
        &mut self,
        kind: u16,
        id: u64,
        control: &[u8],
        files: &[BorrowedFd<'_>],
        until: Instant,
    ) -> WireResult<()> {
        check_size("list of files", files.len() as u64, MAX_FILES)?;
        let mut out = Vec::with_capacity(HEADER + control.len());
        self.encode(kind, id, control, 0, &mut out)?;
        // The descriptors go with the first bytes.
        let sent = loop {
            self.may_write(until)?;
            match self.stream.write_with_files(&out, files) {
                Err(e) if again(&e) => {}
                Err(e) => return Err(self.io("sending", e)),
                Ok(0) => return Err(self.io("sending", io::ErrorKind::WriteZero.into())),
                Ok(sent) => break sent,
            }
        };
        match sent < out.len() {
            true => self.write_all(&mut [IoSlice::new(&out[sent..])], until),
            false => Ok(()),
        }
    }

    /// Sends more of the payload of the frame that was begun.
    pub fn send_more(&mut self, bytes: &[u8], until: Instant) -> WireResult<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.sums {
            return self.write_all(&mut [IoSlice::new(bytes)], until);
        }
        match self.sent(crc32c(bytes), bytes.len() as u64) {
            None => self.write_all(&mut [IoSlice::new(bytes)], until),
            Some(sum) => self.write_all(&mut [IoSlice::new(bytes), IoSlice::new(&sum)], until),
        }
    }

    /// Adds a part of the payload to the checksum; returns the checksum with the last part.
    fn sent(&mut self, sum: u32, len: u64) -> Option<[u8; SUM]> {
        let (before, left) = self.sending;
        self.sending = (combined(before, sum, len), left.saturating_sub(len));
        (self.sending.1 == 0).then(|| self.sending.0.to_le_bytes())
    }

    /// Sends a part of a file as more of the payload of the frame that was begun, with `sendfile` from the page
    /// cache. `sum` is the checksum of the part; it is ignored where payloads go without one.
    pub(super) fn send_file(
        &mut self,
        file: &File,
        at: u64,
        len: u64,
        sum: u32,
        until: Instant,
    ) -> WireResult<()> {
        self.send_from_file(file, at, len, until)?;
        match self.sums.then(|| self.sent(sum, len)).flatten() {
            Some(sum) => self.write_all(&mut [IoSlice::new(&sum)], until),
            None => Ok(()),
        }
    }

    fn send_from_file(&mut self, file: &File, at: u64, len: u64, until: Instant) -> WireResult<()> {
        let (mut from, end) = (at as i64, (at + len) as i64);
        while from < end {
            self.may_write(until)?;
            let left = (end - from) as usize;
            match self.stream.send_file(file, &mut from, left) {
                Err(e) if again(&e) => {}
                // The filesystem does not support it.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) => {
                    let mut bytes = vec![0; left.min(AHEAD * 32)];
                    file.read_exact_at(&mut bytes, from as u64)
                        .map_err(|e| self.io("reading a file that is sent", e))?;
                    self.write_all(&mut [IoSlice::new(&bytes)], until)?;
                    from += bytes.len() as i64;
                }
                Err(e) => return Err(self.io("sending", e)),
                Ok(0) => {
                    let end = io::ErrorKind::UnexpectedEof.into();
                    return Err(self.io("reading a file that is sent", end));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Receives one complete frame. Its first byte may come until `first`; the remainder has to follow within `rest`.
    pub fn recv<'b>(
        &mut self,
        buffers: &'b mut Buffers,
        first: Instant,
        rest: Duration,
    ) -> WireResult<Frame<'b>> {
        let head = self.recv_head(&mut buffers.control, first, rest)?;
        Incoming::new(self, &head, Instant::now() + rest)
            .read_next(head.payload, &mut buffers.payload)?;
        Ok(Frame {
            kind: head.kind,
            id: head.id,
            control: &buffers.control,
            payload: &buffers.payload[..head.payload],
        })
    }

    /// Waits for the first byte of a frame; `false` when none has come by `until`.
    pub(super) fn wait(&mut self, until: Instant) -> WireResult<bool> {
        if self.start < self.end {
            return Ok(true);
        }
        match self.fill(until, false) {
            Ok(0) => Err(WireError::Closed {
                addr: self.peer.clone(),
            }),
            Ok(_) => Ok(true),
            Err(WireError::Deadline { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Receives header and control part. Returns [`WireError::Closed`] only if the peer closed between two frames.
    pub(super) fn recv_head(
        &mut self,
        control: &mut Vec<u8>,
        first: Instant,
        rest: Duration,
    ) -> WireResult<Head> {
        if self.start == self.end && self.fill(first, false)? == 0 {
            return Err(WireError::Closed {
                addr: self.peer.clone(),
            });
        }
        let until = Instant::now() + rest;
        let mut bytes = [0; HEADER];
        self.read_exact(&mut bytes, until)?;
        let header =
            Header::decode(&bytes, self.max_control, self.max_payload).map_err(
                |bad| match bad {
                    Bad::Broken(text) => self.broken(text),
                    Bad::Protocol(text) => self.protocol(text),
                },
            )?;
        if header.version != self.version {
            return Err(self.broken(format!(
                "a frame of version {} on a connection of version {}",
                header.version, self.version
            )));
        }
        control.clear();
        self.recv_payload(header.control as usize, control, until, None)?;
        if crc(&bytes[..28], &control[..header.control as usize]) != header.crc {
            return Err(self.broken("the checksum of a control part does not match".into()));
        }
        Ok(Head {
            kind: header.kind,
            id: header.id,
            payload: header.payload as usize,
            summed: header.summed && header.payload > 0,
        })
    }

    /// Receives a payload into the front of `buffer`. The buffer grows as the bytes come and never shrinks. `sum` is
    /// extended by their checksum.
    fn recv_payload(
        &mut self,
        len: usize,
        buffer: &mut Vec<u8>,
        until: Instant,
        mut sum: Option<&mut u32>,
    ) -> WireResult<()> {
        let at_once = match sum {
            Some(_) => SUMMED_AT_ONCE,
            None => usize::MAX,
        };
        let mut at = 0;
        while at < len {
            if buffer.len() == at {
                if at > 0 {
                    // Reserve all at once, or the received bytes would be copied at each growth. If the address space
                    // does not suffice, the buffer grows as far as possible.
                    let _ = buffer.try_reserve_exact(len - at);
                }
                buffer.resize(len.min(at + GROW), 0);
            }
            let to = buffer.len().min(len).min(at.saturating_add(at_once));
            self.read_exact(&mut buffer[at..to], until)?;
            if let Some(sum) = &mut sum {
                **sum = combined(**sum, crc32c(&buffer[at..to]), (to - at) as u64);
            }
            at = to;
        }
        Ok(())
    }

    /// Fills all of `out`.
    fn read_exact(&mut self, mut out: &mut [u8], until: Instant) -> WireResult<()> {
        while !out.is_empty() {
            if self.start < self.end {
                let n = self.take_ahead(out);
                out = &mut out[n..];
            } else if out.len() >= AHEAD {
                let n = self.read_some(until, true, |stream| stream.read(out))?;
                self.not_the_end(n)?;
                out = &mut out[n..];
            } else {
                let n = self.fill(until, true)?;
                self.not_the_end(n)?;
            }
        }
        Ok(())
    }

    /// Moves bytes that were read ahead to the front of `out`.
    fn take_ahead(&mut self, out: &mut [u8]) -> usize {
        let n = out.len().min(self.end - self.start);
        out[..n].copy_from_slice(&self.ahead[self.start..self.start + n]);
        self.start += n;
        n
    }

    /// Fills all of `outs` and extends `sum` by their checksum.
    fn read_exact_summed(
        &mut self,
        mut outs: &mut [IoSliceMut<'_>],
        until: Instant,
        sum: &mut u32,
    ) -> WireResult<()> {
        IoSliceMut::advance_slices(&mut outs, 0);
        while let Some(first) = outs.first_mut() {
            let many = first.len() < SUMMED_AT_ONCE && self.start == self.end;
            let n = if self.start < self.end {
                self.take_ahead(first)
            } else if many {
                let mut room = SUMMED_AT_ONCE;
                let fit = outs.iter().take_while(|out| {
                    let fits = out.len() <= room;
                    room = room.saturating_sub(out.len());
                    fits
                });
                let fit = fit.count();
                self.read_some(until, true, |stream| stream.read_vectored(&mut outs[..fit]))?
            } else {
                let most = &mut first[..SUMMED_AT_ONCE];
                self.read_some(until, true, |stream| stream.read(most))?
            };
            self.not_the_end(n)?;
            let mut rest = n;
            for out in outs.iter() {
                let got = out.len().min(rest);
                *sum = combined(*sum, crc32c(&out[..got]), got as u64);
                rest -= got;
                if rest == 0 {
                    break;
                }
            }
            IoSliceMut::advance_slices(&mut outs, n);
        }
        Ok(())
    }

    /// Fills all of `outs`.
    fn read_exact_vectored(
        &mut self,
        mut outs: &mut [IoSliceMut<'_>],
        until: Instant,
    ) -> WireResult<()> {
        while self.start < self.end && !outs.is_empty() {
            let n = self.take_ahead(&mut outs[0]);
            IoSliceMut::advance_slices(&mut outs, n);
        }
        IoSliceMut::advance_slices(&mut outs, 0);
        while !outs.is_empty() {
            let n = self.read_some(until, true, |stream| stream.read_vectored(outs))?;
            self.not_the_end(n)?;
            IoSliceMut::advance_slices(&mut outs, n);
        }
        Ok(())
    }

    /// Reads bytes that have arrived, at most as many as fit `out`; returns 0 instead of waiting.
    fn read_ready(&mut self, out: &mut [u8]) -> WireResult<usize> {
        if self.start < self.end {
            return Ok(self.take_ahead(out));
        }
        loop {
            match self.stream.read_ready(out) {
                Ok(Some(n)) => {
                    self.not_the_end(n)?;
                    return Ok(n);
                }
                Ok(None) => return Ok(0),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(self.io("receiving", e)),
            }
        }
    }

    fn fill(&mut self, until: Instant, begun: bool) -> WireResult<usize> {
        let mut ahead = std::mem::take(&mut self.ahead);
        let mut files = self.files.take();
        let got = self.read_some(until, begun, |stream| match &mut files {
            Some(files) => stream.read_with_files(&mut ahead, files),
            None => stream.read(&mut ahead),
        });
        (self.ahead, self.files) = (ahead, files);
        self.start = 0;
        self.end = *got.as_ref().unwrap_or(&0);
        got
    }

    /// Reads the next bytes. Within a frame that was `begun` the wait is limited by `stall`: bytes lost on the way
    /// never arrive, and time must remain to resend everything.
    fn read_some(
        &mut self,
        until: Instant,
        begun: bool,
        mut read: impl FnMut(&Stream) -> io::Result<usize>,
    ) -> WireResult<usize> {
        let stall = begun.then(|| Instant::now() + self.stall);
        let until = stall.map_or(until, |stall| stall.min(until));
        loop {
            let left = self.left(until, "receiving").map_err(|late| {
                match stall.is_some_and(|stall| stall <= until) {
                    true => self.broken(format!(
                        "the rest of a message did not come within {:?}",
                        self.stall
                    )),
                    false => late,
                }
            })?;
            if let Some(timeout) = rearm(self.read_timeout, interrupt::slice(left)) {
                self.stream
                    .set_read_timeout(timeout)
                    .map_err(|e| self.io("setting a timeout", e))?;
                self.read_timeout = timeout;
            }
            match read(&self.stream) {
                Err(e) if again(&e) => {
                    interrupt::check();
                }
                Err(e) => return Err(self.io("receiving", e)),
                Ok(n) => return Ok(n),
            }
        }
    }

    fn write_all(&mut self, mut slices: &mut [IoSlice<'_>], until: Instant) -> WireResult<()> {
        while !slices.is_empty() {
            self.may_write(until)?;
            match self.stream.write_vectored(slices) {
                Err(e) if again(&e) => {}
                Err(e) => return Err(self.io("sending", e)),
                Ok(0) => return Err(self.io("sending", io::ErrorKind::WriteZero.into())),
                Ok(n) => IoSlice::advance_slices(&mut slices, n),
            }
        }
        Ok(())
    }

    /// Checks before a write that time is left, and sets the kernel's timeout.
    fn may_write(&mut self, until: Instant) -> WireResult<()> {
        let left = self.left(until, "sending")?;
        if let Some(timeout) = rearm(self.write_timeout, left) {
            self.stream
                .set_write_timeout(timeout)
                .map_err(|e| self.io("setting a timeout", e))?;
            self.write_timeout = timeout;
        }
        Ok(())
    }

    fn not_the_end(&self, n: usize) -> WireResult<()> {
        if n == 0 {
            return Err(self.io(
                "receiving the rest of a message",
                io::ErrorKind::UnexpectedEof.into(),
            ));
        }
        Ok(())
    }

    fn left(&self, until: Instant, what: &'static str) -> WireResult<Duration> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || interrupt::is_raised() {
            return Err(WireError::Deadline {
                addr: self.peer.clone(),
                what,
            });
        }
        Ok(left)
    }

    fn io(&self, doing: &'static str, source: io::Error) -> WireError {
        WireError::Io {
            addr: self.peer.clone(),
            doing,
            source,
        }
    }

    /// The error for data that was damaged on the way, or is out of step.
    pub(super) fn broken(&self, detail: String) -> WireError {
        WireError::Broken {
            addr: self.peer.clone(),
            detail,
        }
    }

    /// The error for a peer that violates the protocol.
    pub(super) fn protocol(&self, detail: String) -> WireError {
        WireError::Protocol {
            addr: self.peer.clone(),
            detail,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A server may hold the stream in order to shut it down; close it for the peer now.
        self.stream.shutdown(Shutdown::Both);
    }
}

/// The payload of a frame while it arrives, to be read into its places in order. The read of the last bytes also
/// compares the checksum, if there is one: until it succeeds, all earlier bytes may be damaged.
#[derive(Debug)]
pub struct Incoming<'c> {
    connection: &'c mut Connection,
    left: usize,
    until: Instant,
    /// The checksum of the bytes read so far, if there is one to compare with.
    sum: Option<u32>,
}

impl<'c> Incoming<'c> {
    pub(super) fn new(connection: &'c mut Connection, head: &Head, until: Instant) -> Incoming<'c> {
        Incoming {
            connection,
            left: head.payload,
            until,
            sum: head.summed.then_some(0),
        }
    }

    /// Whether a checksum follows.
    pub fn is_summed(&self) -> bool {
        self.sum.is_some()
    }

    /// Counts bytes that were read; after the last ones compares the checksum.
    fn got(&mut self, bytes: usize) -> WireResult<()> {
        self.left -= bytes;
        if self.left > 0 {
            return Ok(());
        }
        let Some(sum) = self.sum.take() else {
            return Ok(());
        };
        let mut expected = [0; SUM];
        self.connection.read_exact(&mut expected, self.until)?;
        match u32::from_le_bytes(expected) == sum {
            true => Ok(()),
            false => Err(self
                .connection
                .broken("the checksum of a payload does not match".into())),
        }
    }

    /// As [`Incoming::read`], for a caller that sums the bytes itself: `sum` returns the checksum of the filled
    /// `out`.
    pub fn read_with(&mut self, out: &mut [u8], sum: impl FnOnce(&[u8]) -> u32) -> WireResult<()> {
        self.has(out.len())?;
        self.connection
            .read_exact_vectored(&mut [IoSliceMut::new(out)], self.until)?;
        let len = out.len();
        let new = self.meanwhile(|| sum(out));
        if let Some(sum) = &mut self.sum {
            *sum = combined(*sum, new, len as u64);
        }
        self.got(len)
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Fills all of `outs`. Asking for more than is left is an error: the peer violated the protocol.
    pub fn read_vectored(&mut self, outs: &mut [IoSliceMut<'_>]) -> WireResult<()> {
        let want = outs.iter().map(|s| s.len()).sum::<usize>();
        self.has(want)?;
        match &mut self.sum {
            Some(sum) => self.connection.read_exact_summed(outs, self.until, sum)?,
            None => self.connection.read_exact_vectored(outs, self.until)?,
        }
        self.got(want)
    }

    /// Fills all of `out`. Asking for more than is left is an error: the peer violated the protocol.
    pub fn read(&mut self, out: &mut [u8]) -> WireResult<()> {
        self.read_vectored(&mut [IoSliceMut::new(out)])
    }

    /// Reads the next `len` bytes into the front of `buffer`, which grows as they come and never shrinks. Asking for
    /// more than is left is an error: the peer violated the protocol.
    pub fn read_next(&mut self, len: usize, buffer: &mut Vec<u8>) -> WireResult<()> {
        self.has(len)?;
        self.connection
            .recv_payload(len, buffer, self.until, self.sum.as_mut())?;
        self.got(len)
    }

    /// Runs `f`; the peer's deadline is extended by the time it takes.
    pub fn meanwhile<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = f();
        self.until += begun.elapsed();
        result
    }

    /// Receives and discards all that is left.
    pub(crate) fn throw_away(&mut self) -> WireResult<()> {
        let mut nowhere = vec![0; self.left.min(AHEAD * 8)];
        while self.left > 0 {
            let most = self.left.min(nowhere.len());
            self.read(&mut nowhere[..most])?;
        }
        Ok(())
    }

    /// Reads bytes that have arrived into `out` and returns their number. Waits only for the checksum after the last
    /// byte. For a caller that holds a lock on the destination: after 0 it releases the lock and [waits](Self::wait).
    /// `out` longer than what is left is an error: the peer violated the protocol.
    pub fn read_ready(&mut self, out: &mut [u8]) -> WireResult<usize> {
        self.has(out.len())?;
        let got = self.connection.read_ready(out)?;
        if let Some(sum) = &mut self.sum {
            *sum = combined(*sum, crc32c(&out[..got]), got as u64);
        }
        if got > 0 {
            self.got(got)?;
        }
        Ok(got)
    }

    /// Checks that at least `want` bytes are left.
    fn has(&self, want: usize) -> WireResult<()> {
        match want.checked_sub(self.left) {
            None | Some(0) => Ok(()),
            Some(short) => Err(self
                .connection
                .protocol(format!("payload ends {short} bytes early"))),
        }
    }

    /// Returns once there is more to read.
    pub fn wait(&mut self) -> WireResult<()> {
        if self.left == 0 || self.connection.start < self.connection.end {
            return Ok(());
        }
        let until = self.until;
        let got = (self.connection).read_some(until, true, |stream| stream.await_byte())?;
        self.connection.not_the_end(got)
    }

    /// Reads all that is left into `buffer`, and sets its length to exactly that.
    pub fn read_to(&mut self, buffer: &mut Vec<u8>) -> WireResult<()> {
        buffer.truncate(self.left);
        self.read_next(self.left, buffer)
    }

    /// The error for a reply whose content makes no sense.
    pub fn protocol(&self, detail: impl Into<String>) -> WireError {
        self.connection.protocol(detail.into())
    }
}

fn check_size(what: &'static str, bytes: u64, limit: usize) -> WireResult<()> {
    let limit = limit as u64;
    if bytes > limit {
        Err(WireError::TooLarge { what, bytes, limit })
    } else {
        Ok(())
    }
}

/// The timeout to set, if the current one does not fit a wait of `left`. The current one may be a little too long; it
/// may also be shorter, since an early wake-up only costs a look at the clock.
fn rearm(set: Duration, left: Duration) -> Option<Duration> {
    let fits = set <= left + SLACK && set >= left / 4 && !set.is_zero();
    // The kernel treats zero as unlimited, and counts microseconds.
    (!fits).then(|| left.max(Duration::from_micros(1)))
}

fn again(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_set_only_when_needed() {
        let s = Duration::from_secs;
        assert_eq!(rearm(Duration::ZERO, s(30)), Some(s(30)));
        assert_eq!(rearm(s(30), s(30)), None);
        assert_eq!(rearm(s(30), s(30) - Duration::from_millis(50)), None);
        assert_eq!(rearm(s(30), s(29)), Some(s(29)));
        assert_eq!(rearm(s(10), s(30)), None);
        assert_eq!(rearm(s(5), s(30)), Some(s(30)));
    }
}
