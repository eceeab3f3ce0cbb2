//! What a process has of its own, and its children have not.
//!
//! After `fork` a child has the memory of its parent: sockets on which both would talk, write-behind that both would
//! send, and locks that threads held which are not there any more. So all that handles stand for lies in an [`Own`],
//! which is empty in a child: whatever it asks for is no handle there, and nothing of its parent is looked at, locked or
//! dropped.
//!
//! The process is told by its number at each call, which also holds where `fork` runs no handlers.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A `T` for each process, made when it is first asked for. Those of the parents stay as they are, for good.
pub(crate) struct Own<T> {
    last: AtomicPtr<Of<T>>,
}

struct Of<T> {
    process: u32,
    /// Whether a parent of the process has used the library.
    inherited: bool,
    own: T,
    /// The parent's, so that it does not count as lost.
    _before: AtomicPtr<Of<T>>,
}

impl<T: Default + Send + Sync + 'static> Own<T> {
    pub(crate) const fn new() -> Own<T> {
        Own {
            last: AtomicPtr::new(null_mut()),
        }
    }

    /// That of this process.
    pub(crate) fn here(&self) -> &'static T {
        &self.of().own
    }

    /// Whether a process that this one comes from had one.
    pub(crate) fn inherited(&self) -> bool {
        self.of().inherited
    }

    fn of(&self) -> &'static Of<T> {
        let process = std::process::id();
        loop {
            let last = self.last.load(Ordering::Acquire);
            // SAFETY: what is there came from a box, and is never freed.
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
                // SAFETY: of the box above; nobody has seen it.
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
    fn threads_of_a_process_have_the_same() {
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
