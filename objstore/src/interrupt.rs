//! Calls that end early when the user of a program wants that, as by Ctrl-C.
//!
//! A thread makes a call [`during`](Interrupt::during) an interrupt. All waits of that call then ask whether it is to end: those
//! for a socket when a signal has ended the system call, and all of them a few times a second. A call that is interrupted ends as
//! if its deadline had come, with that error: nothing new has to be handled, and what is in flight is left as by a
//! deadline. Threads that help with the call ask for the same interrupt.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MutexGuard};

/// How often a wait asks.
const SLICE: Duration = Duration::from_millis(200);

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Whether the calls of a thread are to end. Clones are the same interrupt.
#[derive(Clone)]
pub struct Interrupt(Arc<Inner>);

struct Inner {
    raised: AtomicBool,
    check: Box<dyn Fn() -> bool + Send + Sync>,
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interrupt")
            .field(&self.0.raised.load(Ordering::Relaxed))
            .finish()
    }
}

impl Interrupt {
    /// `check` is asked by waits, in the thread that waits, which holds no lock then. Once it has returned true, it is not
    /// asked again in the same call.
    pub fn new(check: impl Fn() -> bool + Send + Sync + 'static) -> Interrupt {
        Interrupt(Arc::new(Inner {
            raised: AtomicBool::new(false),
            check: Box::new(check),
        }))
    }

    /// Makes a call that it may end. One thread at a time may do that.
    pub fn during<R>(&self, call: impl FnOnce() -> R) -> R {
        self.0.raised.store(false, Ordering::Relaxed);
        self.help(call)
    }

    /// A part of such a call in another thread.
    pub(crate) fn help<R>(&self, part: impl FnOnce() -> R) -> R {
        struct Restore(Option<Interrupt>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restore = Restore(CURRENT.replace(Some(self.clone())));
        part()
    }
}

/// The interrupt of the call that this thread makes.
pub(crate) fn current() -> Option<Interrupt> {
    CURRENT.with_borrow(Clone::clone)
}

/// Whether this thread's call is to end, as far as a wait has found out.
pub fn is_raised() -> bool {
    CURRENT.with_borrow(|current| {
        let raised = |one: &Interrupt| one.0.raised.load(Ordering::Relaxed);
        current.as_ref().is_some_and(raised)
    })
}

/// Asks whether this thread's call is to end. The caller holds no lock that another call may wait for.
pub(crate) fn check() -> bool {
    let Some(Interrupt(inner)) = current() else {
        return false;
    };
    if !inner.raised.load(Ordering::Relaxed) && (inner.check)() {
        inner.raised.store(true, Ordering::Relaxed);
    }
    inner.raised.load(Ordering::Relaxed)
}

/// The part of a wait after which to ask.
pub(crate) fn slice(left: Duration) -> Duration {
    CURRENT.with_borrow(|current| match current {
        Some(_) => left.min(SLICE),
        None => left,
    })
}

/// As [`Condvar::wait_until`]; also over once this thread's call is interrupted. Returns whether it is over.
pub fn wait_until<T>(on: &Condvar, guard: &mut MutexGuard<'_, T>, until: Instant) -> bool {
    loop {
        let now = Instant::now();
        let left = until.saturating_duration_since(now);
        let part = slice(left);
        if !on.wait_until(guard, now + part).timed_out() {
            return false;
        }
        if part == left || MutexGuard::unlocked(guard, check) {
            return true;
        }
    }
}

/// Waits without a limit, but for an interrupt. Returns whether that ended it.
pub(crate) fn wait<T>(on: &Condvar, guard: &mut MutexGuard<'_, T>) -> bool {
    if CURRENT.with_borrow(Option::is_none) {
        on.wait(guard);
        return false;
    }
    on.wait_for(guard, SLICE).timed_out() && MutexGuard::unlocked(guard, check)
}

/// Sleeps; returns whether this thread's call was interrupted.
pub fn sleep(time: Duration) -> bool {
    let until = Instant::now() + time;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if check() || left.is_zero() {
            return is_raised();
        }
        std::thread::sleep(slice(left));
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[test]
    fn waits_of_a_call_end_when_it_is_interrupted() {
        let asked = Arc::new(AtomicBool::new(false));
        let flag = asked.clone();
        let interrupt = Interrupt::new(move || flag.load(Ordering::SeqCst));
        let (lock, condvar) = (Mutex::new(()), Condvar::new());
        let later = Instant::now() + Duration::from_secs(60);
        let wait = || wait_until(&condvar, &mut lock.lock(), later);
        interrupt.during(|| {
            assert!(!is_raised());
            asked.store(true, Ordering::SeqCst);
            assert!(wait() && is_raised());
            // A part of it in another thread ends, too.
            let other = current().expect("an interrupt");
            std::thread::scope(|scope| {
                let helper = scope.spawn(move || other.help(|| sleep(Duration::from_secs(60))));
                assert!(helper.join().expect("no panic"));
            });
        });
        assert!(!is_raised(), "outside of the call");
        asked.store(false, Ordering::SeqCst);
        interrupt.during(|| assert!(!check(), "the next call"));
    }

    #[test]
    fn without_an_interrupt_waits_end_in_time() {
        let (lock, condvar) = (Mutex::new(()), Condvar::new());
        let soon = Instant::now() + Duration::from_millis(5);
        assert!(wait_until(&condvar, &mut lock.lock(), soon));
        assert!(!sleep(Duration::from_millis(1)));
        assert_eq!(slice(Duration::from_secs(9)), Duration::from_secs(9));
    }
}
