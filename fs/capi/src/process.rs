//! Per-process state that a `fork` child does not inherit.
//!
//! After `fork`, a child has a copy of its parent's memory: sockets that both would use, dirty data that both would
//! write back, and locks held by threads that do not exist in the child. So the tables of handles are in an [`Own`],
//! which is empty in a child: all handles are invalid there, and nothing of the parent is accessed, locked or dropped.
//!
//! Each call compares the process id, which also works where `fork` runs no `atfork` handlers.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A `T` for each process, created on first use. The parents' copies are never touched or freed.
pub(crate) struct Own<T> {
    last: AtomicPtr<Of<T>>,
}

struct Of<T> {
    process: u32,
    /// Whether a parent of the process has used the library.
    inherited: bool,
    own: T,
    /// The parent's, so that leak checkers do not report it.
    _before: AtomicPtr<Of<T>>,
}

impl<T: Default + Send + Sync + 'static> Own<T> {
    pub(crate) const fn new() -> Own<T> {
        Own {
            last: AtomicPtr::new(null_mut()),
        }
    }

    /// The value of this process.
    pub(crate) fn here(&self) -> &'static T {
        &self.of().own
    }

    /// Whether an ancestor of this process had one.
    pub(crate) fn inherited(&self) -> bool {
        self.of().inherited
    }

    fn of(&self) -> &'static Of<T> {
        let process = std::process::id();
        loop {
            let last = self.last.load(Ordering::Acquire);
            // SAFETY: it came from a box, and is never freed.
            let before = unsafe { last.as_ref() };
            if let Some(here) = before
                && here.process == process
            {
                return here;
            }
            let made = Box::into_raw(Box::new(Of {
                process,
                inherited: before.is_some(),
                own: T::default(),
                _before: AtomicPtr::new(last),
            }));
            let put = self
                .last
                .compare_exchange(last, made, Ordering::AcqRel, Ordering::Acquire);
            if put.is_err() {
                // Another thread was first.
                // SAFETY: from the box above; no other thread has seen it.
                drop(unsafe { Box::from_raw(made) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn threads_of_a_process_share_a_value() {
        static NUMBERS: Own<Mutex<Vec<usize>>> = Own::new();
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || NUMBERS.here().lock().unwrap().push(number));
            }
        });
        assert_eq!(NUMBERS.here().lock().unwrap().len(), 8);
        assert!(!NUMBERS.inherited());
    }
}
