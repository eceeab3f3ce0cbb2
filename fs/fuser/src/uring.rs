//! Requests through `io_uring` (`Config::io_uring`).
//!
//! On `/dev/fuse` all event loops take requests from one queue, and one loop or the other is woken for each.
//! Through `io_uring` the kernel has a queue for each processor: a request goes into the queue of the processor
//! that the asking program runs on. A [`Ring`] is for some of these queues and has an event loop of its own. With
//! `Config::own_processors` there is one for each processor, which stays there: so program and event loop take turns on one
//! processor, and none is woken from its sleep. An answer and the wait for the next request are one call.
//!
//! # Entries
//! A queue has entries. An entry is a header and a buffer for the largest request or answer, at home in memory
//! that this module maps. It is at the kernel, which puts a request in it when there is one, or here, from then
//! until the request has been answered. Requests that are answered late, like those that wait for a lock, keep
//! theirs, so a queue gets more whenever the last one that was at the kernel came here: a request that
//! would let others go on always finds one. Entries cost address space, and memory when they are used.
//!
//! The kernel gives what waits in a queue, because there was no entry, only to one that comes with an answer, not to one that is
//! new. So after new ones a request is asked for that is answered at once ([`Ring::nudge`]: what
//! FUSE_NOTIFY_RETRIEVE brings), and again as long as its entry comes back with something that waited. Such a request goes to
//! the queue of the processor that it is asked for on, so rings are for those who may run on all processors.
//!
//! # Answers
//! Only the thread of a ring may hand its entries over. Another one that answers leaves the answer in a
//! list and wakes it by an eventfd. What came with a request after its own structure, like names and data, lies where the
//! answer's bytes go; so the answer to such a request is kept apart until the handler has returned.
//!
//! # What still comes through `/dev/fuse`
//! FORGET, INTERRUPT and notifications; and everything, if the entries are refused. So the other event loops run
//! as ever.
//!
//! # End
//! When the connection ends, the kernel gives back all its entries with `ENOTCONN`; an event loop ends when none is
//! left there.
//!
//! `Notifier::resend` does not reach requests that came through a ring.
//!
//! Source: Linux 6.14, `Documentation/filesystems/fuse/fuse-io-uring.rst` and `include/uapi/linux/fuse.h`.

use std::cell::Cell;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::opcode;
use io_uring::squeue;
use io_uring::types::Fd;
use io_uring::types::Fixed;
use log::debug;
use log::error;
use log::info;
use log::warn;
use nix::sched::CpuSet;
use nix::sched::sched_getaffinity;
use nix::sched::sched_setaffinity;
use nix::sys::eventfd::EfdFlags;
use nix::sys::eventfd::EventFd;
use nix::unistd::Pid;
use parking_lot::Mutex;
use smallvec::SmallVec;
use zerocopy::FromBytes;
use zerocopy::Immutable;
use zerocopy::IntoBytes;
use zerocopy::KnownLayout;

use crate::Filesystem;
use crate::INodeNo;
use crate::InitFlags;
use crate::KernelConfig;
use crate::channel::Channel;
use crate::channel::ChannelSender;
use crate::ll::fuse_abi::fuse_in_header;
use crate::ll::fuse_abi::fuse_notify_code;
use crate::ll::fuse_abi::fuse_opcode;
use crate::ll::fuse_abi::fuse_out_header;
use crate::passthrough::BackingId;
use crate::reply::ReplySender;
use crate::request::RequestWithSender;
use crate::session::SessionEventLoop;

/// `FUSE_IO_URING_CMD_REGISTER`: an entry is new and goes to the kernel.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`: an entry goes to the kernel with an answer.
const COMMIT_AND_FETCH: u32 = 2;
/// Entries that a queue begins with.
const ENTRIES: usize = 4;
/// Calls that fit into a ring at once; entries at the kernel do not count.
const CALLS: u32 = 128;
/// What says in a completion that somebody else has answered.
const ANSWERED: u64 = u64::MAX;
/// The header's part of an entry, in bytes, before the buffer: the kernel writes at its begin, and what lies at its end
/// goes on in the buffer.
const HEAD: usize = 4096;

/// Which request [`Ring::nudge`] asks for: the kernel's own numbers count from zero, and are even.
const NUDGE: u64 = 1 << 62;

/// Asks for pages that the kernel has (`struct fuse_notify_retrieve_out` and its header).
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Retrieve {
    header: fuse_out_header,
    unique: u64,
    node: u64,
    offset: u64,
    size: u32,
    padding: u32,
}

/// The header of an entry (`struct fuse_uring_req_header`).
#[repr(C)]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
struct Header {
    in_out: [u8; 128],
    op_in: [u8; 128],
    entry: EntryInOut,
}

/// `struct fuse_uring_ent_in_out`.
#[repr(C)]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
struct EntryInOut {
    flags: u64,
    /// Which request it is, to be given back with the answer.
    commit_id: u64,
    /// Bytes in the buffer.
    payload: u32,
    padding: u32,
    reserved: u64,
}

/// What goes with a command (`struct fuse_uring_cmd_req`).
#[repr(C)]
#[derive(IntoBytes, Immutable)]
struct Command {
    flags: u64,
    commit_id: u64,
    queue: u16,
    padding: [u8; 6],
}

/// Makes a ring; a `disabled` one belongs to the thread that enables it.
fn ring(disabled: bool) -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    let mut builder = IoUring::builder();
    builder
        .setup_single_issuer()
        .setup_defer_taskrun()
        .dontfork();
    if disabled {
        builder.setup_r_disabled();
    }
    builder.build(CALLS)
}

/// Tells the kernel that requests are taken from rings, if it offers them and they can be made here: once it has been
/// told, it waits for them. Returns the bytes of the largest request or answer.
pub(crate) fn ask_for(config: &mut KernelConfig) -> Option<usize> {
    if config
        .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
        .is_err()
    {
        info!("The kernel does not offer requests through io_uring");
        return None;
    }
    if let Err(error) = possible() {
        warn!("Requests do not come through io_uring: {error}");
        config.requested.remove(InitFlags::FUSE_OVER_IO_URING);
        return None;
    }
    // What the kernel wants room for: its least buffer, and as many pages as a request may have.
    let room = (config.max_write as usize).max(8192);
    let pages = room.div_ceil(page_size::get()).max(32);
    Some(pages * page_size::get())
}

/// Makes rings: one for each processor where the calling thread may run, if `stay`, and its thread stays there; else `loops`.
pub(crate) fn rings(
    channel: &Channel,
    room: usize,
    loops: usize,
    stay: bool,
) -> io::Result<Vec<Ring>> {
    let all = sched_getaffinity(Pid::from_raw(0))?;
    let allowed: Vec<_> = (0..CpuSet::count())
        .filter(|&cpu| all.is_set(cpu) == Ok(true))
        .collect();
    let loops = if stay { allowed.len() } else { loops };
    let shares = share(loops, &processors("possible")?, &allowed);
    let rings = shares
        .into_iter()
        .enumerate()
        .filter(|(_, queues)| !queues.is_empty());
    rings
        .map(|(place, queues)| {
            let processor = stay.then(|| allowed[place]);
            Ring::new(channel.sender(), queues, processor, room)
        })
        .collect()
}

/// Says why there can be no rings here.
fn possible() -> io::Result<()> {
    let all = sched_getaffinity(Pid::from_raw(0))?;
    let online = processors("online")?;
    if !online.iter().all(|&cpu| all.is_set(cpu.into()) == Ok(true)) {
        return Err(io::Error::other(
            "this process may not run on all processors",
        ));
    }
    processors("possible").and(ring(false).map(drop))
}

/// The processors that are `online`, or that are ever `possible`: each of these has a queue.
fn processors(which: &str) -> io::Result<Vec<u16>> {
    let path = format!("/sys/devices/system/cpu/{which}");
    list(&fs::read_to_string(&path)?)
        .ok_or_else(|| io::Error::other(format!("{path} is no list of processors")))
}

/// Parses a list like `0-3,8`.
fn list(text: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?);
    }
    Some(all)
}

/// Which queues each of `loops` event loops serves: the one at place i that of the processor at place i of the `allowed` ones,
/// counted round; and the loops share the queues of those where they may not run.
fn share(loops: usize, processors: &[u16], allowed: &[usize]) -> Vec<Vec<u16>> {
    let mut shares = vec![Vec::new(); loops];
    for &queue in processors {
        let number = usize::from(queue);
        let place = allowed
            .iter()
            .position(|&cpu| cpu == number)
            .unwrap_or(number);
        shares[place % loops].push(queue);
    }
    shares
}

/// An entry's memory. Whoever has the entry works with it: the kernel, the thread of the ring, or the reply of
/// its request, one after the other.
#[derive(Debug)]
struct Entry {
    shared: Arc<Shared>,
    queue: u16,
    /// Its place among the entries of the ring.
    number: usize,
    memory: NonNull<u8>,
    /// Bytes of the buffer.
    room: usize,
}

// SAFETY: the memory is mapped until the entry is dropped, and one at a time works with it; see above.
unsafe impl Send for Entry {}
// SAFETY: as before.
unsafe impl Sync for Entry {}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this size, and nobody has the entry any more: a ring waits for those at the
        // kernel, and replies keep theirs.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), HEAD + self.room) };
    }
}

impl Entry {
    fn new(shared: Arc<Shared>, queue: u16, number: usize, room: usize) -> io::Result<Self> {
        // SAFETY: a new mapping concerns nobody.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                HEAD + room,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory =
            NonNull::new(memory.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self {
            shared,
            queue,
            number,
            memory,
            room,
        })
    }

    /// # Safety
    /// The caller must have the entry, and use it for as long as it has.
    #[expect(clippy::mut_from_ref)]
    unsafe fn header(&self) -> &mut Header {
        // SAFETY: it lies at the begin of a mapping, which is larger and on a border of a page.
        unsafe { self.memory.cast().as_mut() }
    }

    /// The bytes of the buffer from its first to `len`.
    ///
    /// # Safety
    /// The caller must have the entry, use it for as long as it has, and `len` must be at most the room.
    #[expect(clippy::mut_from_ref)]
    unsafe fn buffer(&self, len: usize) -> &mut [u8] {
        // SAFETY: that follows the header in the mapping.
        unsafe { slice::from_raw_parts_mut(self.memory.as_ptr().add(HEAD), len) }
    }

    /// The request as `/dev/fuse` would have given it: headers and the rest in a row. The rest lies in the buffer
    /// already, so the headers are put before it.
    ///
    /// # Safety
    /// As for [`Self::header`].
    unsafe fn request(&self) -> Option<&[u8]> {
        // SAFETY: the caller has it.
        let header = unsafe { self.header() };
        let (fixed, _) = fuse_in_header::read_from_prefix(&header.in_out).ok()?;
        let rest = header.entry.payload as usize;
        let head = (fixed.len as usize).checked_sub(rest)?;
        let own = head.checked_sub(size_of::<fuse_in_header>())?;
        if own > header.op_in.len() || own % align_of::<u64>() != 0 || rest > self.room {
            return None;
        }
        // SAFETY: head is at most 40 + 128 bytes, which lie before the buffer and behind the header.
        let row = unsafe {
            slice::from_raw_parts_mut(self.memory.as_ptr().add(HEAD - head), head + rest)
        };
        row[..size_of::<fuse_in_header>()]
            .copy_from_slice(&header.in_out[..size_of::<fuse_in_header>()]);
        row[size_of::<fuse_in_header>()..head].copy_from_slice(&header.op_in[..own]);
        Some(row)
    }

    /// If the request is what [`Ring::nudge`] has asked for, puts an answer.
    /// The entry must be here.
    fn answer_nudge(&self) -> bool {
        // SAFETY: it is here.
        let header = unsafe { self.header() };
        let asked = fuse_in_header::read_from_prefix(&header.in_out)
            .is_ok_and(|(fixed, _)| fixed.opcode == fuse_opcode::FUSE_NOTIFY_REPLY as u32);
        if asked {
            let done = fuse_out_header {
                len: size_of::<fuse_out_header>() as u32,
                error: 0,
                unique: header.entry.commit_id,
            };
            header.in_out[..size_of::<fuse_out_header>()].copy_from_slice(done.as_bytes());
            header.entry.payload = 0;
        }
        asked
    }

    /// Puts an answer where the kernel takes it from; `EIO` if it is longer than there is room for.
    ///
    /// # Errors
    /// If it is.
    ///
    /// # Safety
    /// As for [`Self::header`].
    unsafe fn put(&self, answer: &[IoSlice<'_>]) -> io::Result<()> {
        // SAFETY: the caller has it.
        let header = unsafe { self.header() };
        let length: usize = answer.iter().map(|part| part.len()).sum();
        let payload = length.checked_sub(size_of::<fuse_out_header>());
        let Some(payload) = payload.filter(|&payload| payload <= self.room) else {
            let failed = fuse_out_header {
                len: size_of::<fuse_out_header>() as u32,
                error: -libc::EIO,
                unique: header.entry.commit_id,
            };
            header.in_out[..size_of::<fuse_out_header>()].copy_from_slice(failed.as_bytes());
            header.entry.payload = 0;
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        // SAFETY: the caller has it, and there is room.
        let buffer = unsafe { self.buffer(payload) };
        let (mut fixed, mut filled) = (0, 0);
        for mut part in answer.iter().map(|part| &part[..]) {
            let head = part.len().min(size_of::<fuse_out_header>() - fixed);
            header.in_out[fixed..][..head].copy_from_slice(&part[..head]);
            fixed += head;
            part = &part[head..];
            buffer[filled..][..part.len()].copy_from_slice(part);
            filled += part.len();
        }
        // The kernel's limit for a request is that of a buffer.
        header.entry.payload = payload as u32;
        Ok(())
    }
}

/// What an answer that is kept apart is kept in: most are attributes.
type Kept = SmallVec<[u8; 256]>;

/// An entry that is to go to the kernel with an answer, which lies in it or is kept apart.
struct Answer {
    number: usize,
    kept: Option<Kept>,
}

/// What threads that answer know of a ring.
#[derive(Debug)]
struct Shared {
    /// Answers of other threads.
    answers: Mutex<Vec<Answer>>,
    /// Wakes the ring's thread when the first of these comes.
    waker: EventFd,
    sender: ChannelSender,
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answer")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

thread_local! {
    /// The ring whose thread this is.
    static SERVED: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
    /// What it has answered since it last looked.
    static ANSWERS: RefCell<Vec<Answer>> = const { RefCell::new(Vec::new()) };
}

/// Answers one request that came through a ring.
#[derive(Clone, Debug)]
pub(crate) struct RingSender {
    entry: Arc<Entry>,
    /// Something of the request lies in the buffer.
    keep: bool,
}

impl RingSender {
    /// Answers; to be called once.
    pub(crate) fn send(&self, answer: &[IoSlice<'_>]) -> io::Result<()> {
        let mut kept = None;
        let mut put = Ok(());
        if self.keep {
            let mut all = Kept::new();
            answer.iter().for_each(|part| all.extend_from_slice(part));
            kept = Some(all);
        } else {
            // SAFETY: the request's entry is this reply's until it is handed over below, and nothing of the request lies
            // where the answer goes.
            put = unsafe { self.entry.put(answer) };
        }
        let answer = Answer {
            number: self.entry.number,
            kept,
        };
        let shared = &self.entry.shared;
        if std::ptr::eq(SERVED.get(), Arc::as_ptr(shared)) {
            ANSWERS.with_borrow_mut(|answers| answers.push(answer));
            return put;
        }
        let mut answers = shared.answers.lock();
        answers.push(answer);
        let first = answers.len() == 1;
        drop(answers);
        if first {
            shared.waker.write(1)?;
        }
        put
    }

    pub(crate) fn open_backing(&self, fd: BorrowedFd<'_>) -> io::Result<BackingId> {
        self.entry.shared.sender.open_backing(fd)
    }

    pub(crate) unsafe fn wrap_backing(&self, id: u32) -> BackingId {
        // SAFETY: the caller's.
        unsafe { self.entry.shared.sender.wrap_backing(id) }
    }
}

/// A ring and its entries.
pub(crate) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    shared: Arc<Shared>,
    entries: Vec<Arc<Entry>>,
    /// How many entries of each queue are at the kernel.
    queues: Vec<(u16, usize)>,
    /// Entries at the kernel, of all queues.
    there: usize,
    /// Where its thread stays.
    processor: Option<usize>,
    /// Bytes of a buffer.
    room: usize,
}

impl Ring {
    /// For the given queues; `sender` is for the connection, and `room` the bytes of the largest request or answer.
    fn new(
        sender: ChannelSender,
        queues: Vec<u16>,
        processor: Option<usize>,
        room: usize,
    ) -> io::Result<Self> {
        let mut ring = Self {
            ring: ring(true)?,
            shared: Arc::new(Shared {
                answers: Mutex::default(),
                waker: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
                sender,
            }),
            entries: Vec::new(),
            queues: queues.into_iter().map(|queue| (queue, 0)).collect(),
            there: 0,
            processor,
            room,
        };
        for place in 0..ring.queues.len() {
            for _ in 0..ENTRIES {
                ring.add(place)?;
            }
        }
        Ok(ring)
    }

    /// Makes an entry for the queue at `place` and returns its number.
    fn add(&mut self, place: usize) -> io::Result<usize> {
        let number = self.entries.len();
        let entry = Entry::new(self.shared.clone(), self.queues[place].0, number, self.room)?;
        self.entries.push(Arc::new(entry));
        Ok(number)
    }

    /// Makes the calling thread the ring's, and hands all entries over.
    fn begin(&mut self) -> io::Result<()> {
        SERVED.set(Arc::as_ptr(&self.shared));
        if let Some(processor) = self.processor {
            let mut own = CpuSet::new();
            let bound = own
                .set(processor)
                .and_then(|()| sched_setaffinity(Pid::from_raw(0), &own));
            if let Err(error) = bound {
                // Processors come and go.
                debug!("An event loop cannot be bound to processor {processor}: {error}");
            }
        }
        let device = self.shared.sender.as_fd().as_raw_fd();
        let submitter = self.ring.submitter();
        submitter.register_enable_rings()?;
        submitter.register_files(&[device])?;
        self.listen()?;
        (0..self.entries.len()).try_for_each(|number| self.register(number))
    }

    /// Hears of it when others have answered.
    fn listen(&mut self) -> io::Result<()> {
        let poll = opcode::PollAdd::new(
            Fd(self.shared.waker.as_fd().as_raw_fd()),
            libc::POLLIN as u32,
        );
        let poll = poll.multi(true).build().user_data(ANSWERED);
        // SAFETY: the eventfd lives as long as the ring.
        unsafe { self.push(&poll.into()) }
    }

    /// # Safety
    /// What the call uses must live until it has completed.
    unsafe fn push(&mut self, call: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: the caller's.
        while unsafe { self.ring.submission().push(call) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    /// Hands a new entry over.
    fn register(&mut self, number: usize) -> io::Result<()> {
        let entry = self.entries[number].clone();
        let memory = entry.memory.as_ptr();
        let parts = [
            (memory, size_of::<Header>()),
            // SAFETY: the mapping is larger.
            (unsafe { memory.add(HEAD) }, self.room),
        ];
        let parts = parts.map(|(begin, len)| libc::iovec {
            iov_base: begin.cast(),
            iov_len: len,
        });
        let call = command(&entry, REGISTER, 0)
            .addr(Some(parts.as_ptr() as u64))
            .build();
        let call = with_len(call.user_data(number as u64), parts.len() as u32);
        // SAFETY: the kernel reads `parts` when the call is submitted, which is done before they go, and the memory is
        // there until it has given the entry back.
        unsafe { self.push(&call) }?;
        self.handed_over(entry.queue);
        self.ring.submit()?;
        Ok(())
    }

    /// Hands an entry over with its answer.
    fn commit(&mut self, answer: Answer) -> io::Result<()> {
        let entry = self.entries[answer.number].clone();
        // SAFETY: who answered has given the entry to the ring.
        let commit_id = unsafe { entry.header() }.entry.commit_id;
        if let Some(kept) = answer.kept {
            // SAFETY: as before, and the handler has returned.
            if let Err(error) = unsafe { entry.put(&[IoSlice::new(&kept)]) } {
                error!("Failed to send FUSE reply: {error}");
            }
        }
        let call = command(&entry, COMMIT_AND_FETCH, commit_id).build();
        // SAFETY: the memory is there until the kernel has given the entry back.
        unsafe { self.push(&call.user_data(answer.number as u64)) }?;
        self.handed_over(entry.queue);
        Ok(())
    }

    fn handed_over(&mut self, queue: u16) {
        *self.at_kernel(queue).1 += 1;
        self.there += 1;
    }

    /// The place of a queue and how many of its entries are at the kernel.
    fn at_kernel(&mut self, queue: u16) -> (usize, &mut usize) {
        let place = self.queues.iter().position(|&(number, _)| number == queue);
        let place = place.expect("entries are of the ring's queues");
        (place, &mut self.queues[place].1)
    }

    /// Commits what other threads have answered.
    fn commit_others(&mut self) -> io::Result<()> {
        match self.shared.waker.read() {
            Ok(_) | Err(nix::errno::Errno::EAGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        let answers = std::mem::take(&mut *self.shared.answers.lock());
        answers
            .into_iter()
            .try_for_each(|answer| self.commit(answer))
    }

    /// Serves the ring's queues until the connection ends.
    ///
    /// # Errors
    /// Those of `io_uring`, and a request that makes no sense.
    pub(crate) fn serve<FS: Filesystem>(
        mut self,
        mut event_loop: SessionEventLoop<FS>,
    ) -> io::Result<()> {
        self.begin()?;
        let mut completed = VecDeque::new();
        while self.there > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
                Err(error) => return Err(error),
            }
            completed.extend(self.ring.completion());
            while let Some(done) = completed.pop_front() {
                if done.user_data() == ANSWERED {
                    if !cqueue::more(done.flags()) {
                        self.listen()?;
                    }
                    self.commit_others()?;
                    continue;
                }
                let number = done.user_data() as usize;
                let entry = self.entries[number].clone();
                self.there -= 1;
                let (place, left) = self.at_kernel(entry.queue);
                *left -= 1;
                let left = *left;
                match -done.result() {
                    ..=0 => {}
                    // The connection has ended.
                    libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED => continue,
                    error => {
                        warn!(
                            "The kernel refuses an entry of queue {}: {}",
                            entry.queue,
                            io::Error::from_raw_os_error(error)
                        );
                        continue;
                    }
                }
                if left == 0 {
                    self.grow(place)?;
                }
                if entry.answer_nudge() {
                    self.commit(Answer { number, kept: None })?;
                    self.ring.submit()?;
                    completed.extend(self.ring.completion());
                    let again = |done: &cqueue::Entry| {
                        done.user_data() == number as u64 && done.result() >= 0
                    };
                    if completed.iter().any(again) {
                        self.nudge(place);
                    }
                    continue;
                }
                answer(entry, &mut event_loop)?;
                while let Some(answer) = ANSWERS.with_borrow_mut(Vec::pop) {
                    self.commit(answer)?;
                }
            }
        }
        Ok(())
    }

    /// Makes half as many more entries for the queue at `place` as it has, and sees to it that what waits there gets
    /// them.
    fn grow(&mut self, place: usize) -> io::Result<()> {
        let queue = self.queues[place].0;
        let has = self.entries.iter().filter(|entry| entry.queue == queue);
        for _ in 0..has.count().div_ceil(2) {
            match self.add(place) {
                Ok(number) => self.register(number)?,
                Err(error) => {
                    warn!("Requests wait until others are answered: no memory for more: {error}");
                    break;
                }
            }
        }
        self.nudge(place);
        Ok(())
    }

    /// Asks the kernel for a request in the queue at `place`: for the pages of none of the bytes of the root.
    fn nudge(&self, place: usize) {
        let nudge = || -> io::Result<()> {
            let mut own = CpuSet::new();
            own.set(self.queues[place].0.into())?;
            let this = Pid::from_raw(0);
            let usual = sched_getaffinity(this)?;
            let elsewhere = usual != own;
            if elsewhere {
                sched_setaffinity(this, &own)?;
            }
            let retrieve = Retrieve {
                header: fuse_out_header {
                    len: size_of::<Retrieve>() as u32,
                    error: fuse_notify_code::FUSE_NOTIFY_RETRIEVE as i32,
                    unique: 0,
                },
                unique: NUDGE,
                node: INodeNo::ROOT.0,
                offset: 0,
                size: 0,
                padding: 0,
            };
            let asked = self
                .shared
                .sender
                .send(&[IoSlice::new(retrieve.as_bytes())]);
            if elsewhere {
                sched_setaffinity(this, &usual)?;
            }
            asked
        };
        if let Err(error) = nudge() {
            // Mostly the end of the connection.
            debug!("What waits in a queue cannot be brought on: {error}");
        }
    }
}

/// Has the filesystem answer the request of an entry.
fn answer<FS: Filesystem>(
    entry: Arc<Entry>,
    event_loop: &mut SessionEventLoop<FS>,
) -> io::Result<()> {
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "Invalid request");
    let owner = entry.clone();
    // SAFETY: the entry is here until it is answered, and no answer is put where the request lies until then; see
    // the module's head.
    let request = unsafe { owner.request() }.ok_or_else(nonsense)?;
    // SAFETY: as before.
    let keep = unsafe { owner.header() }.entry.payload > 0;
    let sender = ReplySender::Ring(RingSender { entry, keep });
    let request = RequestWithSender::new(sender, request).ok_or_else(nonsense)?;
    event_loop.answer(&request);
    Ok(())
}

/// A command that concerns an entry.
fn command(entry: &Entry, operation: u32, commit_id: u64) -> opcode::UringCmd80 {
    let command = Command {
        flags: 0,
        commit_id,
        queue: entry.queue,
        padding: [0; 6],
    };
    let mut bytes = [0; 80];
    bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
    opcode::UringCmd80::new(Fixed(0), operation).cmd(bytes)
}

/// Sets the field `len` of a call, which the crate does not for this kind.
fn with_len(mut call: squeue::Entry128, len: u32) -> squeue::Entry128 {
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    // SAFETY: a call is the kernel's `struct io_uring_sqe` and 64 bytes more, and its `len` lies at 24.
    unsafe { (&raw mut call).cast::<u32>().add(6).write(len) };
    call
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dev_fuse::DevFuse;
    use crate::ll::AnyRequest;

    const UNIQUE: u64 = 7;

    /// An entry whose connection is none.
    fn entry() -> Arc<Entry> {
        let device = fs::File::open("/dev/null").unwrap();
        let sender = Channel::new(Arc::new(DevFuse(device))).sender();
        let shared = Arc::new(Shared {
            answers: Mutex::default(),
            waker: EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap(),
            sender,
        });
        Arc::new(Entry::new(shared, 0, 3, 8192).unwrap())
    }

    /// Puts a request where the kernel does: `own` is its structure, and `rest` what follows.
    fn ask(entry: &Entry, opcode: fuse_opcode, own: &[u8], rest: &[u8]) {
        let head = size_of::<fuse_in_header>();
        let len = (head + own.len() + rest.len()) as u32;
        // SAFETY: the test has the entry.
        let (header, buffer) = unsafe { (entry.header(), entry.buffer(rest.len())) };
        header.in_out[..4].copy_from_slice(&len.to_ne_bytes());
        header.in_out[4..8].copy_from_slice(&(opcode as u32).to_ne_bytes());
        header.in_out[8..16].copy_from_slice(&UNIQUE.to_ne_bytes());
        header.op_in[..own.len()].copy_from_slice(own);
        header.entry.payload = rest.len() as u32;
        buffer.copy_from_slice(rest);
    }

    fn out_header(answer: &[u8]) -> Vec<u8> {
        let len = (size_of::<fuse_out_header>() + answer.len()) as u32;
        let mut bytes = len.to_ne_bytes().to_vec();
        bytes.extend(0_i32.to_ne_bytes());
        bytes.extend(UNIQUE.to_ne_bytes());
        bytes
    }

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(list("5"), Some(vec![5]));
        assert_eq!(list(""), None);
        assert_eq!(list("1-x"), None);
    }

    #[test]
    fn each_queue_is_served_once_and_beside_its_processor() {
        let processors: Vec<u16> = (0..8).collect();
        let shares = share(3, &processors, &[2, 3, 6]);
        assert!(shares[0].contains(&2) && shares[1].contains(&3) && shares[2].contains(&6));
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, processors);
        assert_eq!(share(1, &processors, &[4]), [processors]);
    }

    #[test]
    fn a_request_lies_in_a_row() {
        let entry = entry();
        ask(&entry, fuse_opcode::FUSE_LOOKUP, &[], b"name\0");
        // SAFETY: the test has the entry.
        let row = unsafe { entry.request() }.unwrap();
        assert_eq!(&row[size_of::<fuse_in_header>()..], b"name\0");
        let request = AnyRequest::try_from(row).unwrap();
        assert_eq!(request.unique().0, UNIQUE);
        ask(&entry, fuse_opcode::FUSE_WRITE, &[1; 40], &[2; 8192]);
        // SAFETY: as before.
        let row = unsafe { entry.request() }.unwrap();
        let own = &row[size_of::<fuse_in_header>()..];
        assert_eq!((&own[..40], &own[40..]), (&[1; 40][..], &[2; 8192][..]));
    }

    #[test]
    fn lengths_that_make_no_sense_are_refused() {
        let entry = entry();
        let with = |len: u32, rest: u32| {
            ask(&entry, fuse_opcode::FUSE_LOOKUP, &[], b"");
            // SAFETY: the test has the entry.
            let header = unsafe { entry.header() };
            header.in_out[..4].copy_from_slice(&len.to_ne_bytes());
            header.entry.payload = rest;
            // SAFETY: as before.
            unsafe { entry.request() }.is_some()
        };
        assert!(with(40, 0) && with(45, 5) && with(8232, 8192));
        assert!(!with(39, 0));
        assert!(!with(40, 41));
        assert!(!with(44, 0));
        assert!(!with(40 + 136, 0));
        assert!(!with(40 + 8193, 8193));
        assert!(!with(u32::MAX, 0));
    }

    #[test]
    fn an_answer_waits_where_the_request_lies_and_goes_on_by_the_rings_thread() {
        let entry = entry();
        let head = out_header(b"answer");
        let answer = [
            IoSlice::new(&head),
            IoSlice::new(b"ans"),
            IoSlice::new(b"wer"),
        ];
        for keep in [true, false] {
            ask(
                &entry,
                fuse_opcode::FUSE_LOOKUP,
                &[],
                if keep { b"name\0" } else { b"" },
            );
            let sender = RingSender {
                entry: entry.clone(),
                keep,
            };
            // This is not the ring's thread.
            sender.send(&answer).unwrap();
            assert_eq!(entry.shared.waker.read(), Ok(1));
            let [sent] = &mut std::mem::take(&mut *entry.shared.answers.lock())[..] else {
                panic!("one answer");
            };
            assert_eq!(sent.number, 3);
            if let Some(kept) = sent.kept.take() {
                // SAFETY: the test has the entry.
                assert_eq!(unsafe { entry.buffer(5) }, b"name\0");
                // SAFETY: as before.
                unsafe { entry.put(&[IoSlice::new(&kept)]) }.unwrap();
            }
            // SAFETY: as before.
            let (header, buffer) = unsafe { (entry.header(), entry.buffer(6)) };
            assert_eq!(header.in_out[..head.len()], head);
            assert_eq!((header.entry.payload, &*buffer), (6, &b"answer"[..]));
        }
        SERVED.set(Arc::as_ptr(&entry.shared));
        let sender = RingSender { entry, keep: false };
        sender.send(&answer).unwrap();
        assert_eq!(ANSWERS.with_borrow(Vec::len), 1);
    }

    #[test]
    fn an_answer_that_is_too_long_is_refused() {
        let entry = entry();
        // SAFETY: the test has the entry.
        unsafe { entry.header() }.entry.commit_id = UNIQUE;
        let sender = RingSender {
            entry: entry.clone(),
            keep: false,
        };
        let answer = [IoSlice::new(&[0; 16]), IoSlice::new(&[0; 8193])];
        let error = sender.send(&answer).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        // Whoever waits is told.
        assert_eq!(entry.shared.answers.lock().len(), 1);
        // SAFETY: as before.
        let header = unsafe { entry.header() };
        assert_eq!(header.in_out[4..8], (-libc::EIO).to_ne_bytes());
        assert_eq!(header.in_out[8..16], UNIQUE.to_ne_bytes());
    }
}
