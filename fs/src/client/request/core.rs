//! The core of a request: its state while it runs, and the memory it moves bytes from or to.
//!
//! ```text
//!   Created ──start──▶ Queued ──an engine thread──▶ Running ──▶ Ended
//!      └──────── cancel ──┴─────────────────────────────────────▲
//! ```
//!
//! Ownership of the memory moves with the state: the caller that made the transfer owns it until the start; then the
//! queue; then one engine thread until the transfer has ended ([`Begun`] represents that ownership); then the caller
//! that waits for it. The memory outlives all of these: an owned buffer lies in a box that the `Core` holds, a borrowed
//! one belongs to a scope that does not return before its transfers have ended, and the one of [`with_buffer`] to the
//! thread that runs the request.
//!
//! All `unsafe` code of requests and transfers is in this file.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::plan::Plan;
use crate::client::coupling::Awaited;
use crate::client::error::FsError;
use parking_lot::{Condvar, Mutex};

/// The place of a started transfer in the order of starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::client) struct Number(pub(in crate::client) u64);

/// Number of transfers of a scope in flight.
#[derive(Debug, Default)]
pub(in crate::client) struct Running {
    count: Mutex<usize>,
    none: Condvar,
}

impl Running {
    fn one_more(&self) {
        *self.count.lock() += 1;
    }

    fn one_less(&self) {
        let mut count = self.count.lock();
        *count -= 1;
        if *count == 0 {
            self.none.notify_all();
        }
    }

    pub(in crate::client) fn wait(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.none.wait(&mut count);
        }
    }
}

/// The state of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Phase {
    /// Known only to the caller that made it.
    Created,
    /// Started.
    Queued,
    /// Taken by an engine thread.
    Running,
    /// Its result is available, and nothing touches its memory any more.
    Ended,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The result after its end, until it is taken.
    result: Option<Result<(), FsError>>,
    waker: Option<Waker>,
    number: Option<Number>,
    owned: Option<Owned>,
}

/// A transfer, shared by its waiters and the engine.
#[derive(Debug)]
pub(in crate::client) struct Core {
    pub(in crate::client) plan: Plan,
    place: Place,
    /// Set to end it before anything of it is committed, if possible.
    cancelled: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
    /// The scope that waits for it, if the buffer is borrowed.
    scope: Option<Arc<Running>>,
    /// Counts the existing transfers.
    _counted: Option<Counted>,
}

/// The address and length of a buffer.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is touched by one owner at a time, as described at the top of the module, and its type is `Send`:
// `Owned` takes only buffers that are, and borrowed ones are slices of bytes.
unsafe impl Send for Core {}
// SAFETY: as above; a shared `Core` gives access to the memory only to its current owner.
unsafe impl Sync for Core {}

/// A type-erased owned buffer; dropped with this.
#[derive(Debug)]
struct Owned {
    buffer: NonNull<()>,
    // SAFETY: the caller gives `buffer`, and calls it once.
    free: unsafe fn(NonNull<()>),
}

// SAFETY: `Owned::new` takes only `Send` types.
unsafe impl Send for Owned {}

impl Owned {
    fn new<B: Send + 'static>(buffer: Box<B>) -> (Owned, NonNull<B>) {
        let at = NonNull::from(Box::leak(buffer));
        let owned = Owned {
            buffer: at.cast(),
            // SAFETY: `buffer` comes from a box of this type, and is freed once.
            free: |buffer| drop(unsafe { Box::from_raw(buffer.cast::<B>().as_ptr()) }),
        };
        (owned, at)
    }

    /// # Safety
    /// It was made of a `B`.
    unsafe fn back<B>(self) -> B {
        let own = ManuallyDrop::new(self);
        // SAFETY: of type `B`, by the caller's contract; `own` is not dropped, so this is the only box of it.
        *unsafe { Box::from_raw(own.buffer.cast::<B>().as_ptr()) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the buffer has not been returned: `back` takes `self` without dropping it.
        unsafe { (self.free)(self.buffer) }
    }
}

/// An entry in a count; dropping it decrements the count.
#[derive(Debug)]
pub(in crate::client) struct Counted(Arc<AtomicU64>);

impl Counted {
    pub(in crate::client) fn of(count: &Arc<AtomicU64>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the buffer of a transfer whose memory is no longer touched.
///
/// # Safety
/// Called once, for the transfer it was made with, which has ended or was never started.
type GiveBack<B> = unsafe fn(&Core) -> B;

/// The caller's side of a transfer: the core, and how to get the buffer out of it.
#[derive(Debug)]
pub(in crate::client) struct Own<B> {
    core: Arc<Core>,
    give_back: GiveBack<B>,
    _buffer: PhantomData<B>,
}

impl<B> Own<B> {
    pub(in crate::client) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The result and the buffer of a transfer that has ended; `self` if it has not.
    pub(in crate::client) fn finish(self) -> Result<(Result<(), FsError>, B), Own<B>> {
        let result = {
            let mut state = self.core.state.lock();
            match state.phase {
                Phase::Ended => state.result.take().unwrap_or(Err(FsError::Cancelled)),
                Phase::Created => {
                    state.phase = Phase::Ended;
                    Err(FsError::Cancelled)
                }
                Phase::Queued | Phase::Running => {
                    drop(state);
                    return Err(self);
                }
            }
        };
        // SAFETY: it has ended, or was never shared; `self` is consumed, and it is the only one.
        Ok((result, unsafe { (self.give_back)(&self.core) }))
    }
}

/// A transfer that owns its buffer. `at` returns the bytes of the buffer.
fn owned<B: Send + 'static>(
    plan: Plan,
    counted: Counted,
    buffer: Box<B>,
    at: fn(&mut B) -> Place,
) -> Own<B> {
    let (owned, mut buffer) = Owned::new(buffer);
    // SAFETY: the box is not shared yet. The slice from `at` is valid as long as this borrow of the buffer, and the
    // buffer is not accessed in another way while the slice is in use.
    let place = at(unsafe { buffer.as_mut() });
    Own {
        core: Core::new(plan, place, Some(owned), None, Some(counted)),
        give_back: |core| {
            let owned = core.state.lock().owned.take();
            let Some(owned) = owned else {
                unreachable!("a buffer is handed back once")
            };
            // SAFETY: made of a `B`, above.
            unsafe { owned.back() }
        },
        _buffer: PhantomData,
    }
}

/// A write out of an owned buffer.
pub(in crate::client) fn from_owned<B: AsRef<[u8]> + Send + 'static>(
    buffer: B,
    counted: Counted,
    plan: impl FnOnce(usize) -> Result<Plan, FsError>,
) -> Result<Own<B>, (FsError, B)> {
    let buffer = Box::new(buffer);
    match plan(buffer.as_ref().as_ref().len()) {
        Err(error) => Err((error, *buffer)),
        Ok(plan) => Ok(owned(plan, counted, buffer, |buffer| {
            Place::of((*buffer).as_ref())
        })),
    }
}

/// A read into an owned buffer.
pub(in crate::client) fn into_owned<B: AsMut<[u8]> + Send + 'static>(
    buffer: B,
    counted: Counted,
    plan: impl FnOnce(usize) -> Result<Plan, FsError>,
) -> Result<Own<B>, (FsError, B)> {
    let mut buffer = Box::new(buffer);
    match plan((*buffer).as_mut().len()) {
        Err(error) => Err((error, *buffer)),
        Ok(plan) => Ok(owned(plan, counted, buffer, |buffer| {
            Place::of_mut((*buffer).as_mut())
        })),
    }
}

/// A write out of a buffer that is borrowed for a scope.
///
/// # Safety
/// The borrow does not end before `scope` has waited for all its transfers.
pub(in crate::client) unsafe fn from_borrowed(
    buffer: &[u8],
    plan: Plan,
    counted: Counted,
    scope: Arc<Running>,
) -> Own<&[u8]> {
    Own {
        core: Core::new(plan, Place::of(buffer), None, Some(scope), Some(counted)),
        // SAFETY: it is the place of a slice of that lifetime.
        give_back: |core| unsafe {
            std::slice::from_raw_parts(core.place.start.as_ptr(), core.place.len)
        },
        _buffer: PhantomData,
    }
}

/// A read into a buffer that is borrowed for a scope.
///
/// # Safety
/// As [`from_borrowed`].
pub(in crate::client) unsafe fn into_borrowed(
    buffer: &mut [u8],
    plan: Plan,
    counted: Counted,
    scope: Arc<Running>,
) -> Own<&mut [u8]> {
    Own {
        core: Core::new(
            plan,
            Place::of_mut(buffer),
            None,
            Some(scope),
            Some(counted),
        ),
        // SAFETY: it is the place of a slice of that lifetime, with no other reference to it: the caller gave it up,
        // and this is called once.
        give_back: |core| unsafe {
            std::slice::from_raw_parts_mut(core.place.start.as_ptr(), core.place.len)
        },
        _buffer: PhantomData,
    }
}

/// The buffer of a request that the thread which made it runs itself.
#[derive(Debug)]
pub(in crate::client) enum Buffer<'a> {
    /// Of a write.
    From(&'a [u8]),
    /// Of a read.
    Into(&'a mut [u8]),
}

impl Buffer<'_> {
    pub(in crate::client) fn len(&self) -> usize {
        match self {
            Buffer::From(bytes) => bytes.len(),
            Buffer::Into(bytes) => bytes.len(),
        }
    }
}

/// Gives `run` a request, and returns its result. Returns when the request has ended, also when `run` panics.
///
/// # Panics
/// If a write is to change memory, or a read to be read from.
pub(in crate::client) fn with_buffer(
    plan: Plan,
    memory: &mut Buffer<'_>,
    run: impl FnMut(Begun),
) -> Result<(), FsError> {
    let (writes, place) = match memory {
        Buffer::From(bytes) => (true, Place::of(bytes)),
        Buffer::Into(bytes) => (false, Place::of_mut(bytes)),
    };
    assert_eq!(plan.writes, writes, "the direction of a request");
    let core = Core::new(plan, place, None, None, None);
    run_all(vec![core], |mut begun| {
        begun.pop().into_iter().for_each(run)
    })
}

/// Gives `run` writes out of memory, and returns the first error. Returns when all have ended, also when `run` panics.
///
/// # Panics
/// If one is a read.
pub(in crate::client) fn with_buffers<'a>(
    writes: impl Iterator<Item = (Plan, &'a [u8])>,
    run: impl FnOnce(Vec<Begun>),
) -> Result<(), FsError> {
    let cores = writes.map(|(plan, bytes)| {
        assert!(plan.writes, "the direction of a request");
        Core::new(plan, Place::of(bytes), None, None, None)
    });
    run_all(cores.collect(), run)
}

fn run_all(cores: Vec<Arc<Core>>, run: impl FnOnce(Vec<Begun>)) -> Result<(), FsError> {
    struct Waits(Vec<Arc<Core>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.iter().for_each(|core| core.wait());
        }
    }
    let waits = Waits(cores.clone());
    run(cores.iter().cloned().map(Begun::of).collect());
    drop(waits);
    let result = |core: &Arc<Core>| core.state.lock().result.take();
    cores
        .iter()
        .try_for_each(|core| result(core).unwrap_or(Err(FsError::Cancelled)))
}

impl Place {
    fn of(bytes: &[u8]) -> Place {
        Place {
            start: NonNull::from(bytes).cast(),
            len: bytes.len(),
        }
    }

    fn of_mut(bytes: &mut [u8]) -> Place {
        Place {
            len: bytes.len(),
            start: NonNull::from(bytes).cast(),
        }
    }
}

impl Core {
    fn new(
        plan: Plan,
        place: Place,
        owned: Option<Owned>,
        scope: Option<Arc<Running>>,
        counted: Option<Counted>,
    ) -> Arc<Core> {
        Arc::new(Core {
            plan,
            place,
            cancelled: AtomicBool::new(false),
            state: Mutex::new(State {
                phase: Phase::Created,
                result: None,
                waker: None,
                number: None,
                owned,
            }),
            ended: Condvar::new(),
            scope,
            _counted: counted,
        })
    }

    /// Marks it as started; false if it was started or cancelled before.
    pub(in crate::client) fn queue(&self, number: impl FnOnce() -> Number) -> bool {
        let mut state = self.state.lock();
        if state.phase != Phase::Created {
            return false;
        }
        if let Some(scope) = &self.scope {
            scope.one_more();
        }
        state.phase = Phase::Queued;
        state.number = Some(number());
        true
    }

    /// Whether it may wait for other programs: it reads a coupled object, or writes to one with a queue.
    pub(in crate::client) fn awaits_peers(&self) -> bool {
        let handle = &self.plan.handle;
        match self.plan.writes {
            true => handle.object.coupled.has_queue(),
            false => handle.awaits_data(),
        }
    }

    /// Its place in the queue, which it gives up.
    pub(in crate::client) fn take_number(&self) -> Option<Number> {
        self.state.lock().number.take()
    }

    pub(in crate::client) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Registers a waker for its end; false if it has ended.
    pub(in crate::client) fn wake_at_end(&self, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        if state.phase == Phase::Ended {
            return false;
        }
        match &mut state.waker {
            Some(known) => known.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
        true
    }

    /// Waits for the end of a transfer that was started.
    pub(in crate::client) fn wait(&self) {
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Queued | Phase::Running) {
            self.ended.wait(&mut state);
        }
    }

    /// As `wait`, for at most this time; returns whether nothing is left to wait for.
    pub(in crate::client) fn wait_for(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Queued | Phase::Running) {
            if self.ended.wait_until(&mut state, until).timed_out() {
                return !matches!(state.phase, Phase::Queued | Phase::Running);
            }
        }
        true
    }

    /// Cancels it if it has not been started.
    pub(in crate::client) fn cancel_created(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Created {
            state.phase = Phase::Ended;
            state.result = Some(Err(FsError::Cancelled));
        }
    }

    /// Asks the thread that runs it to give it up.
    pub(in crate::client) fn ask_to_cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(in crate::client) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Ends it. The caller no longer touches the memory.
    fn end(&self, result: Result<(), FsError>) {
        let waker = {
            let mut state = self.state.lock();
            state.phase = Phase::Ended;
            state.result = Some(result);
            self.ended.notify_all();
            state.waker.take()
        };
        // From here on a scope may return and free its buffer.
        if let Some(scope) = &self.scope {
            scope.one_less();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request that this thread runs; it owns the memory until it is ended.
#[derive(Debug)]
pub(in crate::client) struct Begun {
    core: Arc<Core>,
    /// Of a read of a coupled object: what it has waited for.
    pub(in crate::client) awaited: Awaited,
    over: bool,
}

impl Begun {
    /// Takes a transfer out of the queue; only the queue calls this, and once.
    pub(in crate::client) fn of(core: Arc<Core>) -> Begun {
        core.state.lock().phase = Phase::Running;
        Begun {
            core,
            awaited: Awaited::Nothing,
            over: false,
        }
    }

    /// The buffer of a write.
    pub(in crate::client) fn bytes(&self) -> &[u8] {
        // SAFETY: the place of a valid slice that this owns until it ends: see the top of the module.
        unsafe { std::slice::from_raw_parts(self.core.place.start.as_ptr(), self.core.place.len) }
    }

    /// The buffer of a read; empty for a write, whose buffer must not be changed.
    pub(in crate::client) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.core.plan.writes {
            return &mut [];
        }
        // SAFETY: as above, and a read was made with a mutable slice.
        unsafe {
            std::slice::from_raw_parts_mut(self.core.place.start.as_ptr(), self.core.place.len)
        }
    }

    /// Puts the packed bytes that a read has got at their places in its buffer.
    pub(in crate::client) fn put(&mut self, packed: &[u8]) -> Result<(), FsError> {
        let core = self.core.clone();
        core.plan.memory.put(packed, self.bytes_mut())
    }

    /// Ends it; the queue was notified before.
    pub(in crate::client) fn end(mut self, result: Result<(), FsError>) {
        self.over = true;
        self.core.end(result);
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // A panic: ends the request so that its waiters return.
        if !self.over {
            self.core.end(Err(FsError::Unsettled(
                "a thread of the client panicked over a transfer; its log says why".into(),
            )));
        }
    }
}

impl std::ops::Deref for Begun {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.core
    }
}
