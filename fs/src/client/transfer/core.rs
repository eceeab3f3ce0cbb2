//! What a transfer is while it runs: its state, and the memory it moves bytes from or to.
//!
//! ```text
//!   Created ──start──▶ Queued ──an engine thread──▶ Running ──▶ Ended
//!      └──────── cancel ──┴─────────────────────────────────────▲
//! ```
//!
//! The memory belongs to whoever made the transfer until it is started, to the queue and then to one engine
//! thread until it has ended ([`Begun`] is that thread's title to it), and to whoever waits from then on. It
//! outlives that: an owned buffer lies in a box that the `Core` has, and a borrowed one is of a scope that
//! does not return before its transfers have ended.
//!
//! All `unsafe` of transfers is in this file.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::{Condvar, Mutex};
use slabfs_model::{Hyperslab, Region};

use super::super::error::FsError;
use super::super::handle::Handle;
use super::batched::Batched;
use super::memory::Fitted;
use super::queue::{Claim, Number};
use super::scope::Running;

/// How far a transfer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody but its maker knows of it.
    Created,
    /// It was started.
    Queued,
    /// An engine thread has it.
    Running,
    /// Its result is there, and nothing touches its memory any more.
    Ended,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Of one that has ended, until it is taken.
    result: Option<Result<(), FsError>>,
    waker: Option<Waker>,
    number: Option<Number>,
    owned: Option<Owned>,
}

/// What a transfer moves.
#[derive(Debug)]
pub(super) struct Plan {
    /// The object, held open.
    pub(super) handle: Arc<Handle>,
    pub(super) writes: bool,
    /// A batch instead of selections. `slab` is then the box around it, and `memory` of nothing.
    pub(super) batch: Option<Batched>,
    /// What is selected of the object, in its cells.
    pub(super) slab: Hyperslab,
    /// The box around that.
    pub(super) bounds: Option<Region>,
    pub(super) memory: Fitted,
}

/// A transfer, shared by whoever waits for it and the engine.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) plan: Plan,
    place: Place,
    /// It is to end before anything of it is committed, if that is possible.
    cancelled: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
    /// Of a borrowed buffer: the scope that waits.
    scope: Option<Arc<Running>>,
    /// How many there are.
    _counted: Counted,
}

/// Where a buffer is.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is touched by one owner at a time, as the module's head says, and what it is of is `Send`:
// `Owned` takes only buffers that are, and the other kind are slices of bytes.
unsafe impl Send for Core {}
// SAFETY: as above; through a shared `Core` nothing of the memory is touched but by its present owner.
unsafe impl Sync for Core {}

/// A buffer that was handed in, of a type that is forgotten; it is dropped with this.
#[derive(Debug)]
struct Owned {
    buffer: NonNull<()>,
    // SAFETY: whoever calls it gives `buffer`, once.
    free: unsafe fn(NonNull<()>),
}

// SAFETY: `Owned::new` takes only what is `Send`.
unsafe impl Send for Owned {}

impl Owned {
    fn new<B: Send + 'static>(buffer: Box<B>) -> (Owned, NonNull<B>) {
        let at = NonNull::from(Box::leak(buffer));
        let owned = Owned {
            buffer: at.cast(),
            // SAFETY: `buffer` came out of a box of this type, and is given back once.
            free: |buffer| drop(unsafe { Box::from_raw(buffer.cast::<B>().as_ptr()) }),
        };
        (owned, at)
    }

    /// # Safety
    /// It was made of a `B`.
    unsafe fn back<B>(self) -> B {
        let own = ManuallyDrop::new(self);
        // SAFETY: of this type, as the caller says; `own` is not dropped, so that this is the only box of it.
        *unsafe { Box::from_raw(own.buffer.cast::<B>().as_ptr()) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it has not been given back: that takes the value without dropping it.
        unsafe { (self.free)(self.buffer) }
    }
}

/// One of those that are counted.
#[derive(Debug)]
pub(super) struct Counted(Arc<AtomicU64>);

impl Counted {
    pub(super) fn of(count: &Arc<AtomicU64>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Hands back the buffer of a transfer that nothing touches any more.
///
/// # Safety
/// Called once, of the transfer it was made with, which has ended or was never started.
type GiveBack<B> = unsafe fn(&Core) -> B;

/// The maker's side of a transfer: the core, and how to get the buffer out of it.
#[derive(Debug)]
pub(super) struct Own<B> {
    core: Arc<Core>,
    give_back: GiveBack<B>,
    _buffer: PhantomData<B>,
}

impl<B> Own<B> {
    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The result and the buffer of a transfer that has ended; itself if it has not.
    pub(super) fn finish(self) -> Result<(Result<(), FsError>, B), Own<B>> {
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
        // SAFETY: it has ended, or only this knows of it; `self` is used up, and there is one of it.
        Ok((result, unsafe { (self.give_back)(&self.core) }))
    }
}

/// A transfer into or out of a buffer that is handed in. `at` gives the bytes of the buffer.
fn owned<B: Send + 'static>(
    plan: Plan,
    counted: Counted,
    buffer: Box<B>,
    at: fn(&mut B) -> Place,
) -> Own<B> {
    let (owned, mut buffer) = Owned::new(buffer);
    // SAFETY: nobody else has the box yet. What `at` gives is a slice that lives as long as this borrow of the
    // buffer, and the buffer is not touched in another way before the slice is done with.
    let place = at(unsafe { buffer.as_mut() });
    Own {
        core: Core::new(plan, place, Some(owned), None, counted),
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

/// A write out of a buffer that is handed in.
pub(super) fn from_owned<B: AsRef<[u8]> + Send + 'static>(
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

/// A read into a buffer that is handed in.
pub(super) fn into_owned<B: AsMut<[u8]> + Send + 'static>(
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
pub(super) unsafe fn from_borrowed(
    buffer: &[u8],
    plan: Plan,
    counted: Counted,
    scope: Arc<Running>,
) -> Own<&[u8]> {
    Own {
        core: Core::new(plan, Place::of(buffer), None, Some(scope), counted),
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
pub(super) unsafe fn into_borrowed(
    buffer: &mut [u8],
    plan: Plan,
    counted: Counted,
    scope: Arc<Running>,
) -> Own<&mut [u8]> {
    Own {
        core: Core::new(plan, Place::of_mut(buffer), None, Some(scope), counted),
        // SAFETY: it is the place of a slice of that lifetime that nobody else has: the caller gave it away, and
        // this is called once.
        give_back: |core| unsafe {
            std::slice::from_raw_parts_mut(core.place.start.as_ptr(), core.place.len)
        },
        _buffer: PhantomData,
    }
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
        counted: Counted,
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

    /// What it is to other transfers.
    pub(super) fn claim(&self) -> Claim {
        Claim {
            ino: self.plan.handle.object.ino,
            writes: self.plan.writes,
            bounds: self.plan.bounds.clone(),
            bytes: self.moved(),
        }
    }

    /// Bytes it moves to or from servers.
    pub(super) fn moved(&self) -> u64 {
        match &self.plan.batch {
            Some(batch) => batch.packed.end - batch.packed.start,
            None => self.plan.slab.volume(),
        }
    }

    /// Notes that it was started; false if it was before, or was cancelled.
    pub(super) fn queue(&self, number: impl FnOnce() -> Number) -> bool {
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

    pub(super) fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// Wants to be woken at its end; false if that is there.
    pub(super) fn wake_at_end(&self, waker: &Waker) -> bool {
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
    pub(super) fn wait(&self) {
        let mut state = self.state.lock();
        while matches!(state.phase, Phase::Queued | Phase::Running) {
            self.ended.wait(&mut state);
        }
    }

    /// One that nobody has started will not be.
    pub(super) fn cancel_created(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Created {
            state.phase = Phase::Ended;
            state.result = Some(Err(FsError::Cancelled));
        }
    }

    /// Ends it if it has not begun; asks the thread that runs it to give it up.
    pub(super) fn cancel(self: &Arc<Self>) {
        self.cancel_created();
        if !self.plan.handle.client.transfers().withdraw(self) {
            self.ask_to_cancel();
        }
    }

    /// Asks the thread that runs it to give it up.
    fn ask_to_cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Ends it. Whoever calls this does not touch the memory any more.
    fn end(&self, result: Result<(), FsError>) {
        let waker = {
            let mut state = self.state.lock();
            state.phase = Phase::Ended;
            state.result = Some(result);
            self.ended.notify_all();
            state.waker.take()
        };
        // After this a scope may return and its buffer be gone.
        if let Some(scope) = &self.scope {
            scope.one_less();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A transfer that this thread runs, and so has the memory of.
#[derive(Debug)]
pub(super) struct Begun {
    core: Arc<Core>,
    over: bool,
}

impl Begun {
    /// Takes a transfer out of the queue, which alone may call this, once.
    pub(super) fn of(core: Arc<Core>) -> Begun {
        core.state.lock().phase = Phase::Running;
        Begun { core, over: false }
    }

    pub(super) fn number(&self) -> Option<Number> {
        self.core.state.lock().number
    }

    /// The buffer of a write.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the place of a slice that lives, and that this has until it ends: see the module's head.
        unsafe { std::slice::from_raw_parts(self.core.place.start.as_ptr(), self.core.place.len) }
    }

    /// The buffer of a read; empty of a write, whose buffer is not to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        if self.core.plan.writes {
            return &mut [];
        }
        // SAFETY: as above, and a read was made with a slice that may be written.
        unsafe {
            std::slice::from_raw_parts_mut(self.core.place.start.as_ptr(), self.core.place.len)
        }
    }

    /// Ends it; the queue has been told before.
    pub(super) fn end(mut self, result: Result<(), FsError>) {
        self.over = true;
        self.core.end(result);
    }
}

impl std::ops::Deref for Begun {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // A panic: nobody waits for ever.
        let handle = self.core.plan.handle.clone();
        handle.client.transfers().forget(self);
        self.core.end(Err(FsError::Unsettled(
            "a thread of the client panicked over a transfer; its log says why".into(),
        )));
        handle
            .client
            .transfers()
            .finished(std::slice::from_ref(&handle));
    }
}
