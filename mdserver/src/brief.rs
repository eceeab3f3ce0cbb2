//! Taking locks that are held for some microseconds: look again for longer than that before lying down.
//!
//! A thread that lies down costs the one that lets go a system call, and on a virtual machine up to 40 µs of
//! it, and itself some tens of microseconds until it runs again, in which its processor may have nothing to do:
//! more than the whole of what the lock is held for. `parking_lot` looks for about three microseconds; a
//! transaction takes up to ten, and often longer by the turn of a program: of 20,000 creates of four programs
//! 5,000 found the lock held by a thread whose processor a program that it had answered had taken over, for some
//! tens of microseconds (a trace of `sched_switch` and futex calls). So a thread looks for longer than that, and lets others run on its own processor between two turns, among them perhaps the one that has the
//! lock. Who still finds it taken lies down as ever, so its fairness stays what it is.

use std::sync::OnceLock;
use std::thread::available_parallelism;

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How often a thread looks again before it lets others run, 10 to 25 µs: whoever has the lock may be one of them.
const LOOKS: u32 = 60;
/// How often it does that.
const TURNS: u32 = 12;
/// Pauses of the processor between two looks: 0.15 to 0.4 µs.
const PAUSES: u32 = 8;

/// Takes a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    look(|| mutex.try_lock()).unwrap_or_else(|| mutex.lock())
}

/// Takes a lock shared.
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    look(|| lock.try_read()).unwrap_or_else(|| lock.read())
}

/// Takes a lock alone.
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    look(|| lock.try_write()).unwrap_or_else(|| lock.write())
}

#[inline]
fn look<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    attempt().or_else(|| look_again(attempt))
}

#[cold]
fn look_again<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    (0..turns()).find_map(|_| {
        let in_time = (0..LOOKS).find_map(|_| {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
            attempt()
        });
        in_time.or_else(|| {
            std::thread::yield_now();
            attempt()
        })
    })
}

/// None on a machine of one processor, where nobody lets go while somebody looks.
fn turns() -> u32 {
    static HERE: OnceLock<u32> = OnceLock::new();
    *HERE.get_or_init(|| match available_parallelism() {
        Ok(processors) if processors.get() == 1 => 0,
        _ => TURNS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_lets_go_late_is_waited_for() {
        let mutex = Mutex::new(0);
        let lock_of_both = RwLock::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let mut count = lock(&mutex);
                        let seen = *count;
                        std::thread::yield_now();
                        *count = seen + 1;
                        drop(count);
                        let before = *read(&lock_of_both);
                        let mut count = write(&lock_of_both);
                        assert!(*count >= before);
                        *count += 1;
                    }
                });
            }
        });
        assert_eq!((*lock(&mutex), *read(&lock_of_both)), (800, 800));
    }
}
